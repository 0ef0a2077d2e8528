// Linked with a device of its own instead of registration_no_cuda.cpp or registration_cuda.cpp.
#include "pinned_pool/registration.h"

#include "pinned_pool/pinned_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace penstock::pool {
namespace {

struct FakeDevice {
    std::map<void*, std::size_t> known;
    std::vector<std::size_t> lengths;
    std::size_t refuse_at = ~std::size_t{0};  // which registration
};
FakeDevice device;

}  // namespace

std::string register_with_device(void* data, std::size_t bytes) {
    if (device.lengths.size() == device.refuse_at) return "the fake device has enough";
    device.lengths.push_back(bytes);
    EXPECT_TRUE(device.known.emplace(data, bytes).second);
    return {};
}

void unregister_from_device(void* data) noexcept {
    EXPECT_EQ(device.known.erase(data), 1U);
}

namespace {

MachineMemory roomy() {
    return {1ULL << 40, "free RAM"};
}

Budget one_use() {
    Budget budget(64 << 20, "memory.host_budget");
    budget.add({"staging", 1 << 20, "memory.staging"});
    return budget;
}

class RegistrationTest : public ::testing::Test {
   protected:
    RegistrationTest() { device = {}; }
    std::vector<std::byte> memory_ = std::vector<std::byte>(10000);
};

TEST_F(RegistrationTest, CoversTheRangeInPiecesAndGivesAllOfThemFree) {
    {
        const DeviceRegistration registration(memory_.data(), 10000, 4096);
        EXPECT_TRUE(registration.registered());
        EXPECT_EQ(registration.note(), "");
        EXPECT_EQ(device.lengths, (std::vector<std::size_t>{4096, 4096, 1808}));
        EXPECT_EQ(device.known.size(), 3U);
        EXPECT_TRUE(device.known.count(memory_.data() + 8192));
    }
    EXPECT_TRUE(device.known.empty());
}

TEST_F(RegistrationTest, IsAllOrNone) {
    device.refuse_at = 2;
    const DeviceRegistration registration(memory_.data(), 10000, 4096);
    EXPECT_FALSE(registration.registered());
    EXPECT_EQ(registration.note(), "the fake device has enough");
    EXPECT_TRUE(device.known.empty());
}

TEST_F(RegistrationTest, MovesAndIsGivenFreeOnce) {
    DeviceRegistration first(memory_.data(), 10000, 4096);
    DeviceRegistration second = std::move(first);
    EXPECT_FALSE(first.registered());  // NOLINT: the moved-from state is the subject
    EXPECT_TRUE(second.registered());
    second = DeviceRegistration();
    EXPECT_TRUE(device.known.empty());
}

TEST_F(RegistrationTest, HappensForAPoolThatAsksForIt) {
    {
        const PinnedPool ordinary(one_use(), roomy(), {});
        EXPECT_TRUE(device.known.empty());
    }
    {
        const PinnedPool pinned(one_use(), roomy(), {.registration = Registration::device});
        EXPECT_EQ(device.lengths, (std::vector<std::size_t>{huge_page_bytes}));  // the last page is whole
    }
    EXPECT_TRUE(device.known.empty());
}

TEST_F(RegistrationTest, IsOfThePoolsPieces) {
    Budget budget(64 << 20, "memory.host_budget");
    budget.add({"staging", 5 << 20, ""});
    PinnedPool pool(budget, roomy(), {.registration = Registration::device, .piece_bytes = huge_page_bytes});
    EXPECT_TRUE(pool.registered());
    EXPECT_EQ(device.lengths, (std::vector<std::size_t>{2 << 20, 2 << 20, 2 << 20}));
    // Each piece begins at a seam.
    const Lease lease = pool.acquire(pool.use("staging"), 5 << 20);
    for (std::size_t at = 0; at < lease.bytes(); at += pool.seam_after(lease.data() + at))
        EXPECT_EQ(device.known.count(lease.data() + at), 1U) << at;
}

TEST_F(RegistrationTest, StaysForForsakenMemoryWhenThePoolEnds) {
    {
        PinnedPool pool(one_use(), roomy(), {.registration = Registration::device});
        pool.acquire(pool.use("staging"), 1).orphan();
    }
    EXPECT_EQ(device.known.size(), 1U);
}

TEST_F(RegistrationTest, LeavesAPoolUsableAndSaysSoWhenRefused) {
    device.refuse_at = 0;
    PinnedPool pool(one_use(), roomy(), {.registration = Registration::device});
    EXPECT_FALSE(pool.registered());
    ASSERT_EQ(pool.notes().size(), 1U);
    EXPECT_NE(pool.notes()[0].find("the fake device has enough"), std::string::npos);
    EXPECT_EQ(pool.notes()[0].find('\n'), std::string::npos);
    EXPECT_TRUE(pool.try_acquire(pool.use("staging"), 1 << 20).has_value());
}

}  // namespace
}  // namespace penstock::pool
