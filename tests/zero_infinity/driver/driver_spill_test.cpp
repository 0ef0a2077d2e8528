// Bytes of compute's that leave host memory and come back, beside all else that the driver moves.
#include "aio/words/error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

using store::SpillBlock;

constexpr std::uint32_t odd_bytes = 5 * 4096;  // no tile is so long

class DriverSpillTest : public ::testing::Test {
   protected:
    std::string path() const { return parent_ / "swap"; }

   private:
    const TemporaryDirectory parent_;
};

bool holds(const aio::ScratchMemory& memory, std::uint64_t seed) {
    aio::ScratchMemory wanted(memory.span().size());
    aio::fill_random(wanted.span(), seed);
    return std::equal(wanted.span().begin(), wanted.span().end(), memory.span().begin());
}

TEST_F(DriverSpillTest, WhatWentOutComesBackBesidePassesAndUpdates) {
    DriverRig rig(path(), {});
    std::mt19937_64 random(3);
    struct Held {
        SpillBlock block;
        std::uint64_t seed = 0;
    };
    std::vector<Held> held;
    std::uint64_t moved_out = 0, moved_in = 0;
    for (std::uint64_t step = 1; step <= 3; ++step) {
        std::vector<aio::ScratchMemory> memory;
        for (int i = 0; i < 6; ++i) {
            const std::uint64_t bytes = 4096 * (1 + random() % 30);
            if (step == 1) held.push_back({rig.driver().allocate_spill(bytes)});
            memory.emplace_back(rig.spill().block_bytes(held[i].block));
            held[i].seed = random();
            aio::fill_random(memory.back().span(), held[i].seed);
            rig.driver().spill_out(held[i].block, memory.back().span(), 1);
            moved_out += memory.back().span().size();
        }
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, step - 1), 0U);
        for (const Held& each : held) rig.driver().wait_for_spill(each.block);
        for (int i = 0; i < 6; ++i) {
            std::fill_n(memory[i].data(), memory[i].span().size(), std::byte{0});
            rig.driver().spill_in(held[i].block, memory[i].span());
            moved_in += memory[i].span().size();
        }
        rig.update(step);
        rig.driver().commit({{"step", std::to_string(step)}});
        for (int i = 5; i >= 0; --i) {
            rig.driver().wait_for_spill(held[i].block);
            EXPECT_TRUE(holds(memory[i], held[i].seed)) << i;
        }
    }
    rig.driver().stop();
    EXPECT_EQ(rig.spill().write_bytes(), moved_out);
    EXPECT_EQ(rig.spill().read_bytes(), moved_in);
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_store(3), 0U);
}

// Its memory is changed at once: what comes back is what there was when it was sent.
TEST_F(DriverSpillTest, MemoryIsTheDriversUntilTheWriteHasEndedAndAReadWaitsForIt) {
    DriverRig rig(path(), {});
    const SpillBlock block = rig.driver().allocate_spill(odd_bytes);
    aio::ScratchMemory memory(odd_bytes), back(odd_bytes);
    aio::fill_random(memory.span(), 1);
    rig.faults.slow_write_bytes = odd_bytes;
    rig.driver().spill_out(block, memory.span());
    rig.driver().spill_in(block, back.span());
    std::thread later([&] {
        while (!rig.faults.slow_write_met) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for what would come meanwhile
        rig.faults.slow_write_bytes = 0;
    });
    rig.driver().wait_for_spill(block);
    EXPECT_EQ(rig.faults.slow_write_bytes, 0U) << "it was waited for";
    EXPECT_TRUE(holds(back, 1));
    later.join();
    EXPECT_GE(rig.driver().waits().spills, std::chrono::milliseconds(150));
    EXPECT_EQ(rig.driver().waits().total(), rig.driver().waits().spills);
}

