#include "zero_infinity/device/device.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr auto long_enough = 60s;  // for a wait that must end
constexpr auto never = 1h;         // a copy that must not have happened yet

Bytes random_bytes(std::size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random() % 255);  // never 0xff: not to be taken for poison
    return bytes;
}

bool poisoned(const std::byte* data, std::size_t bytes) {
    return std::all_of(data, data + bytes, [](std::byte byte) { return byte == std::byte{0xff}; });
}

bool holds(const std::byte* data, const Bytes& bytes) {
    return std::equal(bytes.begin(), bytes.end(), data);
}

std::unique_ptr<Device> emulated(std::uint64_t budget_bytes, std::chrono::microseconds delay = 0us) {
    return make_device({.kind = DeviceKind::emulated, .budget_bytes = budget_bytes, .copy_delay = delay});
}

// What any device with memory of its own promises; cuda takes part where a GPU is.
class OwnMemory : public ::testing::TestWithParam<DeviceKind> {
   protected:
    std::unique_ptr<Device> make(std::uint64_t budget_bytes) const {
        try {
            return make_device({.kind = GetParam(), .budget_bytes = budget_bytes, .copy_delay = 50us});
        } catch (const Error& error) {
            if (GetParam() != DeviceKind::cuda || error.code() != ExitCode::usage) throw;
            return nullptr;
        }
    }
};

#define PENSTOCK_SKIP_WITHOUT(device) \
    if (!(device)) GTEST_SKIP() << "no GPU"

TEST_P(OwnMemory, BringsBackWhatWentIn) {
    const auto device = make(1 << 20);
    PENSTOCK_SKIP_WITHOUT(device);
    EXPECT_FALSE(device->shares_host_memory());
    std::byte* memory = device->allocate(300'001, "test");
    for (unsigned seed = 1; seed <= 20; ++seed) {
        const std::size_t count = 1 + seed * 14'999;
        const Bytes in = random_bytes(count, seed);
        Bytes out(count);
        device->compute_after(device->copy_in(memory + seed, in.data(), count, device->compute_mark()));
        const Ticket back = device->copy_out(out.data(), memory + seed, count);
        ASSERT_TRUE(device->wait(back, long_enough));
        ASSERT_TRUE(device->reached(back));
        ASSERT_EQ(in, out) << "seed " << seed;
        ASSERT_TRUE(device->wait(device->compute_mark(), long_enough));
        device->released(memory + seed, count);
    }
}

TEST_P(OwnMemory, ReachesManyCopiesInTheirOrder) {
    constexpr std::size_t copies = 1000;  // far more than cuda's events
    const auto device = make(copies * 64);
    PENSTOCK_SKIP_WITHOUT(device);
    std::byte* memory = device->allocate(copies * 64, "test");
    const Bytes in = random_bytes(copies * 64, 1);
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < copies; ++i)
        tickets.push_back(device->copy_in(memory + i * 64, in.data() + i * 64, 64));
    ASSERT_TRUE(device->wait(tickets[copies / 2], long_enough));
    for (std::size_t i = 0; i <= copies / 2; ++i) ASSERT_TRUE(device->reached(tickets[i])) << "copy " << i;
    ASSERT_TRUE(device->wait(tickets.back(), long_enough));
    Bytes out(in.size());
    ASSERT_TRUE(device->wait(device->copy_out(out.data(), memory, out.size()), long_enough));
    EXPECT_EQ(in, out);
}

