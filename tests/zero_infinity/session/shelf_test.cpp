// What was laid aside is what is taken, whatever the budget and the order in which transfers end.
#include "zero_infinity/session/shelf.h"

#include "aio/words/error.h"
#include "zero_infinity/capi/c_shelf.h"
#include "zero_infinity/forecast/shelf_replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace penstock::zero {
namespace {

constexpr std::uint64_t granule = 4096;

// As late as it may be: bytes move when they are waited for, and until then memory that comes holds something else.
class LateMover final : public ShelfMover {
   public:
    store::SpillBlock allocate(std::uint64_t bytes) override {
        if (full) throw Error(ExitCode::does_not_fit, "no room on disk");
        blocks.emplace_back(bytes);
        return {static_cast<std::uint32_t>(blocks.size()) - 1};
    }
    void out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t) override {
        EXPECT_EQ(memory.size(), blocks[block.index].size());
        EXPECT_FALSE(has(memory)) << "memory that is sent out is not there yet";
        moves[block.index].push_back({true, memory});
        out_bytes += memory.size();
        ++outs[block.index];
        latest.insert(block.index);
    }
    void in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t) override {
        EXPECT_EQ(memory.size(), blocks[block.index].size());
        EXPECT_FALSE(has(memory)) << "memory that something comes to is on its way out, or another's";
        std::fill(memory.begin(), memory.end(), std::byte{0xee});
        moves[block.index].push_back({false, memory});
        in_bytes += memory.size();
    }
    void wait(store::SpillBlock block) override {
        const auto ended = moves.extract(block.index);
        if (ended.empty()) return;
        waits_for_latest += latest.count(block.index);
        for (const auto& [leaves, memory] : ended.mapped())
            leaves ? std::memcpy(blocks[block.index].data(), memory.data(), memory.size())
                   : std::memcpy(memory.data(), blocks[block.index].data(), memory.size());
    }

    bool failed() const override { return full; }

    // Moves that were begun and not waited for.
    bool has(std::span<const std::byte> memory) const {
        for (const auto& [block, under_way] : moves)
            for (const Move& move : under_way)
                if (move.memory.data() < memory.data() + memory.size() &&
                    memory.data() < move.memory.data() + move.memory.size())
                    return true;
        return false;
    }

    struct Move {
        bool leaves;
        std::span<std::byte> memory;
    };
    std::deque<std::vector<std::byte>> blocks;
    std::map<std::uint32_t, std::vector<Move>> moves;
    std::map<std::uint32_t, std::uint64_t> outs;  // by block
    std::set<std::uint32_t> latest;               // sent out since a test emptied it
    std::uint64_t waits_for_latest = 0;
    std::uint64_t out_bytes = 0;
    std::uint64_t in_bytes = 0;
    bool full = false;  // the disk
};

struct Rig {
    explicit Rig(std::uint64_t bytes)
        : pool(
              [&] {
                  pool::Budget budget(bytes, "test");
                  budget.add({"activations", bytes, "activation_budget"});
                  return budget;
              }(),
              pool::MachineMemory::read(), {}),
          shelf(pool, pool.use("activations"), mover, "activation_budget") {}

    void lay(std::uint64_t turn, std::uint64_t bytes, std::byte value) {
        const std::span<std::byte> memory = shelf.lay({.turn = turn, .bytes = bytes});
        ASSERT_EQ(memory.size(), bytes);
        ASSERT_FALSE(mover.has(memory)) << "turn " << turn;
        std::fill(memory.begin(), memory.end(), value);
    }
    void take(std::uint64_t turn, std::uint64_t bytes, std::byte value) {
        const std::span<std::byte> memory = shelf.take(turn);
        ASSERT_EQ(memory.size(), bytes);
        ASSERT_TRUE(std::all_of(memory.begin(), memory.end(), [&](std::byte each) { return each == value; }))
            << "turn " << turn;
    }
    std::uint64_t granted() const { return pool.figures(pool.use("activations")).granted_bytes; }

    LateMover mover;
    pool::PinnedPool pool;
    Shelf shelf;
};

std::byte value_of(std::uint64_t turn, std::uint64_t step) {
    return static_cast<std::byte>(turn * 37 + step * 11 + 1);
}

