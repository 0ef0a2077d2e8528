#include "zero_infinity/ranks/communicator.h"

#include "aio/words/check.h"

#include <algorithm>
#include <cstring>

namespace penstock::zero {

void LocalCommunicator::all_gather(std::string_view /*what*/, std::span<const std::byte> mine,
                                   std::span<std::byte> all) {
    PENSTOCK_CHECK(mine.size() == all.size(), "{} bytes for {}, of one rank", mine.size(), all.size());
    if (!mine.empty() && mine.data() != all.data()) std::memcpy(all.data(), mine.data(), mine.size());
}

void gather(Communicator& communicator, std::string_view what, std::uint64_t own, std::span<std::uint64_t> of_all) {
    PENSTOCK_CHECK(of_all.size() == communicator.ranks(), "{} numbers of {} ranks", of_all.size(),
                   communicator.ranks());
    communicator.all_gather(what, std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(of_all));
}

std::uint64_t agree_on_largest(Communicator& communicator, std::string_view what, std::uint64_t own) {
    return std::ranges::max(gathered(communicator, what, own));
}

}  // namespace penstock::zero
