#include "bench/harness/memory_work.h"

#include "bench/harness/triad.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace penstock::bench {
namespace {

TEST(MemoryWork, CountsWhatAStepReadsAndWrites) {
    constexpr std::uint64_t numel = work_piece_numel;
    EXPECT_EQ(make_triad(numel)->bytes_of_step(), 12 * numel);
    EXPECT_EQ(make_triad_in_place(numel)->bytes_of_step(), 12 * numel);
    EXPECT_EQ(make_plain_update(zero::make_adamw({}), numel)->bytes_of_step(), 28 * numel);
    EXPECT_EQ(make_plain_update(zero::make_sgd({.momentum = 0.9}), numel)->bytes_of_step(), 20 * numel);
    EXPECT_EQ(make_plain_update(zero::make_sgd({}), numel)->bytes_of_step(), 12 * numel);
    const auto split = [](zero::PlaneType gradient) {
        return make_tile_update(zero::split_codec(), gradient, zero::make_adamw({}), numel)->bytes_of_step();
    };
    EXPECT_EQ(split(zero::PlaneType::fp32), 28 * numel);
    EXPECT_EQ(split(zero::PlaneType::bf16), 26 * numel);
    const auto compact = make_tile_update(zero::compact_codec(), zero::PlaneType::bf16, zero::make_adamw({}), numel);
    EXPECT_EQ(compact->bytes_of_step(), numel * 49 / 4);
}

TEST(MemoryWork, EveryKindStepsAtAnyNumberOfThreads) {
    for (const unsigned threads : {1U, 3U}) {
        zero::Workers workers(threads);
        for (const auto& work : {make_triad(4 * work_piece_numel), make_triad_in_place(work_piece_numel),
                                 make_plain_update(zero::make_adagrad({}), 2 * work_piece_numel),
                                 make_tile_update(zero::compact_codec(), zero::PlaneType::bf16, zero::make_adamw({}),
                                                  2 * work_piece_numel)}) {
            for (int step = 0; step < 3; ++step) work->step(workers);
        }
    }
}

TEST(MemoryWork, RefusesElementsThatAreNoWholePieces) {
    EXPECT_DEATH(make_triad(work_piece_numel + 1), "65537 elements");
    EXPECT_DEATH(make_triad(0), "0 elements");
}

class TriadOf : public ::testing::TestWithParam<std::size_t> {};

TEST_P(TriadOf, IsAPlusSTimesB) {
    const std::size_t count = GetParam();
    std::vector<float> first, second, to(count + 1, -1.0F);
    for (std::size_t i = 0; i < count; ++i) {
        first.push_back(static_cast<float>(i) * 0.5F);
        second.push_back(std::sin(static_cast<float>(i)));
    }
    widest_triad()(to.data(), first.data(), second.data(), 3.0F, count);
    std::vector<float> in_place = first;
    widest_triad()(in_place.data(), in_place.data(), second.data(), 3.0F, count);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(to[i], first[i] + 3.0F * second[i]) << i;
        EXPECT_EQ(in_place[i], to[i]) << i;
    }
    EXPECT_EQ(to[count], -1.0F);
}

INSTANTIATE_TEST_SUITE_P(Counts, TriadOf, ::testing::Values(0, 1, 15, 16, 17, 1000));

}  // namespace
}  // namespace penstock::bench
