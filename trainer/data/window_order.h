// Which piece of the token file each row of each batch is: a pure function, so that a resumed run sees the same rows.
#pragma once

#include <cstdint>

namespace penstock::trainer {

// A seeded permutation of [0, count) without memory: a Feistel network on the next even number of bits, walked until
// the value is below count (Black and Rogaway 2002). The walk takes fewer than 4 turns on average.
class Permutation {
   public:
    Permutation(std::uint64_t count, std::uint64_t seed);  // REQUIRES: count > 0
    std::uint64_t at(std::uint64_t index) const;           // REQUIRES: index < count

   private:
    std::uint64_t turn(std::uint64_t value) const;
    std::uint64_t count_;
    std::uint64_t seed_;
    unsigned half_bits_;
};

// The file's tokens are cut into windows: window w is tokens [w * context, w * context + context], the last of which is
// only a target. Rows are numbered over the whole run: row r of micro-batch m of a step that s rows came before is
//   n = s + m * micro_batch_rows + r,
// so rows do not depend on how a step is divided among micro-batches or ranks. Epoch n / windows visits each window
// once, in an order of its own: row n is window P(seed, epoch)(n % windows).
class WindowOrder {
   public:
    // REQUIRES: token_count > context > 0.
    WindowOrder(std::uint64_t token_count, std::uint64_t context, std::uint64_t seed);

    std::uint64_t window_count() const noexcept { return window_count_; }
    std::uint64_t first_token(std::uint64_t row) const;  // of the row of that number

   private:
    std::uint64_t context_;
    std::uint64_t seed_;
    std::uint64_t window_count_;
};

}  // namespace penstock::trainer
