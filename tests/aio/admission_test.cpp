#include "aio/admission.h"
#include "aio/words/io_error.h"

#include <gtest/gtest.h>

namespace penstock::aio {
namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr auto demand = static_cast<std::size_t>(Urgency::demand);
constexpr auto prefetch = static_cast<std::size_t>(Urgency::prefetch);
constexpr auto write_back = static_cast<std::size_t>(Urgency::write_back);
constexpr auto scrub = static_cast<std::size_t>(Urgency::scrub);

// Each test changes what its rule is about; without that the answer is yes.
class AdmissionTest : public ::testing::Test {
   protected:
    AdmissionTest() { load.free_places = 60; }
    Admission read(Urgency urgency, std::uint64_t bytes = mib) const {
        return admit(limits, load, IoKind::read, urgency, bytes);
    }
    Admission write(Urgency urgency, std::uint64_t bytes = mib) const {
        return admit(limits, load, IoKind::write, urgency, bytes);
    }
    InFlightLimits limits;
    DeviceLoad load;
};

TEST_F(AdmissionTest, LetsEveryClassOfAnIdleDeviceThrough) {
    for (const Urgency urgency : {Urgency::demand, Urgency::prefetch, Urgency::scrub})
        EXPECT_EQ(read(urgency), Admission::yes);
    for (const Urgency urgency : {Urgency::demand, Urgency::write_back, Urgency::scrub})
        EXPECT_EQ(write(urgency), Admission::yes);
}

TEST_F(AdmissionTest, KeepsTheLastPlacesForDemandReads) {
    load.read_bytes[demand] = mib;
    load.free_places = limits.demand_places + 1;
    EXPECT_EQ(write(Urgency::demand), Admission::yes);
    load.free_places = limits.demand_places;
    EXPECT_EQ(write(Urgency::demand), Admission::full);
    EXPECT_EQ(write(Urgency::write_back), Admission::full);
    EXPECT_EQ(read(Urgency::prefetch), Admission::full);
    EXPECT_EQ(read(Urgency::scrub), Admission::full);
    EXPECT_EQ(read(Urgency::demand), Admission::yes);
    load.free_places = 0;
    EXPECT_EQ(read(Urgency::demand), Admission::full);
}

// Another device's demand reads may hold those places for long: this device must not wait for them.
TEST_F(AdmissionTest, GivesAnIdleDeviceThePlaceThatIsLeft) {
    load.free_places = 1;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    EXPECT_EQ(read(Urgency::scrub), Admission::yes);
    load.free_places = 0;
    EXPECT_EQ(write(Urgency::write_back), Admission::full);
}

TEST_F(AdmissionTest, LetsNoClassPassAMoreUrgentOneOfItsDirection) {
    load.read_waits[demand] = true;
    EXPECT_EQ(read(Urgency::prefetch), Admission::full);
    EXPECT_EQ(read(Urgency::demand), Admission::yes);
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    load.read_waits = {};
    load.write_waits[demand] = true;
    EXPECT_EQ(write(Urgency::write_back), Admission::full);
    EXPECT_EQ(read(Urgency::prefetch), Admission::yes);
    load.write_waits = {};
    load.read_waits[prefetch] = true;
    EXPECT_EQ(read(Urgency::demand), Admission::yes);
}

TEST_F(AdmissionTest, LetsScrubWaitForEverythingElseInBothDirections) {
    load.write_waits[write_back] = true;
    EXPECT_EQ(read(Urgency::scrub), Admission::full);
    load.write_waits = {};
    load.read_waits[prefetch] = true;
    EXPECT_EQ(write(Urgency::scrub), Admission::full);
    load.read_waits = {};
    load.read_waits[scrub] = load.write_waits[scrub] = true;
    EXPECT_EQ(read(Urgency::scrub), Admission::yes);
    EXPECT_EQ(write(Urgency::scrub), Admission::yes);
}

TEST_F(AdmissionTest, LetsOneThroughWhateverItsLengthWhenNothingOfTheDirectionIsInFlight) {
    EXPECT_EQ(read(Urgency::prefetch, 100 * mib), Admission::yes);
    load.demand_recent = true;
    EXPECT_EQ(write(Urgency::write_back, 100 * mib), Admission::yes);
    load.read_bytes[scrub] = mib;
    EXPECT_EQ(read(Urgency::prefetch, 100 * mib), Admission::full);
    EXPECT_EQ(write(Urgency::scrub), Admission::yes);
}

TEST_F(AdmissionTest, ThrottlesWriteBackWhileADemandReadWaitsOrIsRecent) {
    load.write_bytes[write_back] = mib;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    load.demand_recent = true;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    load.write_bytes[write_back] = limits.throttled_bytes;
    EXPECT_EQ(write(Urgency::write_back), Admission::throttled);
    load.demand_recent = false;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    load.read_waits[demand] = true;
    EXPECT_EQ(write(Urgency::write_back), Admission::throttled);
    EXPECT_EQ(write(Urgency::demand), Admission::yes);
    load.read_waits = {};
    load.read_waits[prefetch] = true;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    // Of more urgent writes nothing counts towards the throttle.
    load.write_bytes = {};
    load.write_bytes[demand] = 4 * mib;
    load.demand_recent = true;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
}

TEST_F(AdmissionTest, BoundsEachClassAndEachDirection) {
    load.read_bytes[prefetch] = 5 * mib;
    EXPECT_EQ(read(Urgency::prefetch), Admission::yes);
    EXPECT_EQ(read(Urgency::prefetch, mib + 1), Admission::full);
    EXPECT_EQ(read(Urgency::demand, 3 * mib), Admission::yes);
    EXPECT_EQ(read(Urgency::demand, 3 * mib + 1), Admission::full);
    load.read_bytes[demand] = 3 * mib;
    EXPECT_EQ(read(Urgency::prefetch, 1), Admission::full);
    EXPECT_EQ(read(Urgency::demand, 1), Admission::full);

    load.write_bytes[write_back] = 7 * mib;
    EXPECT_EQ(write(Urgency::write_back), Admission::yes);
    EXPECT_EQ(write(Urgency::write_back, mib + 1), Admission::full);
    EXPECT_EQ(write(Urgency::demand, 2 * mib), Admission::yes);
    EXPECT_EQ(write(Urgency::demand, 2 * mib + 1), Admission::full);
}

TEST_F(AdmissionTest, BoundsScrubOverBothDirections) {
    load.read_bytes[demand] = mib;
    load.write_bytes[demand] = mib;
    EXPECT_EQ(write(Urgency::scrub), Admission::yes);
    load.read_bytes[scrub] = 1;
    EXPECT_EQ(write(Urgency::scrub), Admission::full);
    EXPECT_EQ(write(Urgency::scrub, mib - 1), Admission::yes);
}

TEST_F(AdmissionTest, ChecksItsLimits) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    check_limits(limits, mib);
    EXPECT_DEATH(check_limits(limits, 2 * mib), "a bound of 1048576 bytes in flight is below a chunk of 2097152");
    limits.prefetch_bytes = 8 * mib;
    EXPECT_DEATH(check_limits(limits, mib), "prefetch 8388608 and scrub 1048576 are above all reads 8388608");
    limits = {};
    limits.throttled_bytes = 9 * mib;
    EXPECT_DEATH(check_limits(limits, mib), "do not ascend");
    limits = {};
    limits.write_back_bytes = 10 * mib;
    EXPECT_DEATH(check_limits(limits, mib), "do not ascend");
    limits = {};
    limits.calm = std::chrono::nanoseconds(-1);
    EXPECT_DEATH(check_limits(limits, mib), "calm of -1 ns");
    EXPECT_DEATH(admit(limits, load, IoKind::flush, Urgency::demand, 0), "a flush is not bounded");
}

