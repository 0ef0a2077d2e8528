#include "zero_infinity/ranks/communicator.h"

#include "aio/words/check.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace penstock::zero {
namespace {

void copy_unless_there(std::span<const std::byte> from, std::span<std::byte> to) {
    PENSTOCK_CHECK(from.size() == to.size(), "{} bytes for {}, of one rank", from.size(), to.size());
    if (!from.empty() && from.data() != to.data()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

void LocalCommunicator::all_gather(std::span<const std::byte> shard, std::span<std::byte> all) {
    copy_unless_there(shard, all);
}

void LocalCommunicator::reduce_scatter(std::span<const std::byte> all, PlaneType type, std::span<std::byte> shard) {
    PENSTOCK_CHECK(all.size() % bytes_of(type) == 0, "{} bytes are no whole elements of {}", all.size(), word_of(type));
    copy_unless_there(all, shard);
}

void LocalCommunicator::all_reduce(std::span<double> /*values*/) {}

void LocalCommunicator::broadcast(std::span<std::byte> /*bytes*/, std::uint32_t root) {
    PENSTOCK_CHECK(root == 0, "root {} of one rank", root);
}

void gather(Communicator& communicator, std::uint64_t own, std::span<std::uint64_t> of_all) {
    PENSTOCK_CHECK(of_all.size() == communicator.ranks(), "{} numbers of {} ranks", of_all.size(),
                   communicator.ranks());
    communicator.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(of_all));
}

std::uint64_t agree_on_largest(Communicator& communicator, std::uint64_t own) {
    std::vector<std::uint64_t> all(communicator.ranks());
    gather(communicator, own, all);
    return *std::max_element(all.begin(), all.end());
}

}  // namespace penstock::zero
