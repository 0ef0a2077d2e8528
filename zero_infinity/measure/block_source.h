// Blocks of one file, in order or at random.
#pragma once

#include "zero_infinity/measure/io_rig.h"

#include <cstdint>
#include <random>

namespace penstock::zero {

enum class BlockAccess : std::uint8_t { sequential, random };
enum class BlockWork : std::uint8_t { read, write, half_each };

struct BlockPlan {
    BlockWork work = BlockWork::read;
    BlockAccess access = BlockAccess::sequential;
    std::uint32_t block_bytes = 1U << 20;
    std::uint64_t file_bytes = 0;  // a multiple of the block
    bool once = false;             // over the file once, then nothing more; else round and round
};

// Reads are prefetch: demand reads would throttle the writes beside them, and here nothing waits for a read.
class BlockSource final : public RequestSource {
   public:
    BlockSource(const aio::File& file, const BlockPlan& plan) : file_(file), plan_(plan) {}
    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override;

   private:
    const aio::File& file_;
    BlockPlan plan_;
    std::uint64_t read_block_ = 0;
    std::uint64_t write_block_ = 0;
    std::minstd_rand random_{1};
};

}  // namespace penstock::zero
