// The cuda device on a CUDA runtime that does things as late and as disorderly as it may. On a GPU: device_test.cpp.

#include "aio/words/error.h"
#include "zero_infinity/device/device.h"

#include "pinned_pool/pinned_pool.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/zero_infinity/device/fake_cudart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

using namespace std::chrono_literals;
using Bytes = std::vector<std::byte>;

constexpr unsigned seeds = 30;

std::unique_ptr<Device> make(std::uint64_t budget_bytes = 1 << 16) {
    return make_device({.kind = DeviceKind::cuda, .budget_bytes = budget_bytes, .index = 1});
}

void for_each_seed(const std::function<void(unsigned)>& body) {
    for (unsigned seed = 1; seed <= seeds; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        fake_cudart::reset(seed);
        body(seed);
        EXPECT_EQ(fake_cudart::misuses(), 0U);
        EXPECT_EQ(fake_cudart::live_objects(), 0U);
        if (::testing::Test::HasFailure()) return;
    }
}

std::string message_of(const std::function<void()>& body, ExitCode code) {
    try {
        body();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
}

// Host memory is declared before the device: a device's end may still copy (see device.h).
TEST(CudaDevice, ComputeSeesWhatWasCopiedBeforeItsTicket) {
    for_each_seed([](unsigned) {
        const auto device = make();
        std::byte* memory = device->allocate(8, "test");
        const Bytes in(8, std::byte{42});
        device->compute_after(device->copy_in(memory, in.data(), 8));
        Bytes seen(8);
        fake_cudart::launch([&] { std::memcpy(seen.data(), memory, 8); });
        ASSERT_TRUE(device->wait(device->compute_mark(), 60s));
        EXPECT_EQ(seen, in);
    });
}

TEST(CudaDevice, KnowsWhichGpuItIs) {
    fake_cudart::reset(1);
    for (const int index : {0, 1}) {
        const auto device = make_device({.kind = DeviceKind::cuda, .budget_bytes = 1 << 16, .index = index});
        EXPECT_EQ(device->index(), index);
    }
    EXPECT_EQ(make_device({})->index(), 0);
}

TEST(CudaDevice, ACopyOutSeesTheComputeIssuedBeforeIt) {
    for_each_seed([](unsigned) {
        const auto device = make();
        std::byte* memory = device->allocate(8, "test");
        Bytes out(8);
        for (int value = 1; value <= 5; ++value) {
            fake_cudart::launch([=] { std::memset(memory, value, 8); });
            const Ticket ticket = device->copy_out(out.data(), memory, 8);
            ASSERT_TRUE(device->wait(ticket, 60s));
            ASSERT_EQ(out, Bytes(8, static_cast<std::byte>(value)));
        }
    });
}

TEST(CudaDevice, ACopyInComesAfterTheComputeThatReadsItsPlace) {
    for_each_seed([](unsigned) {
        Bytes in(8);
        const auto device = make();
        std::byte* memory = device->allocate(8, "test");
        for (int value = 1; value <= 5; ++value) {
            std::fill(in.begin(), in.end(), static_cast<std::byte>(value));
            const Ticket there = device->copy_in(memory, in.data(), 8, device->compute_mark());
            device->compute_after(there);
            Bytes seen(8);
            fake_cudart::launch([&seen, memory] { std::memcpy(seen.data(), memory, 8); });
            const Ticket read = device->compute_mark();
            const Bytes other(8, std::byte{99});
            ASSERT_TRUE(device->wait(device->copy_in(memory, other.data(), 8, read), 60s));
            ASSERT_EQ(seen, in);
        }
    });
}

TEST(CudaDevice, ACopyInMayComeAfterACopyOut) {
    for_each_seed([](unsigned) {
        Bytes host(8);
        const auto device = make();
        std::byte* memory = device->allocate(16, "test");
        fake_cudart::launch([=] { std::memset(memory, 4, 8); });
        const Ticket out = device->copy_out(host.data(), memory, 8);
        ASSERT_TRUE(device->wait(device->copy_in(memory + 8, host.data(), 8, out), 60s));
        EXPECT_EQ(memory[15], std::byte{4});
    });
}

// Of another stream: what was issued before comes first there, too.
TEST(CudaDevice, ComputeGoesOnOnTheStreamThatIsNamed) {
    for_each_seed([](unsigned) {
        const Bytes in(8, std::byte{42});
        const auto device = make();
        std::byte* memory = device->allocate(8, "test");
        cudaStream_t own = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
        std::memset(memory, 0, 8);
        fake_cudart::launch([=] { std::memset(memory, 7, 8); });
        device->compute_on(own);
        Bytes first(8);
        fake_cudart::launch_on(own, [&] { std::memcpy(first.data(), memory, 8); });
        device->compute_after(device->copy_in(memory, in.data(), 8, device->compute_mark()));
        Bytes second(8);
        fake_cudart::launch_on(own, [&] { std::memcpy(second.data(), memory, 8); });
        device->compute_on(nullptr);
        ASSERT_TRUE(device->wait(device->compute_mark(), 60s));
        EXPECT_EQ(first, Bytes(8, std::byte{7}));
        EXPECT_EQ(second, in);
        ASSERT_EQ(cudaStreamDestroy(own), cudaSuccess);
    });
}

// More copies than events: each event serves many tickets, and a ticket is reached when its own copy has happened.
TEST(CudaDevice, ATicketIsReachedWhenItsCopyAndThoseBeforeHaveHappened) {
    constexpr std::size_t copies = 703;
    for_each_seed([](unsigned) {
        const Bytes in(copies, std::byte{1});
        const auto device = make();
        std::byte* memory = device->allocate(copies, "test");
        std::memset(memory, 0, copies);
        std::vector<Ticket> tickets;
        for (std::size_t i = 0; i < copies; ++i) tickets.push_back(device->copy_in(memory + i, in.data() + i, 1));
        // No more than 256 are under way: the call that would have made one more has waited for the oldest.
        EXPECT_TRUE(device->reached(tickets[copies - 256 - 1]));
        EXPECT_FALSE(device->reached(tickets[copies - 256 + 100]));
        for (std::size_t i = 0; i < copies; i += 50) {
            while (!device->reached(tickets[i])) {
            }
            for (std::size_t j = 0; j <= i; ++j)
                ASSERT_EQ(memory[j], std::byte{1}) << "copy " << j << " at ticket " << i;
        }
        EXPECT_FALSE(device->reached(tickets.back()));
        EXPECT_EQ(memory[copies - 1], std::byte{0});
    });
}

TEST(CudaDevice, ComputeMayBeHeldBackByATicketWhoseEventIsInUseAgain) {
    for_each_seed([](unsigned) {
        const Bytes in(1, std::byte{1});
        const auto device = make();
        std::byte* memory = device->allocate(1, "test");
        const Ticket first = device->copy_in(memory, in.data(), 1);
        for (int i = 0; i < 300; ++i) device->copy_in(memory, in.data(), 1);
        device->compute_after(first);
        fake_cudart::launch([] {});
        EXPECT_TRUE(device->wait(device->compute_mark(), 60s));
    });
}

TEST(CudaDevice, AWaitThatIsNotReachedInTimeSaysSo) {
    for_each_seed([](unsigned) {
        const auto device = make();
        std::byte* memory = device->allocate(1, "test");
        Bytes host(1);
        // Each query lets the fake do one thing; the ticket is 200 away.
        Ticket last;
        for (int i = 0; i < 100; ++i) last = device->copy_in(memory, host.data(), 1);
        EXPECT_FALSE(device->wait(last, 0ns));
        EXPECT_EQ(fake_cudart::pending_error(), cudaSuccess);  // "not ready" is not left for torch to find
        EXPECT_TRUE(device->wait(last, std::chrono::nanoseconds::max()));
    });
}

TEST(CudaDevice, CallsComeFromAnyThread) {
    for_each_seed([](unsigned) {
        const auto device = make();
        std::byte* memory = device->allocate(8, "test");
        std::thread([&] {  // where device 0 is current
            Bytes in(8, std::byte{5});
            Bytes out(8);
            device->compute_after(device->copy_in(memory, in.data(), 8));
            EXPECT_TRUE(device->wait(device->copy_out(out.data(), memory, 8), 60s));
            EXPECT_EQ(in, out);
            EXPECT_TRUE(device->wait(device->compute_mark(), 60s));
        })
            .join();
    });
}

TEST(CudaDevice, ItsEndWaitsForItsCopies) {
    for_each_seed([](unsigned) {
        Bytes out(8);
        {
            const auto device = make();
            std::byte* memory = device->allocate(8, "test");
            std::memset(memory, 3, 8);
            device->copy_out(out.data(), memory, 8);
            (void)cudaSetDevice(0);
        }
        EXPECT_EQ(out, Bytes(8, std::byte{3}));
    });
}

// A pool of three pieces, of which the second use has the end of one, a whole one and the begin of the next.
TEST(CudaDevice, CutsItsCopiesAtTheSeamsOfThePool) {
    constexpr std::size_t piece = pool::huge_page_bytes;
    constexpr std::size_t part = piece / 32;
    pool::Budget budget(64 << 20, "memory.host_budget");
    budget.add({"first", piece - part, ""});
    budget.add({"second", part + piece + part, ""});
    pool::PinnedPool pool(budget, {1ULL << 40, "free RAM"}, {.piece_bytes = piece});
    const pool::UseId second = pool.use("second");
    const pool::Lease whole = pool.acquire(second, 2 * part + piece);
    aio::fill_random(whole.span(), 1);
    const Bytes before(whole.span().begin(), whole.span().end());
    for_each_seed([&](unsigned) {
        std::copy(before.begin(), before.end(), whole.data());
        const std::byte* at = whole.data() - (piece - part);  // the arena's begin
        for (int i = 0; i < 3; ++i) fake_cudart::register_host(at + i * piece, i < 2 ? piece : part);
        const auto device = make(whole.bytes());
        device->cut_at_seams_of(pool);
        std::byte* memory = device->allocate(whole.bytes(), "test");

        std::byte* host = whole.data() + part - 100;  // 100 bytes before the seam
        device->compute_after(device->copy_in(memory, host, 2 * part));
        EXPECT_EQ(fake_cudart::copies(), 2U);
        fake_cudart::launch([&] {
            EXPECT_EQ(std::memcmp(memory, host, 2 * part), 0);
            std::memset(memory, 7, 2 * part);
        });
        ASSERT_TRUE(device->wait(device->copy_out(host, memory, 2 * part), 60s));
        EXPECT_EQ(fake_cudart::copies(), 4U);
        Bytes expected = before;
        std::fill_n(expected.begin() + part - 100, 2 * part, std::byte{7});
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), whole.data()));

        device->copy_in(memory, whole.data(), part);             // ends at a seam
        device->copy_in(memory, whole.data() + part, 2 * part);  // begins at one
        const Bytes elsewhere(part);
        ASSERT_TRUE(device->wait(device->copy_in(memory, elsewhere.data(), part), 60s));
        EXPECT_EQ(fake_cudart::copies(), 7U);
        ASSERT_TRUE(device->wait(device->copy_in(memory, whole.data(), whole.bytes()), 60s));
        EXPECT_EQ(fake_cudart::copies(), 10U);
        EXPECT_TRUE(std::equal(whole.span().begin(), whole.span().end(), memory));
    });
}

