// Fetches to a device with memory of its own, through a passage with room for little more than one unit: who has it,
// when the driver is late with what compute has said.
#include "zero_infinity/driver/weight_streamer.h"

#include "pinned_pool/region.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"
#include "zero_infinity/driver/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

namespace penstock::testing {
namespace {

using zero::Fetch;
using zero::FetchUse;

// Of the rig's units: the large one leaves room in the passage for the tiny one, but not for the small one.
constexpr std::uint32_t small = 1, large = 4, tiny = 5;

// The streamer alone, over the store and on the thread of a rig whose driver has ended. The test is the driver, which
// takes one order at a time, and compute.
class WeightStreamerTest : public ::testing::Test {
   protected:
    WeightStreamerTest() { rig_.end_driver(); }
    // Waits for what is under way, errors or not: its memory goes.
    ~WeightStreamerTest() override { run(); }

    const zero::ModelLayout& layout() const { return rig_.layout(); }
    std::uint64_t place_bytes() const { return layout().gathered(large).bytes; }
    std::uint64_t passage_bytes() const { return layout().shard(large).bytes + layout().shard(tiny).bytes; }
    Fetch fetch_of(std::uint32_t unit, std::uint64_t number, bool awaited) const {
        return {number, unit, unit == small ? 0 : place_bytes(), layout().gathered(unit).bytes, awaited};
    }
    // Until nothing moves any more.
    void run() {
        for (streamer.pump(); !streamer.quiet(); streamer.pump())
            static_cast<void>(rig_.io().advance(std::chrono::milliseconds(1)));
    }
    // The unit was read once, because compute waited for it, and is on the device.
    void await_at_once(std::uint32_t unit, std::uint64_t number) {
        streamer.fetch(fetch_of(unit, number, true), FetchUse::compute, {});
        streamer.await(unit);
        run();
        ASSERT_TRUE(mailbox.has({unit, number}));
    }
    // What compute makes of the unit's weights where it was given them.
    std::span<std::byte> taken(std::uint32_t unit, std::uint64_t number) {
        return {mailbox.wait_to_update({unit, number}), layout().memory_bytes(layout().objects(unit).weights)};
    }
    // It comes when compute has taken the large unit, and before the order that says so.
    void expect_waits_for_compute(const Fetch& fetch) {
        streamer.fetch(fetch_of(large, 9, false), FetchUse::update, {});
        run();
        const std::span<std::byte> weights = taken(large, 9);
        std::fill(weights.begin(), weights.end(), std::byte{0x5a});
        streamer.fetch(fetch, FetchUse::compute, {});
        if (fetch.awaited) streamer.await(fetch.unit);
        run();
        ASSERT_EQ(std::count(weights.begin(), weights.end(), std::byte{0x5a}), weights.size());
        EXPECT_FALSE(mailbox.has({fetch.unit, fetch.number}));
        streamer.updating(large);
        streamer.updated(large);
        streamer.written(large);
        run();
        EXPECT_TRUE(mailbox.has({fetch.unit, fetch.number}));
    }
    std::uint64_t read_bytes() { return rig_.io().statistics().total_read_bytes(); }

   private:
    const TemporaryDirectory parent_;
    DriverRig rig_{parent_ / "swap", {}};
    std::unique_ptr<zero::Device> device_ =
        zero::make_device({.kind = zero::DeviceKind::emulated, .budget_bytes = 1 << 20});
    pool::PinnedPool pool_{pool::Budget(1 << 20, "test"), pool::MachineMemory::read(), {}};
    pool::Region passage_{passage_bytes(), 1, pool::Registration::none};
    zero::Residents residents_{rig_.io(), rig_.store(), pool_, layout(), {}};
    const std::unique_ptr<zero::Bringing> bringing_ = zero::make_bringing(layout(), *device_);
    zero::ApartMemory apart_memory_{pool_, *device_};
    zero::GatheredResidents gathered_{layout(), residents_, *bringing_, *device_, apart_memory_, pool_, nullptr};
    zero::WeightMemory memory_{layout(),
                               residents_,
                               {passage_.data(), passage_bytes()},
                               zero::WeightMemory::Apart{&gathered_, apart_memory_.take("window", 2 * place_bytes())}};