TEST(Shelf, MovesNothingThatFits) {
    Rig rig(10 * granule);
    for (std::uint64_t turn = 8; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    for (std::uint64_t turn = 0; turn < 8; ++turn) {
        rig.take(turn, granule, value_of(turn, 0));
        rig.shelf.drop(turn);
    }
    EXPECT_EQ(rig.mover.out_bytes, 0U);
    EXPECT_EQ(rig.shelf.figures().bytes, 8 * granule);
    EXPECT_EQ(rig.shelf.figures().away_bytes, 0U);
    EXPECT_EQ(rig.granted(), 0U);
}

// Whoever copies what it takes keeps no memory in use, also where it drops it later.
TEST(Shelf, WhatIsPutBackGivesRoomToWhatIsTakenNext) {
    Rig rig(3 * granule);
    for (std::uint64_t turn = 9; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    for (int time = 0; time < 2; ++time)
        for (std::uint64_t turn = 0; turn < 9; ++turn) {
            rig.take(turn, granule, value_of(turn, 0));
            rig.shelf.put_back(turn);
        }
    for (const auto& [block, times] : rig.mover.outs) EXPECT_EQ(times, 1U) << block;
    for (std::uint64_t turn = 0; turn < 9; ++turn) rig.shelf.drop(turn);
    EXPECT_EQ(rig.granted(), 0U);
}

TEST(Shelf, AFullDiskLosesNothingThatIsThere) {
    Rig rig(3 * granule);
    rig.mover.full = true;
    rig.lay(2, granule, value_of(2, 0));
    EXPECT_THROW(static_cast<void>(rig.shelf.lay({.turn = 1, .bytes = 2 * granule})), Error);
    EXPECT_THROW(static_cast<void>(rig.shelf.lay({.turn = 1, .bytes = 3 * granule})), Error);
    EXPECT_FALSE(rig.shelf.has(1));
    CShelf shelf(&rig.shelf);
    EXPECT_THROW(static_cast<void>(shelf.lay(1, 2 * granule)), Error);
    EXPECT_TRUE(shelf.failed()) << "a C session is told to close";
    rig.take(2, granule, value_of(2, 0));
    rig.shelf.drop(2);
    EXPECT_EQ(rig.granted(), 0U);
}

TEST(Shelf, MovesWhatIsTakenLastAndNoMore) {
    Rig rig(10 * granule);
    for (std::uint64_t turn = 30; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    // All but what there is room for, less the two that make it unnecessary to wait.
    EXPECT_LE(rig.mover.out_bytes, (30 - 10 + 2) * granule);
    EXPECT_GE(rig.mover.out_bytes, (30 - 10) * granule);
    for (std::uint64_t turn = 0; turn < 30; ++turn) {
        rig.take(turn, granule, value_of(turn, 0));
        rig.shelf.drop(turn);
    }
    EXPECT_LE(rig.mover.in_bytes, rig.mover.out_bytes);
    EXPECT_EQ(rig.shelf.figures().away_bytes, rig.mover.out_bytes);
    EXPECT_EQ(rig.granted(), 0U);
}

TEST(Shelf, MakesRoomBeforeItIsWaitedFor) {
    Rig rig(6 * granule);
    for (std::uint64_t turn = 30; turn-- > 0;) {
        rig.mover.latest.clear();
        rig.lay(turn, granule, value_of(turn, 0));
    }
    EXPECT_GT(rig.mover.out_bytes, 0U);
    EXPECT_EQ(rig.mover.waits_for_latest, 0U) << "what makes room was to go out while the one before was laid aside";
}

// Two small things go for the long one: those that are taken last.
TEST(Shelf, WhatIsTakenFirstStaysWhereRoomIsMadeAtOnce) {
    Rig rig(4 * granule);
    for (const std::uint64_t turn : {9, 8, 7}) rig.lay(turn, granule, value_of(turn, 0));
    rig.lay(6, 2 * granule, value_of(6, 0));
    for (const std::uint64_t turn : {6, 7, 8, 9}) {
        rig.take(turn, turn == 6 ? 2 * granule : granule, value_of(turn, 0));
        rig.shelf.drop(turn);
    }
    EXPECT_EQ(rig.mover.in_bytes, 2 * granule);
}

TEST(Shelf, WhatWasRefusedIsForgotten) {
    Rig rig(6 * granule);
    EXPECT_THROW(static_cast<void>(rig.shelf.lay({.turn = 9, .bytes = 100 * granule})), Error);
    EXPECT_THROW(static_cast<void>(rig.shelf.lay({.turn = 9, .bytes = ~std::uint64_t{0}})), Error);
    rig.lay(9, granule, value_of(9, 0));
    rig.take(9, granule, value_of(9, 0));
    EXPECT_THROW(static_cast<void>(rig.shelf.lay({.turn = 8, .bytes = 6 * granule})), Error) << "beside what is in use";
    rig.shelf.drop(9);
    for (std::uint64_t turn = 4; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    EXPECT_EQ(rig.mover.out_bytes, 0U) << "room is kept for what was refused";
}

TEST(Shelf, ReadsAheadOfWhatIsTaken) {
    Rig rig(6 * granule);
    for (std::uint64_t turn = 12; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    for (std::uint64_t turn = 0; turn < 12; ++turn) {
        rig.take(turn, granule, value_of(turn, 0));
        rig.shelf.drop(turn);
        if (turn + 4 >= 12) continue;
        EXPECT_GE(rig.mover.in_bytes + 6 * granule, (turn + 4) * granule) << "nothing was read ahead at " << turn;
    }
}

TEST(Shelf, OfManyStepsAllocatesBlocksOnce) {
    Rig rig(4 * granule);
    std::size_t blocks = 0;
    for (std::uint64_t step = 0; step < 5; ++step) {
        for (std::uint64_t turn = 9; turn-- > 0;) rig.lay(turn, granule - 1, value_of(turn, step));
        for (std::uint64_t turn = 0; turn < 9; ++turn) {
            rig.take(turn, granule - 1, value_of(turn, step));
            rig.shelf.drop(turn);
        }
        if (step == 0) blocks = rig.mover.blocks.size();
        EXPECT_EQ(rig.mover.blocks.size(), blocks);
        rig.shelf.clear();
    }
    EXPECT_GT(blocks, 0U);
}

// As of a client that never lays aside what it laid aside before.
TEST(Shelf, WhatIsLaidLaterTakesThePlacesOfWhatWasDropped) {
    Rig rig(4 * granule);
    std::size_t blocks = 0;
    for (std::uint64_t first = 0; first < 200; first += 10) {
        for (std::uint64_t turn = first + 9; turn-- > first;) rig.lay(turn, granule, value_of(turn, 0));
        for (std::uint64_t turn = first; turn < first + 9; ++turn) {
            rig.take(turn, granule, value_of(turn, 0));
            rig.shelf.drop(turn);
        }
        if (first == 0) blocks = rig.mover.blocks.size();
    }
    EXPECT_EQ(rig.mover.blocks.size(), blocks);
}

// Groups of several things, as of the micro-batches of a unit: laid in the order in which they are taken.
TEST(Shelf, HoldsAtRandomSizesBudgetsAndGroups) {
    for (std::uint32_t seed = 0; seed < 600; ++seed) {
        std::mt19937 draw(seed);
        const std::uint64_t groups = 1 + draw() % 12, group = 1 + draw() % 4;
        Rig rig((3 * (1 + draw() % 3) + 3 * (draw() % 20)) * granule);
        for (std::uint64_t step = 0; step < 3; ++step) {
            std::vector<std::uint64_t> bytes(groups * group);
            for (std::uint64_t& each : bytes) each = 1 + draw() % (3 * granule);
            for (std::uint64_t at = groups; at-- > 0;)
                for (std::uint64_t index = 0; index < group; ++index) {
                    const std::uint64_t turn = at * group + index;
                    rig.lay(turn, bytes[turn], value_of(turn, step));
                }
            for (std::uint64_t turn = 0; turn < bytes.size(); ++turn) {
                rig.take(turn, bytes[turn], value_of(turn, step));
                rig.shelf.drop(turn);
                if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
            }
            EXPECT_EQ(rig.granted(), 0U) << "seed " << seed;
            for (const auto& [block, count] : std::exchange(rig.mover.outs, {}))
                EXPECT_EQ(count, 1U) << "seed " << seed << ": what a block has was not changed";
            rig.shelf.clear();
        }
    }
}

// What is said beforehand of things of one size, which leave no holes.
TEST(Shelf, MovesWhatAForecastSays) {
    for (std::uint32_t seed = 0; seed < 600; ++seed) {
        std::mt19937 draw(seed);
        const std::uint64_t groups = 1 + draw() % 12, group = 1 + draw() % 4;
        const std::uint64_t bytes = 1 + draw() % (3 * granule);
        const std::uint64_t budget = (3 + draw() % 40) * granule;
        Rig rig(budget);
        LaidAside laid{.items = {}, .budget_bytes = budget};
        for (std::uint64_t at = groups; at-- > 0;)
            for (std::uint64_t index = 0; index < group; ++index) {
                const std::uint64_t turn = at * group + index;
                rig.lay(turn, bytes, value_of(turn, 0));
                laid.items.push_back(
                    {.turn = turn, .bytes = bytes, .laid_in = groups - 1 - at, .taken_in = {groups + at}});
            }
        for (std::uint64_t turn = 0; turn < groups * group; ++turn) {
            rig.take(turn, bytes, value_of(turn, 0));
            rig.shelf.drop(turn);
        }
        const ShelfBytes said = shelf_bytes(laid, 2 * groups);
        ASSERT_EQ(said.out, rig.mover.out_bytes) << "seed " << seed;
        ASSERT_EQ(said.in, rig.mover.in_bytes) << "seed " << seed;
    }
}

// A mask that every unit is given, beside what it has to itself.
TEST(Shelf, MovesWhatAForecastSaysOfWhatIsTakenAgainAndAgain) {
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
        std::mt19937 draw(seed);
        const std::uint64_t units = 2 + draw() % 12;
        const std::uint64_t budget = (2 + draw() % 14) * granule;
        Rig rig(budget);
        LaidAside laid{.items = {}, .budget_bytes = budget};
        LaidItem mask{.turn = units, .bytes = granule, .laid_in = 0, .taken_in = {}};
        for (std::uint64_t turn = 0; turn < units; ++turn) mask.taken_in.push_back(units + turn);
        laid.items.push_back(mask);
        for (std::uint64_t turn = units; turn-- > 0;)
            laid.items.push_back(
                {.turn = turn, .bytes = granule, .laid_in = units - 1 - turn, .taken_in = {units + turn}});
        for (const LaidItem& item : laid.items) rig.lay(item.turn, granule, value_of(item.turn, 0));
        for (std::uint64_t turn = 0; turn < units; ++turn) {
            rig.take(units, granule, value_of(units, 0));
            rig.shelf.put_back(units);
            rig.take(turn, granule, value_of(turn, 0));
            rig.shelf.drop(turn);
        }
        rig.shelf.drop(units);
        const ShelfBytes said = shelf_bytes(laid, 2 * units);
        ASSERT_EQ(said.out, rig.mover.out_bytes) << "seed " << seed;
        ASSERT_EQ(said.in, rig.mover.in_bytes) << "seed " << seed;
    }
}

TEST(Shelf, IsClearedInTheMiddleOfAStep) {
    Rig rig(4 * granule);
    for (std::uint64_t turn = 9; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 0));
    rig.take(0, granule, value_of(0, 0));
    rig.shelf.drop(0);
    rig.take(1, granule, value_of(1, 0));
    EXPECT_GT(rig.mover.in_bytes, 0U) << "nothing was on its way";
    rig.shelf.clear();
    EXPECT_EQ(rig.granted(), 0U);
    EXPECT_TRUE(rig.mover.moves.empty());
    EXPECT_EQ(rig.shelf.figures().items, 0U);
    for (std::uint64_t turn = 9; turn-- > 0;) rig.lay(turn, granule, value_of(turn, 1));
    rig.take(0, granule, value_of(0, 1));
}

TEST(Shelf, SaysWhatABudgetMustBe) {
    Rig rig(2 * granule);
    rig.lay(1, granule, std::byte{1});
    rig.take(1, granule, std::byte{1});
    try {
        rig.shelf.lay({.turn = 0, .bytes = 2 * granule});
        FAIL() << "laid aside";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::does_not_fit);
        EXPECT_EQ(std::string(error.what()),
                  "8KiB to lay aside find no room in activation_budget beside what is in use: raise it to 12KiB at "
                  "least");
    }
}

}  // namespace
}  // namespace penstock::zero
