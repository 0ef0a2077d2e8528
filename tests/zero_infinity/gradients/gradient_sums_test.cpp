// Sums over the ranks: what each adds to, what it updates with, and its part of the norm.
#include "zero_infinity/gradients/gradient_sums.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/gradients/tied_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::GradientSums;
using zero::Partition;

// The value of an element of a unit's range: whole numbers, of whose squares sums are exact.
float value_at(std::uint64_t element) {
    return static_cast<float>(element % 97) - 40;
}

std::vector<float> values_of(const zero::GradientView& view) {
    std::vector<float> values(view.numel);
    std::memcpy(values.data(), view.data, view.numel * sizeof(float));
    return values;
}

// Keeps what this rank adds to a sum over the ranks.
class KeepingCommunicator final : public zero::Communicator {
   public:
    explicit KeepingCommunicator(Partition of) : of_(of) {}
    std::uint32_t rank() const noexcept override { return of_.rank; }
    std::uint32_t ranks() const noexcept override { return of_.ranks; }
    void all_gather(std::span<const std::byte>, std::span<std::byte>) override {}
    void reduce_scatter(std::span<const std::byte>, zero::PlaneType, std::span<std::byte>) override {}
    void all_reduce(std::span<double> values) override { addend.assign(values.begin(), values.end()); }
    void broadcast(std::span<std::byte>, std::uint32_t) override {}
    void barrier() override {}

    std::vector<double> addend;

   private:
    Partition of_;
};

// One rank that was given the sum of all ranks' gradients.
class Rank {
   public:
    explicit Rank(Partition partition) : layout(tied_layout(partition)), communicator(partition) {}

    void add(zero::ParameterId parameter) {
        const zero::ParameterPlace& place = layout.unit(parameter.unit).place(parameter.index);
        std::vector<float> addend(place.numel);
        for (std::uint64_t at = 0; at < place.numel; ++at) addend[at] = value_at(place.first + at);
        sums.add(parameter, {reinterpret_cast<const std::byte*>(addend.data()), zero::PlaneType::fp32, addend.size()});
    }
    void make_step() {
        for (const zero::ParameterId each : {table_weight, head_weight}) add(each);
        sums.add_borrowed();
        norm = sums.norm(workers, communicator, commits);
        sums.lend();
    }
    // As they lie in the unit's range, where no gradient came zero.
    std::vector<float> shard(std::uint32_t unit) const {
        std::vector<float> values;
        for (std::uint32_t tile = 0; tile < layout.unit(unit).tile_count(); ++tile) {
            const std::vector<float> part = values_of(sums.tile({unit, tile}));
            values.insert(values.end(), part.begin(), part.end());
        }
        return values;
    }

    const zero::ModelLayout layout;
    pool::PinnedPool pool{gradient_budget(layout), pool::MachineMemory::read(), {}};
    std::unique_ptr<zero::Device> device = zero::make_cpu_device();
    GradientSums sums{layout, {}, pool, *device};
    zero::Workers workers{1};
    KeepingCommunicator communicator;
    zero::CommitBarrier commits{communicator};
    double norm = 0;
};

class GradientSumsTest : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(GradientSumsTest, ATileIsOfTheRanksOwnShard) {
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
        Rank one({rank, GetParam()});
        one.make_step();
        const zero::UnitLayout& unit = one.layout.unit(head);
        ASSERT_GT(unit.tile_count(), 1U);
        const std::vector<float> shard = one.shard(head);
        ASSERT_EQ(shard.size(), unit.shard_numel());
        for (std::uint64_t at = 0; at < shard.size(); ++at) {
            const std::uint64_t element = unit.shard_first() + at;
            ASSERT_EQ(shard[at], element < 20000 ? value_at(element) : 0) << "rank " << rank << ", element " << element;
        }
    }
}

// Each rank's are in the place that is its own: units in order, in each the ranks, in each their tiles.
TEST_P(GradientSumsTest, TheNormHasTheSquaresOfEachElementOnce) {
    std::vector<double> squares;
    std::vector<std::string> order;
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
        Rank one({rank, GetParam()});
        one.make_step();
        const std::vector<double>& own = one.communicator.addend;
        const std::size_t places = one.layout.tiles().size() * GetParam();
        ASSERT_EQ(own.size(), places + GetParam()) << "with what each rank has committed";
        squares.resize(places);
        order.resize(places);
        const zero::GradientNorm norm(one.layout);
        double sum = 0;
        for (const zero::UnitTile tile : one.layout.tiles()) {
            const std::size_t place = norm.place_of(tile);
            EXPECT_EQ(order.at(place), "");
            order[place] = std::to_string(tile.unit) + "." + std::to_string(rank) + "." + std::to_string(tile.tile);
            double expected = 0;
            for (const float each : values_of(one.sums.tile(tile))) expected += double{each} * each;
            EXPECT_EQ(own[place], expected) << order[place];
            sum += expected;
        }
        EXPECT_EQ(one.norm, std::sqrt(sum)) << "of others it has zero";
        for (std::size_t at = 0; at < places; ++at) squares[at] += own[at];
    }
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    double all = 0;
    for (const double each : squares) all += each;
    Rank alone({0, 1});
    alone.make_step();
    EXPECT_EQ(std::sqrt(all), alone.norm);
}

