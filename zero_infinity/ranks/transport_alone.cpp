#include "zero_infinity/ranks/transport.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <cstring>

namespace penstock::zero {

void TransportAlone::all_gather(std::span<const std::byte> mine, const RankBlocks& all) {
    PENSTOCK_CHECK(mine.size() == all.bytes, "{} bytes for a block of {}", mine.size(), all.bytes);
    check_not_aborted();
    if (!mine.empty() && mine.data() != all.first) std::memcpy(all.first, mine.data(), mine.size());
}

void TransportAlone::exchange(const ConstRankBlocks& to, const RankBlocks& from) {
    PENSTOCK_CHECK(to.bytes == from.bytes, "blocks of {} bytes for blocks of {}", to.bytes, from.bytes);
    check_not_aborted();
    if (to.bytes > 0) std::memcpy(from.first, to.first, to.bytes);
}

void TransportAlone::check_not_aborted() const {
    if (aborted_) throw Error(ExitCode::peer_lost, "the session has ended its calls");
}

}  // namespace penstock::zero
