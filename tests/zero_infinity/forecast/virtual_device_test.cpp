#include "zero_infinity/forecast/virtual_device.h"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::testing {
namespace {

using zero::Direction;
using zero::VirtualDevice;

constexpr zero::DeviceRates rates{.read = 100, .write = 50, .both = 80};

// Numbers in the order in which they ended; the last one is the time.
std::vector<double> drain(VirtualDevice& device) {
    std::vector<double> ended;
    double now = 0;
    while (!device.idle()) {
        const double seconds = device.seconds_to_next();
        device.advance(seconds);
        now += seconds;
        while (const auto transfer = device.take_ended()) ended.push_back(static_cast<double>(transfer->number));
    }
    ended.push_back(now);
    return ended;
}

TEST(VirtualDevice, EachDirectionAloneHasItsRate) {
    VirtualDevice device(rates);
    device.begin({Direction::read, 1, 100});
    device.begin({Direction::read, 2, 100});
    EXPECT_EQ(drain(device), (std::vector<double>{1, 2, 2}));
    device.begin({Direction::write, 3, 100});
    EXPECT_EQ(drain(device), (std::vector<double>{3, 2}));
    EXPECT_EQ(device.moved(Direction::read), 200);
    EXPECT_EQ(device.moved(Direction::write), 100);
    EXPECT_EQ(device.busy_seconds(Direction::read), 2);
    EXPECT_EQ(device.busy_seconds(Direction::write), 2);
}

TEST(VirtualDevice, BothShareWhatBothGet) {
    VirtualDevice device(rates);
    device.begin({Direction::read, 1, 40});
    device.begin({Direction::write, 2, 90});
    EXPECT_EQ(device.rate(Direction::read), 40);
    EXPECT_EQ(device.rate(Direction::write), 40);
    EXPECT_EQ(drain(device), (std::vector<double>{1, 2, 2}));  // then 50 bytes alone
}

TEST(VirtualDevice, IsSlowerWhileItIsToldToBe) {
    VirtualDevice device(rates);
    device.slow_to(0.25);
    device.begin({Direction::read, 1, 50});
    device.advance(1);
    EXPECT_EQ(device.moved(Direction::read), 25);
    device.slow_to(1);
    EXPECT_EQ(drain(device), (std::vector<double>{1, 0.25}));
}

TEST(VirtualDevice, MovesNothingWhileItIsHeld) {
    VirtualDevice device(rates);
    device.begin({Direction::read, 1, 100});
    device.advance(0.5);
    device.hold(2);
    device.begin({Direction::write, 2, 25});
    EXPECT_EQ(device.rate(Direction::read), 0);
    EXPECT_EQ(device.seconds_to_next(), 2);
    device.advance(1.5);  // in the middle of it
    EXPECT_EQ(device.moved(Direction::read), 50);
    EXPECT_EQ(device.busy_seconds(Direction::read), 0.5);
    EXPECT_EQ(drain(device), (std::vector<double>{2, 1, 0.5 + 0.875}));
    device.hold(1);
    device.advance(3);  // with nothing under way it passes, too
    device.begin({Direction::read, 3, 100});
    EXPECT_EQ(drain(device), (std::vector<double>{3, 1}));
}

// A device whose writes alone are slow does not become faster by reads beside them.
TEST(VirtualDevice, NoneGetsMoreThanAlone) {
    VirtualDevice device({.read = 100, .write = 10, .both = 80});
    device.begin({Direction::read, 1, 40});
    device.begin({Direction::write, 2, 10});
    EXPECT_EQ(device.rate(Direction::write), 10);
    EXPECT_EQ(drain(device), (std::vector<double>{1, 2, 1}));
}

TEST(VirtualDevice, WhatComputeWaitsForGoesFirstButForWhatIsOnItsWay) {
    VirtualDevice device(rates);
    for (const std::uint64_t number : {1U, 2U, 3U, 4U}) device.begin({Direction::read, number, 100});
    device.raise(4);
    device.raise(3);  // behind the one that was raised before
    device.raise(1);  // is on its way
    device.raise(9);  // is not there
    EXPECT_EQ(drain(device), (std::vector<double>{1, 4, 3, 2, 4}));
}

}  // namespace
}  // namespace penstock::testing