// What the others have stays at zero here: nobody may go on who has only heard of himself.
TEST_P(GradientSumsTest, WithTheNormGoesWhatThisRankHasCommitted) {
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
        Rank one({rank, GetParam()});
        one.commits.committed(7);
        one.make_step();
        for (std::uint32_t other = 0; other < GetParam(); ++other)
            EXPECT_EQ(*(one.communicator.addend.end() - GetParam() + other), other == rank ? 7 : 0);
        EXPECT_EQ(one.commits.may_write(8), GetParam() == 1);
        EXPECT_TRUE(one.commits.may_write(1));
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GradientSumsTest, ::testing::Values(1, 2, 3));

TEST(GradientSums, WhatNoGradientCameToIsZero) {
    Rank rank({1, 2});
    for (const zero::ParameterId each : {table_weight, head_weight}) rank.add(each);
    rank.sums.clear();  // memory still has them
    rank.add(table_bias);
    rank.sums.norm(rank.workers, rank.communicator, rank.commits);
    rank.sums.lend();
    const std::vector<float> first = rank.shard(table);
    const zero::UnitLayout& unit = rank.layout.unit(table);
    for (std::uint64_t at = 0; at < first.size(); ++at) {
        const std::uint64_t element = unit.shard_first() + at, bias = unit.place(1).first;
        ASSERT_EQ(first[at], element >= bias && element < bias + 10 ? value_at(element) : 0) << element;
    }
    for (const float each : rank.shard(head)) ASSERT_EQ(each, 0);
}

// A device that is lost may write to host memory at any time: nobody is ever given that memory again.
TEST(GradientSums, WhatALostDeviceWritesToIsOrphaned) {
    const zero::ModelLayout layout = tied_layout();
    for (const std::chrono::seconds deadline : {std::chrono::seconds(60), std::chrono::seconds(0)}) {
        pool::PinnedPool pool(gradient_budget(layout), pool::MachineMemory::read(), {});
        const std::unique_ptr<zero::Device> device = zero::make_device({.kind = zero::DeviceKind::emulated,
                                                                        .budget_bytes = 1 << 20,
                                                                        .copy_delay = std::chrono::milliseconds(300)});
        std::optional<GradientSums> sums;
        sums.emplace(
            layout,
            zero::GradientSumsOptions{.device_bytes = zero::gradient_window_bytes(layout, zero::PlaneType::fp32),
                                      .deadline = deadline},
            pool, *device);
        const GradientSums::Open open = sums->open(table_weight);
        std::fill(open.data, open.data + open.numel * sizeof(float), std::byte{});
        const bool lost = deadline.count() == 0;
        EXPECT_EQ(refusal_of(ExitCode::internal, [&] { sums->sum(table_weight); }) != "accepted", lost);
        sums.reset();
        const pool::UseFigures figures = pool.figures(pool.use(zero::gradients_use));
        EXPECT_EQ(figures.orphaned_bytes, lost ? figures.granted_bytes : 0);
        EXPECT_EQ(figures.granted_bytes > 0, lost);
    }
}

TEST(GradientSumsDeathTest, SumsThatLeaveAreThoseOfOneRank) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork has no memory of the pool
    const zero::ModelLayout layout = tied_layout({1, 2});
    pool::PinnedPool pool(gradient_budget(layout), pool::MachineMemory::read(), {});
    const std::unique_ptr<zero::Device> device = zero::make_cpu_device();
    EXPECT_DEATH(GradientSums(layout, {.memory = zero::GradientMemory::nvme}, pool, *device), "sums of 2 ranks leave");
}

TEST(GradientSumsDeathTest, AUnitIsLentAgainOnlyWhereItsSumsAreKept) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const zero::ModelLayout layout = tied_layout();
    pool::PinnedPool pool(gradient_budget(layout), pool::MachineMemory::read(), {});
    const std::unique_ptr<zero::Device> device = zero::make_cpu_device();
    GradientSums sums(layout, {.lends_again = false}, pool, *device);
    zero::Workers workers(1);
    EXPECT_TRUE(sums.lend(head, workers));
    sums.give_back(head);
    EXPECT_DEATH(sums.lend_again(head), "unit 2 is lent again, but is not kept for that");
}

}  // namespace
}  // namespace penstock::testing
