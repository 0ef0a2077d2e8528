// The collectives over two calls of a transport, and the order of sums: every bit against a loop that adds in the order
// of the ranks. Two ranks cannot see a wrong order; three can.
#include "zero_infinity/ranks/collectives.h"

#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "zero_infinity/kernels/float16.h"
#include "zero_infinity/optimizer/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace penstock::testing {
namespace {

using zero::PlaneType;
using zero::SumOf;
using zero::SumStart;
using Bytes = std::vector<std::byte>;

constexpr std::array types{PlaneType::fp32, PlaneType::bf16, PlaneType::fp16};

float widened(PlaneType type, const std::byte* from) {
    if (type == PlaneType::fp32) {
        float value = 0;
        std::memcpy(&value, from, sizeof value);
        return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return type == PlaneType::bf16 ? zero::bf16_to_fp32(bits) : zero::fp16_to_fp32(bits);
}

void narrowed(PlaneType type, float value, std::byte* to) {
    if (type == PlaneType::fp32) {
        std::memcpy(to, &value, sizeof value);
        return;
    }
    const std::uint16_t bits = type == PlaneType::bf16 ? zero::fp32_to_bf16(value) : zero::fp32_to_fp16(value);
    std::memcpy(to, &bits, sizeof bits);
}

// Over six decades, with zeros of both signs.
Bytes values(std::mt19937_64& random, PlaneType type, std::uint64_t numel) {
    Bytes made(numel * bytes_of(type));
    for (std::uint64_t i = 0; i < numel; ++i) {
        const double size = std::pow(10.0, static_cast<double>(random() % 6) - 3);
        const double value = (static_cast<double>(random() % 20001) - 10000) / 10000 * size;
        narrowed(type, random() % 16 == 0 ? -0.0F : static_cast<float>(value), made.data() + i * bytes_of(type));
    }
    return made;
}

// The definition of gradient.h, one element after the other.
Bytes added(const std::vector<const std::byte*>& addends, PlaneType wire, SumOf of, SumStart start, PlaneType type,
            const Bytes& before) {
    Bytes sum = before;
    const std::uint64_t numel = sum.size() / bytes_of(type);
    for (std::uint64_t i = 0; i < numel; ++i) {
        const auto addend = [&](std::size_t rank) { return widened(wire, addends[rank] + i * bytes_of(wire)); };
        volatile float acc = addend(0);
        for (std::size_t rank = 1; rank < addends.size(); ++rank) acc = acc + addend(rank);
        if (of == SumOf::mean) acc = acc / static_cast<float>(addends.size());
        if (start == SumStart::carried) acc = widened(type, before.data() + i * bytes_of(type)) + acc;
        narrowed(type, acc, sum.data() + i * bytes_of(type));
    }
    return sum;
}

TEST(SumInOrder, IsTheLoopOverTheRanksBitForBit) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(200); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        const std::uint64_t ranks = 1 + random() % 9, numel = random() % 5000;
        const PlaneType wire = types[random() % 3], type = types[random() % 3];
        const SumStart start = random() % 2 == 0 ? SumStart::carried : SumStart::fresh;
        const SumOf of = random() % 2 == 0 ? SumOf::mean : SumOf::total;
        std::vector<Bytes> kept;
        std::vector<const std::byte*> addends;
        for (std::uint64_t rank = 0; rank < ranks; ++rank) kept.push_back(values(random, wire, numel));
        for (const Bytes& each : kept) addends.push_back(each.data());
        const Bytes before = values(random, type, numel);
        Bytes sum = before;
        zero::sum_in_order(addends, wire, of, start, type, sum.data(), numel);
        ASSERT_EQ(sum, added(addends, wire, of, start, type, before)) << ranks << " ranks";
    }
}

