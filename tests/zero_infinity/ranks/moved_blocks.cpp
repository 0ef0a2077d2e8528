#include "tests/zero_infinity/ranks/moved_blocks.h"

#include "tests/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <vector>

namespace penstock::testing {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte untouched{0x55};
constexpr std::uint32_t to_all = 9;

std::byte byte_of(std::uint64_t seed, std::uint32_t from, std::uint32_t to, std::size_t i) {
    return static_cast<std::byte>(mix(seed + from * 1000 + to * 100'000 + i));
}

void check(const Bytes& come, std::size_t stride, std::size_t bytes, std::uint64_t seed, std::uint32_t to) {
    for (std::size_t i = 0; i < come.size(); ++i) {
        const auto from = static_cast<std::uint32_t>(i / stride);
        if (come[i] != (i % stride < bytes ? byte_of(seed, from, to, i % stride) : untouched))
            throw std::runtime_error(fmt::format("byte {} of the block of rank {} is wrong", i % stride, from));
    }
}

}  // namespace

void move_blocks(zero::Transport& transport, std::uint64_t seed, std::size_t bytes) {
    const std::uint32_t rank = transport.rank(), ranks = transport.ranks();
    std::mt19937_64 random(seed + rank);
    const std::size_t stride = bytes + random() % 3 * 7, other = bytes + random() % 3 * 5;
    Bytes to(ranks * stride), from(ranks * other, untouched), mine(bytes);
    for (std::uint32_t peer = 0; peer < ranks; ++peer)
        for (std::size_t i = 0; i < bytes; ++i) to[peer * stride + i] = byte_of(seed, rank, peer, i);
    transport.exchange({to.data(), stride, bytes}, {from.data(), other, bytes});
    check(from, other, bytes, seed, rank);

    const bool in_place = random() % 2 == 0;
    std::fill(from.begin(), from.end(), untouched);
    std::byte* const own = in_place ? from.data() + rank * other : mine.data();
    for (std::size_t i = 0; i < bytes; ++i) own[i] = byte_of(seed, rank, to_all, i);
    transport.all_gather({own, bytes}, {from.data(), other, bytes});
    check(from, other, bytes, seed, to_all);
}

}  // namespace penstock::testing