   protected:
    zero::Mailbox mailbox{layout().unit_count(), layout().tiles().size()};
    std::uint64_t given_up = 0;
    zero::WeightStreamer streamer{
        {.store = &rig_.store(),
         .device = device_.get(),
         .bringing = bringing_.get(),
         .layout = &layout(),
         .memory = &memory_,
         .arrived =
             [this](const Fetch& fetch, zero::Ticket there) {
                 mailbox.arrived({fetch.unit, fetch.number, there});
             },
         .offer = [this](const Fetch& fetch, std::byte* weights) { mailbox.offer(fetch.unit, fetch.number, weights); },
         .withdraw =
             [this](const Fetch& fetch) {
                 const bool had_it = mailbox.withdraw(fetch.unit, fetch.number);
                 if (had_it) ++given_up;
                 return had_it;
             }}};
};

// What compute waited for once is fetched again, ahead of compute, when that has already taken what was offered to it:
// the order that says so comes behind the fetch.
TEST_F(WeightStreamerTest, APrefetchIsNotGivenThePlaceThatComputeHasTaken) {
    await_at_once(small, 1);
    expect_waits_for_compute(fetch_of(small, 2, false));
}

// Nor what compute stands still for.
TEST_F(WeightStreamerTest, AnAwaitedFetchIsNotGivenThePlaceThatComputeHasTaken) {
    expect_waits_for_compute(fetch_of(small, 2, true));
}

// Nor whom the plan has given it to.
TEST_F(WeightStreamerTest, AFetchToThePlaceThatComputeHasTakenWaits) {
    ASSERT_EQ(fetch_of(tiny, 2, true).offset_bytes, fetch_of(large, 9, false).offset_bytes);
    expect_waits_for_compute(fetch_of(tiny, 2, true));
}

// What compute has yet to take, a prefetch does not get either: it would have to be read again.
TEST_F(WeightStreamerTest, APrefetchLeavesWhatIsOfferedWhereItIs) {
    await_at_once(small, 1);
    streamer.fetch(fetch_of(large, 2, false), FetchUse::update, {});
    run();
    const std::uint64_t before = read_bytes();
    streamer.fetch(fetch_of(small, 3, false), FetchUse::compute, {});
    run();
    EXPECT_EQ(given_up, 0U);
    EXPECT_EQ(read_bytes(), before);
}

// Compute stands still for this one: what it has not taken makes room, and comes again.
TEST_F(WeightStreamerTest, WhatIsOfferedIsGivenUpForWhatComputeWaitsFor) {
    streamer.fetch(fetch_of(large, 1, false), FetchUse::update, {});
    run();
    await_at_once(small, 2);
    EXPECT_EQ(given_up, 1U);
    EXPECT_NE(taken(large, 1).data(), nullptr);
}

// The order in which the device and the store come to their ends is theirs.
TEST_F(WeightStreamerTest, WhatWasUpdatedIsKeptUntilItIsWrittenAndCopied) {
    for (const bool written_first : {false, true}) {
        SCOPED_TRACE(written_first);
        const std::uint64_t number = written_first ? 3 : 1;
        streamer.fetch(fetch_of(large, number, false), FetchUse::both, {});
        run();
        taken(large, number);
        streamer.updating(large);
        if (written_first) streamer.written(large);
        streamer.updated(large);
        run();
        EXPECT_TRUE(mailbox.has({large, number}));
        streamer.fetch(fetch_of(small, number + 1, false), FetchUse::compute, {});
        run();
        EXPECT_EQ(mailbox.has({small, number + 1}), written_first);
        if (!written_first) streamer.written(large);
        run();
        EXPECT_TRUE(mailbox.has({small, number + 1}));
    }
}

TEST_F(WeightStreamerTest, AStateThatCannotFollowIsNamed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    streamer.fetch(fetch_of(large, 1, false), FetchUse::update, {});
    run();
    EXPECT_DEATH(streamer.updated(large), "the fetch of unit 4 goes from 'offered' to 'written behind'");
    EXPECT_DEATH(streamer.written(large), "unit 4 was written while its fetch is offered");
    streamer.updating(large);
    EXPECT_DEATH(streamer.updating(large), "the fetch of unit 4 goes from 'updating' to 'updating'");
    streamer.updated(large);
    streamer.written(large);
    EXPECT_DEATH(streamer.updating(large), "unit 4 has no fetch under way");
}

}  // namespace
}  // namespace penstock::testing