TEST_F(DriverSpillTest, AnErrorOfTheDeviceReachesWhoeverWaits) {
    DriverRig rig(path(), {});
    const SpillBlock block = rig.driver().allocate_spill(odd_bytes);
    aio::ScratchMemory memory(odd_bytes);
    rig.faults.failing_bytes = odd_bytes;
    rig.driver().spill_out(block, memory.span());
    const std::string refusal = refusal_of(ExitCode::storage, [&] { rig.driver().wait_for_spill(block); });
    EXPECT_NE(refusal.find("swap/penstock.spill at offset 0 (20480 bytes) could not be written"), std::string::npos)
        << refusal;
}

TEST_F(DriverSpillTest, AFullDiskIsSaidByWhoAllocates) {
    DriverRig rig(path(), {});
    const std::string refusal =
        refusal_of(ExitCode::does_not_fit, [&] { rig.driver().allocate_spill(std::uint64_t{1} << 50); });
    EXPECT_NE(refusal.find("swap/penstock.spill"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("bytes are missing"), std::string::npos) << refusal;
}

TEST_F(DriverSpillTest, TheTraceShowsEachBlockOfItsUnitAndTheWait) {
    zero::TraceRecorder recorder(10000);
    DriverRig rig(path(), {.trace = &recorder});
    const SpillBlock block = rig.driver().allocate_spill(odd_bytes);
    aio::ScratchMemory memory(odd_bytes);
    recorder.begin_step(1);
    rig.faults.slow_write_bytes = odd_bytes;
    rig.driver().spill_out(block, memory.span(), 4);
    std::thread later([&] {
        while (!rig.faults.slow_write_met) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        rig.faults.slow_write_bytes = 0;
    });
    rig.driver().wait_for_spill(block);
    later.join();
    rig.driver().spill_in(block, memory.span(), 4);
    rig.driver().wait_for_spill(block);
    recorder.end_steps();
    rig.driver().stop();
    for (const zero::TraceLane lane : {zero::TraceLane::spill_out, zero::TraceLane::spill_in}) {
        const auto spans = recorder.spans(zero::TraceThread::driver);
        const auto found =
            std::find_if(spans.begin(), spans.end(), [&](const zero::TraceSpan& span) { return span.lane == lane; });
        ASSERT_NE(found, spans.end());
        EXPECT_EQ(found->bytes, odd_bytes);
        EXPECT_EQ(found->unit, 4U);
    }
    const auto waits = recorder.spans(zero::TraceThread::compute);
    EXPECT_TRUE(std::any_of(waits.begin(), waits.end(),
                            [](const zero::TraceSpan& span) { return span.lane == zero::TraceLane::wait_spill; }));
}

// What is under way when the driver ends is waited for; the rest never begins.
TEST_F(DriverSpillTest, TheDriverMayEndWithErrandsUnderWay) {
    aio::ScratchMemory memory(odd_bytes);
    DriverRig rig(path(), {});
    const SpillBlock block = rig.driver().allocate_spill(odd_bytes);
    for (int i = 0; i < 10; ++i) {
        rig.driver().spill_out(block, memory.span());
        rig.driver().spill_in(block, memory.span());
    }
    rig.end_driver();
    EXPECT_LE(rig.spill().write_bytes(), 10 * odd_bytes);
}

TEST_F(DriverSpillTest, ADiskThatDoesNotAnswerIsReportedAtTheDeadline) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            auto* rig = new DriverRig(path(), {.deadline = std::chrono::seconds(1)});
            static const aio::ScratchMemory memory(odd_bytes);
            const SpillBlock block = rig->driver().allocate_spill(odd_bytes);
            rig->faults.stuck = true;
            rig->driver().spill_out(block, memory.span());
            try {
                rig->driver().wait_for_spill(block);
            } catch (const Error& error) {
                std::fprintf(stderr, "code %d: %s\n", static_cast<int>(error.code()), error.what());
            }
            rig->end_driver();
            std::fflush(stderr);
            ::_exit(7);
        },
        ::testing::ExitedWithCode(7), "code 4: write of .*/penstock.spill at offset .* the device is stuck");
}

}  // namespace
}  // namespace penstock::testing
