// What is sent for with the spill goes in the order of each block, and what compute waits for goes first.
#include "zero_infinity/driver/spill_lane.h"

#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <utility>

namespace penstock::testing {
namespace {

using store::SpillBlock;
using zero::SpillErrand;

class EioBackend final : public ForwardingBackend {
   public:
    EioBackend(std::unique_ptr<aio::Backend> inner, const bool& fails)
        : ForwardingBackend(std::move(inner)), fails_(fails) {}
    bool submit(aio::Attempt& attempt) override {
        if (!fails_) return inner_->submit(attempt);
        attempt.result = -EIO;
        attempt.next = std::exchange(failed_, &attempt);
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        return failed_ != nullptr ? std::exchange(failed_, nullptr) : inner_->reap(timeout);
    }
    const char* name() const noexcept override { return "eio"; }

   private:
    const bool& fails_;
    aio::Attempt* failed_ = nullptr;
};

class SpillLaneTest : public ::testing::Test, protected zero::SpillListener {
   protected:
    void spill_ended(SpillBlock block) noexcept override { ended.push_back(block.index); }

    void send(SpillBlock block, SpillErrand::Way way, const aio::ScratchMemory& memory) {
        const bool out = way == SpillErrand::Way::out;
        lane.send(block, {.way = way,
                          .memory = memory.span(),
                          .urgency = out ? aio::Urgency::write_back : aio::Urgency::prefetch,
                          .listener = this});
    }
    void run() {
        while (!lane.idle()) io.wait(std::chrono::seconds(1));
    }
    static bool same(const aio::ScratchMemory& one, const aio::ScratchMemory& other) {
        return std::equal(one.span().begin(), one.span().end(), other.span().begin());
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch / "store", "test"};
    bool fails = false;
    aio::Io io{std::make_unique<EioBackend>(aio::make_thread_backend({.depth = 16, .threads_per_device = 2}), fails),
               {}};
    store::Spill spill{io, {&directory}, {}};
    zero::SpillLane lane{&spill, nullptr};
    std::vector<std::uint32_t> ended;
};

TEST_F(SpillLaneTest, EachBlockFollowsItsOrder) {
    const SpillBlock block = spill.allocate(1 << 20);
    aio::ScratchMemory first(1 << 20), second(1 << 20), found_first(1 << 20), found_second(1 << 20);
    aio::fill_random(first.span(), 1);
    aio::fill_random(second.span(), 2);
    send(block, SpillErrand::Way::out, first);
    send(block, SpillErrand::Way::in, found_first);
    send(block, SpillErrand::Way::out, second);
    send(block, SpillErrand::Way::in, found_second);
    run();
    EXPECT_TRUE(same(first, found_first));
    EXPECT_TRUE(same(second, found_second));
    EXPECT_EQ(ended, (std::vector<std::uint32_t>{0, 0, 0, 0}));
}

TEST_F(SpillLaneTest, WhatComputeWaitsForOvertakesWhatIsReadAhead) {
    constexpr std::uint64_t bytes = 4 << 20;  // more than two are not in flight at once
    std::vector<SpillBlock> blocks;
    std::vector<aio::ScratchMemory> memory;
    for (int i = 0; i < 5; ++i) {
        blocks.push_back(spill.allocate(bytes));
        memory.emplace_back(bytes);
        send(blocks.back(), SpillErrand::Way::out, memory.back());
    }
    run();
    const auto& demand = io.statistics().lane(aio::IoKind::read, aio::Urgency::demand);
    for (int i = 0; i < 5; ++i) send(blocks[i], SpillErrand::Way::in, memory[i]);
    send(blocks[1], SpillErrand::Way::out, memory[1]);
    send(blocks[1], SpillErrand::Way::in, memory[1]);
    EXPECT_EQ(demand.bytes, 0U);
    lane.await(blocks[4]);
    run();
    EXPECT_EQ(demand.bytes, bytes);
    ended.clear();
    for (int i = 0; i < 5; ++i) send(blocks[i], SpillErrand::Way::in, memory[i]);
    run();
    EXPECT_EQ(demand.bytes, bytes) << "it stays awaited for ever";
    send(blocks[1], SpillErrand::Way::out, memory[1]);
    send(blocks[1], SpillErrand::Way::in, memory[1]);
    lane.await(blocks[1]);
    run();
    EXPECT_EQ(demand.bytes, 2 * bytes) << "what waits for its turn is awaited, too";
}

TEST_F(SpillLaneTest, NothingBeginsBehindAnError) {
    const SpillBlock block = spill.allocate(4096);
    aio::ScratchMemory memory(4096);
    fails = true;
    send(block, SpillErrand::Way::out, memory);
    send(block, SpillErrand::Way::in, memory);
    run();
    ASSERT_TRUE(lane.error());
    EXPECT_NE(lane.error()->message.find("penstock.spill"), std::string::npos) << lane.error()->message;
    fails = false;
    send(spill.allocate(4096), SpillErrand::Way::out, memory);
    EXPECT_TRUE(lane.idle());
    EXPECT_TRUE(ended.empty());
}

TEST_F(SpillLaneTest, AStoppedLaneEndsWhatIsUnderWayOnly) {
    const SpillBlock block = spill.allocate(4096);
    aio::ScratchMemory memory(4096);
    send(block, SpillErrand::Way::out, memory);
    send(block, SpillErrand::Way::in, memory);
    lane.stop();
    run();
    EXPECT_EQ(spill.write_bytes(), 4096U);
    EXPECT_EQ(spill.read_bytes(), 0U);
}

}  // namespace
}  // namespace penstock::testing