TEST_F(AdmissionTest, PartsOfLimitsAreLimitsAndTogetherNoMore) {
    for (const std::uint32_t chunk : {4096U, 65536U, static_cast<std::uint32_t>(mib)})
        for (const std::uint32_t sharing : {1U, 2U, 3U, 8U, 64U, 1000U}) {
            const InFlightLimits own = part_of(limits, sharing, chunk);
            check_limits(own, chunk);
            const auto holds = [&](std::uint64_t part, std::uint64_t whole, std::uint64_t least) {
                EXPECT_TRUE(part == whole / sharing || (part == least && whole / sharing < least))
                    << part << " of " << whole << " for " << sharing << ", chunks of " << chunk;
            };
            holds(own.read_bytes, limits.read_bytes, 2 * std::uint64_t{chunk});
            holds(own.write_bytes, limits.write_bytes, chunk);
            holds(own.write_back_bytes, limits.write_back_bytes, chunk);
            holds(own.scrub_bytes, limits.scrub_bytes, chunk);
        }
    EXPECT_EQ(part_of(limits, 1, 4096).prefetch_bytes, limits.prefetch_bytes);
    EXPECT_EQ(part_of(limits, 2, 4096).throttled_bytes, limits.throttled_bytes / 2);
}

}  // namespace
}  // namespace penstock::aio