TEST(CudaDevice, ACopyOverASeamOfAPoolThatItDoesNotKnowIsRefused) {
    for_each_seed([](unsigned) {
        const Bytes host(16);
        fake_cudart::register_host(host.data(), 8);
        fake_cudart::register_host(host.data() + 8, 8);
        const auto device = make();
        std::byte* memory = device->allocate(16, "test");
        const std::string message = message_of([&] { device->copy_in(memory, host.data(), 16); }, ExitCode::internal);
        EXPECT_NE(message.find("cudaMemcpyAsync"), std::string::npos) << message;
    });
}

TEST(CudaDevice, AFailedCallIsNamedAndNotLeftForOthersToFind) {
    for (const std::string call :
         {"cudaMemcpyAsync", "cudaEventRecord", "cudaEventQuery", "cudaStreamWaitEvent", "cudaSetDevice"}) {
        for_each_seed([&](unsigned) {
            Bytes host(8);
            const auto device = make();
            std::byte* memory = device->allocate(8, "test");
            fake_cudart::fail_once(call, cudaErrorUnknown);
            const std::string message = message_of(
                [&] {
                    device->compute_after(device->copy_in(memory, host.data(), 8));
                    device->wait(device->copy_out(host.data(), memory, 8), 60s);
                    device->wait(device->compute_mark(), 60s);
                },
                ExitCode::internal);
            EXPECT_NE(message.find(call), std::string::npos) << message;
            EXPECT_EQ(fake_cudart::pending_error(), cudaSuccess);
        });
    }
}

