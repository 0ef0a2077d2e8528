#include "trainer/data/window_order.h"

#include "aio/words/check.h"

#include <bit>

namespace penstock::trainer {
namespace {

constexpr int feistel_rounds = 6;

// The finaliser of splitmix64 (Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15ULL;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t count, std::uint64_t seed) : count_(count), seed_(seed) {
    PENSTOCK_CHECK(count > 0 && count <= (1ULL << 62), "count {}", count);
    half_bits_ = (static_cast<unsigned>(std::bit_width(count - 1)) + 1) / 2;
    if (half_bits_ == 0) half_bits_ = 1;
}

std::uint64_t Permutation::turn(std::uint64_t value) const {
    const std::uint64_t mask = (1ULL << half_bits_) - 1;
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask;
    for (int round = 0; round < feistel_rounds; ++round) {
        const std::uint64_t key = mix(seed_ + static_cast<std::uint64_t>(round));
        const std::uint64_t next = left ^ (mix(right ^ key) & mask);
        left = right;
        right = next;
    }
    return left << half_bits_ | right;
}

std::uint64_t Permutation::at(std::uint64_t index) const {
    PENSTOCK_CHECK(index < count_, "index {} of {}", index, count_);
    std::uint64_t value = index;
    do {
        value = turn(value);
    } while (value >= count_);
    return value;
}

WindowOrder::WindowOrder(std::uint64_t token_count, std::uint64_t context, std::uint64_t seed)
    : context_(context),
      seed_(seed),
      window_count_(context == 0 || token_count == 0 ? 0 : (token_count - 1) / context) {
    PENSTOCK_CHECK(window_count_ > 0, "{} tokens, context {}", token_count, context);
}

std::uint64_t WindowOrder::first_token(std::uint64_t row) const {
    const std::uint64_t epoch = row / window_count_;
    const Permutation order(window_count_, mix(seed_) ^ mix(~epoch));
    return order.at(row % window_count_) * context_;
}

}  // namespace penstock::trainer