TEST_P(OwnMemory, RefusesMoreThanItsBudgetAndNamesTheUse) {
    const auto device = make(10'000);
    PENSTOCK_SKIP_WITHOUT(device);
    std::byte* first = device->allocate(1'000, "first");
    std::byte* second = device->allocate(1'000, "second");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % device_alignment_bytes, 0U);
    EXPECT_EQ(second - first, 1'024);
    EXPECT_EQ(device->used_bytes(), 2'024U);
    try {
        device->allocate(8'000, "weights window");
        FAIL() << "10,048 bytes in a budget of 10,000";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::does_not_fit);
        const std::string message = error.what();
        EXPECT_NE(message.find("'weights window' needs 8000 bytes"), std::string::npos) << message;
        EXPECT_NE(message.find("48 bytes are missing"), std::string::npos) << message;
    }
    EXPECT_EQ(device->allocate(7'952, "exactly the rest") - first, 2'048);
    EXPECT_EQ(device->used_bytes(), 10'000U);
    EXPECT_THROW(device->allocate(1, "one more"), Error);
    EXPECT_THROW(device->allocate(~0ULL, "absurd"), Error);
}

TEST_P(OwnMemory, ADefaultTicketIsReachedFromTheStart) {
    const auto device = make(4096);
    PENSTOCK_SKIP_WITHOUT(device);
    EXPECT_TRUE(device->reached({}));
    EXPECT_TRUE(device->wait({}, 0ns));
    device->compute_after({});
}

INSTANTIATE_TEST_SUITE_P(Devices, OwnMemory, ::testing::Values(DeviceKind::emulated, DeviceKind::cuda),
                         [](const auto& kind) { return kind.param == DeviceKind::cuda ? "cuda" : "emulated"; });

TEST(EmulatedDevice, AllocatedMemoryHoldsPoison) {
    const auto device = emulated(4096);
    EXPECT_TRUE(poisoned(device->allocate(4096, "test"), 4096));
}

TEST(EmulatedDevice, ATargetHoldsPoisonUntilItsTicketIsReached) {
    const auto device = emulated(4096, never);
    std::byte* memory = device->allocate(4096, "test");
    std::memset(memory, 7, 4096);  // what an earlier pass left
    const Bytes in = random_bytes(1000, 1);
    const Ticket ticket = device->copy_in(memory + 100, in.data(), in.size());
    EXPECT_FALSE(device->reached(ticket));
    EXPECT_FALSE(device->wait(ticket, 1ms));
    EXPECT_TRUE(poisoned(memory + 100, 1000));
    EXPECT_EQ(memory[99], std::byte{7});
    EXPECT_EQ(memory[1100], std::byte{7});

    Bytes out(1000, std::byte{7});
    const Ticket back = device->copy_out(out.data(), memory + 2000, out.size());
    EXPECT_FALSE(device->reached(back));
    EXPECT_TRUE(poisoned(out.data(), out.size()));
}

TEST(EmulatedDevice, ReleasedMemoryHoldsPoison) {
    const auto device = emulated(4096);
    std::byte* memory = device->allocate(4096, "test");
    std::memset(memory, 7, 4096);
    device->released(memory + 10, 20);
    EXPECT_EQ(memory[9], std::byte{7});
    EXPECT_TRUE(poisoned(memory + 10, 20));
    EXPECT_EQ(memory[30], std::byte{7});
}

// On a GPU such a copy may come while compute still reads.
TEST(EmulatedDeviceDeathTest, RefusesToCopyOverWhatComputeMayBeReading) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto device = emulated(4096);
    std::byte* memory = device->allocate(4096, "test");
    const Bytes in(100);
    const Ticket early = device->compute_mark();
    device->compute_after(device->copy_in(memory, in.data(), 100));
    EXPECT_DEATH(device->copy_in(memory + 99, in.data(), 100), "over what compute may be reading since mark 1");
    EXPECT_DEATH(device->copy_in(memory, in.data(), 100, early), "over what compute may be reading since mark 1");
    device->copy_in(memory + 100, in.data(), 100);
    device->compute_after(device->copy_in(memory, in.data(), 100, device->compute_mark()));
}

TEST(EmulatedDevice, CopiesHappenInTheOrderOfTheCalls) {
    constexpr std::size_t copies = 50;
    const auto device = emulated(copies * 512, 500us);
    std::vector<Bytes> in;
    std::vector<std::byte*> places;
    std::vector<Ticket> tickets;
    for (std::size_t i = 0; i < copies; ++i) {
        in.push_back(random_bytes(512, static_cast<unsigned>(i)));
        places.push_back(device->allocate(512, "test"));
    }
    for (std::size_t i = 0; i < copies; ++i) tickets.push_back(device->copy_in(places[i], in[i].data(), 512));
    for (std::size_t i = 0; i < copies; ++i) {
        device->compute_after(tickets[i]);
        for (std::size_t j = 0; j <= i; ++j) ASSERT_TRUE(holds(places[j], in[j])) << "copy " << j << " at ticket " << i;
    }
}

TEST(EmulatedDevice, WaitingAsLongAsCanBeSaidIsAllowed) {
    const auto device = emulated(512, 1ms);
    const Bytes in = random_bytes(512, 1);
    std::byte* memory = device->allocate(512, "test");
    EXPECT_TRUE(device->wait(device->copy_in(memory, in.data(), 512), std::chrono::nanoseconds::max()));
    EXPECT_TRUE(holds(memory, in));
}

TEST(EmulatedDevice, EndsWithoutWaitingForCopiesThatHaveNotBegun) {
    const Bytes in = random_bytes(512, 1);
    const auto device = emulated(1024, never);
    std::byte* memory = device->allocate(1024, "test");
    device->copy_in(memory, in.data(), 512);
    device->copy_in(memory + 512, in.data(), 512);
}

TEST(EmulatedDevice, ServesSeveralThreadsAtOnce) {
    const auto device = emulated(4 * 4096, 10us);
    std::byte* memory = device->allocate(4 * 4096, "test");
    const auto round_trips = [&](unsigned thread) {
        std::byte* mine = memory + thread * 4096;
        for (unsigned round = 0; round < 50; ++round) {
            const Bytes in = random_bytes(4096, thread * 1000 + round);
            Bytes out(4096);
            device->compute_after(device->copy_in(mine, in.data(), 4096, device->compute_mark()));
            ASSERT_TRUE(device->wait(device->copy_out(out.data(), mine, 4096), long_enough));
            ASSERT_EQ(in, out) << "thread " << thread << ", round " << round;
            device->released(mine, 4096);
        }
    };
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; ++thread) threads.emplace_back(round_trips, thread);
    for (std::thread& thread : threads) thread.join();
}

class DeviceDeathTest : public ::testing::Test {
   protected:
    // The devices have threads: the dying child begins anew.
    DeviceDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(DeviceDeathTest, EmulatedRefusesMemoryThatWasNotHandedOut) {
    const auto device = emulated(8192);
    std::byte* memory = device->allocate(4096, "test");
    Bytes host(4096);
    EXPECT_DEATH(device->copy_in(memory + 1, host.data(), 4096), "4096 bytes at 1 of device 'emulated'");
    EXPECT_DEATH(device->copy_out(host.data(), memory + 1, 4096), "handed out 4096");
    EXPECT_DEATH(device->released(memory + 4096, 1), "handed out 4096");
    EXPECT_DEATH(device->copy_in(memory - 1, host.data(), 1), "not of device 'emulated'");
    EXPECT_DEATH(device->allocate(0, "nothing"), "'nothing' of no bytes");
}

TEST_F(DeviceDeathTest, EmulatedRefusesToOverwriteWhatIsBeingCopied) {
    const auto device = emulated(8192, never);
    std::byte* memory = device->allocate(8192, "test");
    Bytes host(4096);
    device->copy_in(memory, host.data(), 100);
    device->copy_out(host.data() + 1000, memory + 1000, 100);
    device->released(memory + 100, 900);
    EXPECT_DEATH(device->released(memory + 99, 1), "while a copy of them is under way");
    EXPECT_DEATH(device->copy_in(memory + 50, host.data(), 10), "while a copy of them is under way");
    EXPECT_DEATH(device->copy_in(memory + 999, host.data(), 2), "while a copy of them is under way");
}

TEST_F(DeviceDeathTest, RefusesTicketsItNeverGave) {
    const auto device = emulated(4096);
    EXPECT_DEATH(device->reached({Ticket::Lane::in, 1}), "ticket 1 of 0");
    EXPECT_DEATH(device->compute_after({Ticket::Lane::none, 1}), "ticket 1 of no lane");
    EXPECT_DEATH(make_cpu_device()->reached({Ticket::Lane::in, 1}), "ticket 1");
}

TEST_F(DeviceDeathTest, TheCpuDeviceHasNoMemoryOfItsOwn) {
    const auto device = make_device({});
    EXPECT_DEATH(device->allocate(1, "test"), "no memory of its own");
    EXPECT_DEATH(device->copy_in(nullptr, nullptr, 1), "where it lies");
    EXPECT_DEATH(device->copy_out(nullptr, nullptr, 1), "where it lies");
}

TEST(CpuDevice, HasNothingToWaitFor) {
    const auto device = make_device({});
    EXPECT_EQ(device->kind(), DeviceKind::cpu);
    EXPECT_TRUE(device->shares_host_memory());
    EXPECT_TRUE(device->reached({}));
    EXPECT_TRUE(device->wait({}, 0ns));
    EXPECT_EQ(device->used_bytes(), 0U);
    device->compute_after({});
    EXPECT_TRUE(device->reached(device->compute_mark()));
    device->released(nullptr, 0);
}

TEST(CudaDevice, SaysWhatIsMissingWhereItCannotBe) {
    try {
        make_device({.kind = DeviceKind::cuda, .budget_bytes = 4096});
        GTEST_SKIP() << "a GPU is here";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_NE(std::string(error.what()).find("device 'cuda'"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("set the device to 'cpu'"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace penstock::zero