TEST(CudaDevice, AFailedStartLeavesNothingBehind) {
    for (const std::string call : {"cudaMalloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags"}) {
        for_each_seed([&](unsigned) {
            fake_cudart::fail_once(call, cudaErrorUnknown);
            EXPECT_NE(message_of([] { make(); }, ExitCode::internal).find(call), std::string::npos);
        });
    }
}

TEST(CudaDevice, SaysWhyItCannotBe) {
    fake_cudart::reset(1);
    const std::string too_big = message_of([] { make(8 << 20); }, ExitCode::does_not_fit);
    EXPECT_NE(too_big.find("budget of 8388608 bytes"), std::string::npos) << too_big;
    EXPECT_NE(too_big.find("4194304 of 4194304 bytes are free"), std::string::npos) << too_big;

    const std::string no_such =
        message_of([] { make_device({.kind = DeviceKind::cuda, .index = 2}); }, ExitCode::usage);
    EXPECT_NE(no_such.find("no GPU 2; this machine has 2"), std::string::npos) << no_such;

    fake_cudart::set_device_count(0);
    const std::string none = message_of([] { make(); }, ExitCode::usage);
    EXPECT_NE(none.find("no GPU answers"), std::string::npos) << none;
    fake_cudart::reset(1);
    fake_cudart::fail_once("cudaGetDeviceCount", cudaErrorInsufficientDriver);
    EXPECT_NE(message_of([] { make(); }, ExitCode::usage).find("no GPU answers"), std::string::npos);
    EXPECT_EQ(fake_cudart::pending_error(), cudaSuccess);
}

}  // namespace
}  // namespace penstock::zero