TEST(SumInOrder, OneRankKeepsTheSignOfAZeroAndNanStaysOne) {
    const std::array<float, 3> mine{-0.0F, std::numeric_limits<float>::quiet_NaN(), 1};
    std::array<float, 3> sum{5, 5, 5};
    const std::byte* addend = reinterpret_cast<const std::byte*>(mine.data());
    zero::sum_in_order({&addend, 1}, PlaneType::fp32, SumOf::mean, SumStart::fresh, PlaneType::fp32,
                       reinterpret_cast<std::byte*>(sum.data()), 3);
    EXPECT_TRUE(std::signbit(sum[0]));
    EXPECT_TRUE(std::isnan(sum[1]));
    EXPECT_EQ(sum[2], 1);
}

TEST(SumInOrder, TheSumMayBeOneOfTheAddends) {
    std::array<float, 2> first{1e8F, 1}, second{1, 2}, third{-1e8F, 3};
    const auto bytes = [](auto& array) { return reinterpret_cast<std::byte*>(array.data()); };
    const std::array<const std::byte*, 3> addends{bytes(first), bytes(second), bytes(third)};
    zero::sum_in_order(addends, PlaneType::fp32, SumOf::total, SumStart::fresh, PlaneType::fp32, bytes(second), 2);
    EXPECT_EQ(second, (std::array<float, 2>{0, 6})) << "1 is lost beside 1e8, and the order shows it";
}

// What each rank has, by seed: all ranks can say what each other one gave.
Bytes of_rank(std::uint64_t seed, std::uint64_t rank, PlaneType type, std::uint64_t numel) {
    std::mt19937_64 random(seed * 100 + rank);
    return values(random, type, numel);
}

TEST(Collectives, GiveEachRankWhatTheirWordsSay) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(20); ++seed) {
        SCOPED_TRACE(replay(seed));
        const auto ranks = static_cast<std::uint32_t>(1 + seed % 5);
        const std::uint64_t numel = mix(seed) % 37;  // of a part
        const PlaneType type = types[seed % 3];
        ThreadRanks world(ranks, {.seed = seed, .most_delay = std::chrono::microseconds(50)});
        const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
            zero::Collectives all(world.of(rank), 24);  // pieces of a few elements
            ASSERT_EQ(all.partition().rank, rank);
            const Bytes shard = of_rank(seed, rank, type, numel);
            Bytes expected, gathered(ranks * shard.size());
            for (std::uint32_t other = 0; other < ranks; ++other) {
                const Bytes theirs = of_rank(seed, other, type, numel);
                expected.insert(expected.end(), theirs.begin(), theirs.end());
            }
            all.all_gather("a gather", shard, gathered);
            EXPECT_EQ(gathered, expected);
            std::copy(shard.begin(), shard.end(), gathered.begin() + static_cast<long>(rank * shard.size()));
            all.all_gather("a gather", std::span(gathered).subspan(rank * shard.size(), shard.size()), gathered);
            EXPECT_EQ(gathered, expected) << "in its place";

            EXPECT_EQ(agree_on_largest(all, "a number", 1'790'000'000'123'456'789 + rank),
                      1'790'000'000'123'456'788 + ranks);
        });
        EXPECT_EQ(thrown, std::vector<std::string>(ranks));
        EXPECT_EQ(world.mismatch(), "");
    }
}

TEST(Collectives, OneRankAloneHasItsOwnBytes) {
    zero::TransportAlone alone;
    zero::Collectives all(alone);
    std::array<float, 2> mine{1.5F, -0.0F}, gathered{};
    all.all_gather("a gather", std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(gathered)));
    all.all_gather("a gather", {}, {});
    EXPECT_EQ(gathered, mine);
}

TEST(Collectives, ARankThatDiesEndsTheOthers) {
    ThreadRanks world(3, {.mishap = {Mishap::Kind::dies, 1, 2}});
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        zero::Collectives all(world.of(rank));
        for (int call = 0; call < 3; ++call) all.all_gather("nothing", {}, {});
    });
    EXPECT_EQ(thrown, (std::vector<std::string>{"a rank is lost", "this rank is gone", "a rank is lost"}));
}

}  // namespace
}  // namespace penstock::testing
