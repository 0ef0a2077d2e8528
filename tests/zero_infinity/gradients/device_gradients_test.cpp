#include "zero_infinity/gradients/device_gradients.h"

#include "tests/refusal.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

namespace penstock::testing {
namespace {

using zero::DeviceGradients;

constexpr std::array<std::uint64_t, 3> unit_bytes{8192, 4096, 8192};

class DeviceGradientsTest : public ::testing::Test {
   protected:
    DeviceGradients windows(std::uint64_t bytes) {
        return DeviceGradients(*device_, bytes, unit_bytes, std::chrono::seconds(60));
    }
    std::unique_ptr<zero::Device> device_ = zero::make_device(
        {.kind = zero::DeviceKind::emulated, .budget_bytes = 1 << 20, .copy_delay = std::chrono::microseconds(500)});
    std::array<std::array<std::byte, 8192>, 3> host_{};
};
using DeviceGradientsDeathTest = DeviceGradientsTest;

TEST_F(DeviceGradientsTest, TwoWindowsTakeTurnsAndKeepWhatWasSummed) {
    DeviceGradients device = windows(2 * 8192);
    EXPECT_FALSE(device.first() || device.in_the_way(0));
    const std::byte* last = nullptr;
    for (std::uint32_t unit = 0; unit < 3; ++unit) {
        const auto other = device.in_the_way(unit);
        ASSERT_EQ(other.has_value(), unit > 0);
        if (other) {
            EXPECT_EQ(*other, unit - 1);
            device.copy_out(*other, host_[*other].data());
        }
        device.enter(unit);
        EXPECT_EQ(device.first(), unit);
        EXPECT_FALSE(device.in_the_way(unit)) << "it stays where it is";
        EXPECT_NE(std::exchange(last, device.memory(unit)), device.memory(unit)) << "from where a copy goes out";
        std::memset(device.memory(unit), static_cast<int>(unit) + 1, unit_bytes[unit]);
    }
    device.copy_out(2, host_[2].data());
    EXPECT_FALSE(device.first() || device.has(2));
    device.wait();
    for (std::uint32_t unit = 0; unit < 3; ++unit)
        EXPECT_EQ(host_[unit][unit_bytes[unit] - 1], std::byte(unit + 1)) << unit;
    device.enter(1);
    device.wait_before_copy_in();
    device.copy_in(1, host_[1].data());
    EXPECT_EQ(device.memory(1)[4095], std::byte{2});
    EXPECT_TRUE(device.end());
}

TEST_F(DeviceGradientsTest, WhereThereIsRoomForAllEachStaysInItsOwn) {
    DeviceGradients device = windows(8192 + 4096 + 8192);
    for (std::uint32_t unit = 0; unit < 3; ++unit) {
        EXPECT_FALSE(device.in_the_way(unit));
        device.enter(unit);
        std::memset(device.memory(unit), static_cast<int>(unit) + 1, unit_bytes[unit]);
    }
    for (std::uint32_t unit = 0; unit < 3; ++unit) EXPECT_EQ(device.memory(unit)[0], std::byte(unit + 1));
    EXPECT_EQ(device.first(), 0U);
}

// The copy has 0xff in its place until it has ended, so that a second one would show.
TEST_F(DeviceGradientsTest, WhatWasCopiedAheadIsCopiedAgainOnlyWhereMoreHasCome) {
    for (const bool more : {false, true}) {
        DeviceGradients device = windows(8192 + 4096 + 8192);
        device.enter(0);
        std::memset(device.memory(0), 7, unit_bytes[0]);
        device.copy_ahead(0, host_[0].data());
        EXPECT_TRUE(device.has(0)) << "it keeps its window";
        if (more) {
            device.write(0);
            EXPECT_EQ(host_[0][8191], std::byte{7}) << "compute writes behind the copy";
            std::memset(device.memory(0), 9, unit_bytes[0]);
        }
        device.wait();
        const zero::Ticket ahead = device.newest_out();
        const zero::Ticket out = device.copy_out(0, host_[0].data());
        EXPECT_EQ(out.number, ahead.number + (more ? 1 : 0));
        EXPECT_FALSE(device.has(0));
        device.wait();
        EXPECT_EQ(host_[0][8191], more ? std::byte{9} : std::byte{7});
        device_ = zero::make_device({.kind = zero::DeviceKind::emulated,
                                     .budget_bytes = 1 << 20,
                                     .copy_delay = std::chrono::microseconds(500)});
    }
}

TEST_F(DeviceGradientsTest, ACopyThatDoesNotEndIsAnErrorAndTheEndSaysSo) {
    device_ = zero::make_device(
        {.kind = zero::DeviceKind::emulated, .budget_bytes = 1 << 20, .copy_delay = std::chrono::milliseconds(300)});
    DeviceGradients device(*device_, 2 * 8192, unit_bytes, std::chrono::seconds(0));
    EXPECT_TRUE(device.end());
    device.enter(0);
    const zero::Ticket out = device.copy_out(0, host_[0].data());
    EXPECT_EQ(refusal_of(ExitCode::internal, [&] { device.wait(); }),
              "gradients are on their way between device 'emulated' and host memory for more than 0 s: the device is "
              "stuck; the last committed step is safe");
    EXPECT_FALSE(device.end());
    EXPECT_TRUE(device_->wait(out, std::chrono::seconds(60)));
    EXPECT_TRUE(device.end());
}

TEST_F(DeviceGradientsDeathTest, AWindowIsOfOneUnitAndOfOneThatHasIt) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // the device has threads
    DeviceGradients device = windows(8192 + 4096 + 8192);
    device.enter(0);
    EXPECT_DEATH(device.enter(0), "gradients of unit 0 in the window of those of unit 0");
    EXPECT_DEATH(device.copy_out(1, host_[1].data()), "the gradients of unit 1 are in no window");
}

}  // namespace
}  // namespace penstock::testing
