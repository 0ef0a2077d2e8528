// The rows of each step as tensors.
#pragma once

#include "trainer/data/token_file.h"
#include "trainer/data/window_order.h"
#include "zero_infinity/engine/bundle.h"
#include "zero_infinity/layout/unit.h"

#include <cstdint>
#include <vector>

namespace penstock::trainer {

struct BatchShape {
    std::int64_t rows = 1;           // of one micro-batch
    std::int64_t micro_batches = 1;  // of one step, on each rank
    std::int64_t context = 1;        // tokens of one row
    zero::Partition of = {};         // which rank's they are
};

// The token file outlives it. Compute thread.
class Batches {
   public:
    // Throws Error (usage) when the file has no window of context + 1 tokens.
    Batches(const TokenFile& file, BatchShape shape, std::uint64_t seed, at::Device device);

    // "tokens" and "targets" (the token after each), int64 [rows, context], of each micro-batch of the step that
    // `seen_rows` >= 0 rows came before: see WindowOrder. Ranks take turns: micro-batch m of rank r is the step's
    // micro- batch m * ranks + r, so one process with as many micro-batches in all has the same ones. The bundles are
    // valid until the next call.
    const std::vector<engine::Bundle>& after(std::int64_t seen_rows);
    std::int64_t rows_of_step() const noexcept { return shape_.of.ranks * shape_.rows * shape_.micro_batches; }

   private:
    engine::Bundle micro_batch(std::uint64_t first_row);

    const TokenFile& file_;
    BatchShape shape_;
    WindowOrder order_;
    at::Device device_;
    std::vector<engine::Bundle> bundles_;
};

}  // namespace penstock::trainer
