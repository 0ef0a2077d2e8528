// Linked with a device of its own instead of registration_no_cuda.cpp or registration_cuda.cpp.
#include "pinned_pool/registration.h"

#include "pinned_pool/pinned_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace penstock {
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
    Budget budget(1 << 20, "memory.host_budget");
    budget.add({"staging", 1 << 20, ""});
    const MachineMemory machine{1ULL << 40, "free RAM"};
    {
        const PinnedPool ordinary(budget, machine, {});
        EXPECT_TRUE(device.known.empty());
    }
    {
        const PinnedPool pinned(budget, machine, {.registration = Registration::device});
        EXPECT_EQ(device.lengths, (std::vector<std::size_t>{1 << 20}));
    }
    EXPECT_TRUE(device.known.empty());
}

TEST_F(RegistrationTest, LeavesAPoolUsableAndSaysSoWhenRefused) {
    device.refuse_at = 0;
    Budget budget(1 << 20, "memory.host_budget");
    budget.add({"staging", 1 << 20, ""});
    PinnedPool pool(budget, {1ULL << 40, "free RAM"}, {.registration = Registration::device});
    ASSERT_EQ(pool.notes().size(), 1U);
    EXPECT_NE(pool.notes()[0].find("the fake device has enough"), std::string::npos);
    EXPECT_TRUE(pool.try_acquire(pool.use("staging"), 1 << 20).has_value());
}

}  // namespace
}  // namespace penstock
