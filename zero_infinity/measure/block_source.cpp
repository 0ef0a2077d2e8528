#include "zero_infinity/measure/block_source.h"

#include "aio/words/io_error.h"

namespace penstock::zero {

bool BlockSource::next(std::size_t /*slot*/, aio::TransferRequest& request) noexcept {
    const bool reads =
        plan_.work == BlockWork::read || (plan_.work == BlockWork::half_each && (random_() >> 16) % 2 == 0);
    const std::uint64_t blocks = plan_.file_bytes / plan_.block_bytes;
    std::uint64_t& position = reads ? read_block_ : write_block_;
    if (plan_.once && position == blocks) return false;
    const std::uint64_t block = plan_.access == BlockAccess::random ? random_() % blocks : position % blocks;
    ++position;
    request = {.kind = reads ? aio::IoKind::read : aio::IoKind::write,
               .file = &file_,
               .offset_bytes = block * plan_.block_bytes,
               .bytes = plan_.block_bytes,
               .urgency = reads ? aio::Urgency::prefetch : aio::Urgency::write_back};
    return true;
}

}  // namespace penstock::zero
