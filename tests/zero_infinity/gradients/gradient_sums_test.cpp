// Sums over the ranks: what each adds to, what it updates with, and its part of the norm.
#include "zero_infinity/gradients/gradient_sums.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/gradients/tied_layout.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "zero_infinity/ranks/collectives.h"

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

// Keeps what this rank says; of the others it hears zeros.
class KeepingCommunicator final : public zero::Communicator {
   public:
    explicit KeepingCommunicator(Partition of) : of_(of) {}
    std::uint32_t rank() const noexcept override { return of_.rank; }
    std::uint32_t ranks() const noexcept override { return of_.ranks; }
    void all_gather(std::string_view, std::span<const std::byte> mine, std::span<std::byte> all) override {
        std::memcpy(&committed, mine.data(), sizeof committed);
        std::memset(all.data(), 0, all.size());
        std::memcpy(all.data() + of_.rank * mine.size(), mine.data(), mine.size());
    }

    std::uint64_t committed = 0;

   private:
    Partition of_;
};

// One rank that was given the sum of all ranks' gradients.
class Rank {
   public:
    explicit Rank(Partition partition, float scale = 1)
        : layout(tied_layout(partition)), communicator(partition), scale_(scale) {}

    void add(zero::ParameterId parameter) {
        const zero::ParameterPlace& place = layout.unit(parameter.unit).place(parameter.index);
        std::vector<float> addend(place.numel);
        for (std::uint64_t at = 0; at < place.numel; ++at) addend[at] = scale_ * value_at(place.first + at);
        sums.add(parameter, {reinterpret_cast<const std::byte*>(addend.data()), zero::PlaneType::fp32, addend.size()});
    }
    void make_step() {
        add_all();
        sums.norm(workers, communicator, commits);
        sums.lend();
    }
    void add_all() {
        for (const zero::ParameterId each : {table_weight, head_weight}) add(each);
        sums.add_borrowed();
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

   private:
    float scale_;
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

// The norm of all ranks, and the squares of each one's tiles, in their order.
struct CountedNorm {
    std::vector<double> norms;
    std::vector<std::vector<double>> squares;
};
CountedNorm count(std::uint32_t ranks, float scale) {
    ThreadRanks world(ranks);
    CountedNorm counted{std::vector<double>(ranks), std::vector<std::vector<double>>(ranks)};
    const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
        Rank one({rank, ranks}, scale);
        zero::Collectives all(world.of(rank));
        one.add_all();
        counted.norms[rank] = one.sums.norm(one.workers, all, one.commits);
        one.sums.lend();
        for (const zero::UnitTile tile : one.layout.tiles())
            counted.squares[rank].push_back(zero::sum_of_squares(one.sums.tile(tile)));
    });
    EXPECT_EQ(thrown, std::vector<std::string>(ranks));
    return counted;
}

// In the order of units, in each of ranks, in each of tiles: in another one some of these would round otherwise.
TEST_P(GradientSumsTest, TheNormIsAddedInOneOrder) {
    const std::uint32_t ranks = GetParam();
    const zero::ModelLayout layout = tied_layout({0, ranks});
    int told_apart = 0;
    for (const float scale : {0.1F, 0.3F, 0.7F, 1.1F, 1.3F, 1.7F, 1.9F, 2.3F}) {
        const CountedNorm counted = count(ranks, scale);
        double sum = 0, other = 0;
        for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
            for (const std::vector<double>& rank : counted.squares)
                for (std::uint32_t tile = 0; tile < layout.unit(unit).tile_count(); ++tile)
                    sum += rank[layout.number({unit, tile})];
        for (const std::vector<double>& rank : counted.squares)
            for (const double square : rank) other += square;
        for (const double norm : counted.norms) EXPECT_EQ(norm, std::sqrt(sum));
        told_apart += std::sqrt(sum) != std::sqrt(other);
    }
    EXPECT_TRUE(ranks == 1 || told_apart > 0) << "these values do not tell the orders apart";
}

// What the others have stays at zero here: nobody may go on who has only heard of himself.
TEST_P(GradientSumsTest, WithTheNormGoesWhatThisRankHasCommitted) {
    for (std::uint32_t rank = 0; rank < GetParam(); ++rank) {
        Rank one({rank, GetParam()});
        one.commits.committed(7);
        one.make_step();
        EXPECT_EQ(one.communicator.committed, 7U);
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
