// What a C caller sees of operations in flight: what they exclude, and devices that fail.
#include "aio/words/io_error.h"
#include "swap/capi/c_store.h"
#include "swap/capi/penstock.h"
#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/swap/capi/c_caller.h"
#include "tests/swap/power/power_device.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace penstock::testing {
namespace {

// ---------------------------------------------------------------- what is in flight

class CFlight : public ::testing::Test {
   protected:
    CFlight() { caller.open_with(gated(gate)); }
    ~CFlight() override { gate.closed = false; }

    penstock_status write(penstock_range range, penstock_error* error) {
        return penstock_write(caller.store, range, memory_of(memory), PENSTOCK_URGENCY_DEFAULT, nullptr, error);
    }
    penstock_status next(std::int64_t timeout_ms) {
        return penstock_next(caller.store, timeout_ms, &caller.result, nullptr);
    }

    Gate gate;
    CCaller caller;
    aio::ScratchMemory memory{1 << 20};
};

TEST_F(CFlight, ATileHasOneOperationAtATimeAndSoHasARange) {
    gate.closed = true;
    ASSERT_EQ(write({0, 2, 2}, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "tile 3 of object 'weights'", write({0, 3, 1}, &error));
    EXPECT_REFUSED(PENSTOCK_BUSY, "tile 2 of object 'weights'", write(weights, &error));
    EXPECT_REFUSED(PENSTOCK_BUSY, "tile 2 of object 'weights'",
                   penstock_read(caller.store, {0, 2, 1}, memory_of(memory), PENSTOCK_DEMAND, nullptr, &error));
    gate.closed = false;
    EXPECT_EQ(caller.finish(), PENSTOCK_OK);
    EXPECT_EQ(caller.write(weights, 1), PENSTOCK_OK);
}

TEST_F(CFlight, TilesOfARangeThatHaveNotBegunAreTaken) {
    CCaller many({{"many", 300 * 4096, 4096}});
    many.open_with(gated(gate));
    gate.closed = true;
    const aio::ScratchMemory whole(300 * 4096);
    ASSERT_EQ(penstock_write(many.store, {}, memory_of(whole), PENSTOCK_DEMAND, nullptr, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "tile 299",
                   penstock_write(many.store, {0, 299, 1}, memory_of(memory), PENSTOCK_DEMAND, nullptr, &error));
    gate.closed = false;
    EXPECT_EQ(many.finish(), PENSTOCK_OK);
}

TEST_F(CFlight, WritesAndCommitsExcludeEachOther) {
    gate.closed = true;
    ASSERT_EQ(write(states, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "1 writes", penstock_commit(caller.store, nullptr, &error));
    gate.closed = false;
    ASSERT_EQ(caller.finish(), PENSTOCK_OK);
    gate.closed = true;
    ASSERT_EQ(penstock_commit(caller.store, nullptr, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "commit is in flight", penstock_commit(caller.store, nullptr, &error));
    EXPECT_REFUSED(PENSTOCK_BUSY, "commit is in flight", write(weights, &error));
    EXPECT_EQ(penstock_read(caller.store, states, memory_of(memory), PENSTOCK_DEMAND, nullptr, nullptr), PENSTOCK_OK);
    gate.closed = false;
    EXPECT_EQ(next(-1), PENSTOCK_OK);
    EXPECT_EQ(next(-1), PENSTOCK_OK);
    EXPECT_EQ(caller.commit(), PENSTOCK_OK);
}

TEST_F(CFlight, AStoreIsNotClosedUnderItsOperations) {
    gate.closed = true;
    ASSERT_EQ(write(states, nullptr), PENSTOCK_OK);
    EXPECT_REFUSED(PENSTOCK_BUSY, "1 operations", penstock_store_close(caller.store, &error));
    EXPECT_EQ(next(0), PENSTOCK_TIMEOUT);
    EXPECT_EQ(next(3), PENSTOCK_TIMEOUT);
    gate.closed = false;
    EXPECT_EQ(caller.finish(), PENSTOCK_OK);
}

TEST_F(CFlight, ATimerStandsInForABackendThatCannotSignal) {
    const auto readable = [&](int timeout_ms) {
        pollfd asked = {.fd = penstock_event_fd(caller.store), .events = POLLIN, .revents = 0};
        return ::poll(&asked, 1, timeout_ms) == 1;
    };
    EXPECT_FALSE(readable(0));
    gate.closed = true;
    ASSERT_EQ(write(states, nullptr), PENSTOCK_OK);
    for (int tick = 0; tick < 3; ++tick) {
        ASSERT_TRUE(readable(60'000));
        EXPECT_EQ(next(0), PENSTOCK_TIMEOUT);
    }
    gate.closed = false;
    while (next(0) == PENSTOCK_TIMEOUT) ASSERT_TRUE(readable(60'000));
    EXPECT_EQ(next(0), PENSTOCK_IDLE);
    EXPECT_FALSE(readable(30)) << "it ticks with nothing in flight";
}

// Gives back one attempt at a time: the next one is found while the first is being told.
class OneByOne final : public ForwardingBackend {
   public:
    OneByOne() : ForwardingBackend(aio::make_thread_backend({})) {}
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (left_ == nullptr) left_ = inner_->reap(timeout);
        aio::Attempt* const one = left_;
        if (one != nullptr) left_ = std::exchange(one->next, nullptr);
        return one;
    }
    const char* name() const noexcept override { return "one by one"; }

   private:
    aio::Attempt* left_ = nullptr;
};

// The timer would say so, too, but later: for an operation that has ended there is nothing to wait for.
TEST_F(CFlight, WhatTheNextCallDeliversIsSignalled) {
    caller.open_with([](const store::StoreDirectory&, const penstock_store_options&) {
        return aio::ChosenBackend{.backend = std::make_unique<OneByOne>(), .note = {}};
    });
    const auto readable = [&] {
        pollfd asked = {.fd = penstock_event_fd(caller.store), .events = POLLIN, .revents = 0};
        return ::poll(&asked, 1, 0) == 1;
    };
    int signalled = 0;
    for (int round = 0; round < 50; ++round) {
        ASSERT_EQ(write(states, nullptr), PENSTOCK_OK);
        ASSERT_EQ(write(weights, nullptr), PENSTOCK_OK);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // both are back
        ASSERT_EQ(next(-1), PENSTOCK_OK);
        signalled += readable() ? 1 : 0;
        ASSERT_EQ(next(-1), PENSTOCK_OK);
        ASSERT_EQ(next(0), PENSTOCK_IDLE);
    }
    // A disk that takes longer now and then is no mistake.
    EXPECT_GT(signalled, 25);
}

TEST_F(CFlight, AReleasedLeaseStaysGrantedUntilItsOperationHasEnded) {
    penstock_pool* pool = nullptr;
    penstock_lease* lease = nullptr;
    penstock_lease* further = nullptr;
    ASSERT_EQ(penstock_pool_create(8192, &pool, nullptr), PENSTOCK_OK);
    ASSERT_EQ(penstock_lease_acquire(pool, 8192, &lease, nullptr), PENSTOCK_OK);
    gate.closed = true;
    ASSERT_EQ(penstock_write(caller.store, states, penstock_lease_memory(lease), PENSTOCK_DEMAND, nullptr, nullptr),
              PENSTOCK_OK);
    penstock_lease_release(lease);
    EXPECT_REFUSED(PENSTOCK_BUSY, "no free piece", penstock_lease_acquire(pool, 8192, &further, &error));
    EXPECT_REFUSED(PENSTOCK_BUSY, "8192 bytes", penstock_pool_destroy(pool, &error));
    gate.closed = false;
    EXPECT_EQ(caller.finish(), PENSTOCK_OK);
    EXPECT_EQ(penstock_pool_destroy(pool, nullptr), PENSTOCK_OK);
}

// ---------------------------------------------------------------- devices that fail

class CFlightDevice : public ::testing::Test {
   protected:
    CFlightDevice() {
        caller.open_with([this](const store::StoreDirectory&, const penstock_store_options&) {
            return aio::ChosenBackend{.backend = device.backend(), .note = "a line about the backend"};
        });
    }
    ~CFlightDevice() override { device.hook = {}; }
    void fail_with(int errno_value, aio::IoKind kind, int count) {
        device.hook = [errno_value, kind, count](aio::Attempt& attempt, const std::string&) mutable {
            return attempt.kind == kind && count-- > 0 ? std::optional<std::int32_t>(-errno_value) : std::nullopt;
        };
    }
    void fail_with_eio(aio::IoKind kind, int count) { fail_with(EIO, kind, count); }

    PowerDevice device{1, InFlight::as_submitted};  // a test counts its requests
    CCaller caller{{{"weights", 100'000, 16'384}, {"states", 5'000, 0}, {"many", 200 * 4096, 4096}}};
};

TEST_F(CFlightDevice, AFailedReadIsTheResultOfItsOperation) {
    ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
    fail_with_eio(aio::IoKind::read, 1);
    aio::ScratchMemory memory(102'400);
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_STORAGE);
    EXPECT_NE(caller.message.find("EIO"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.result.memory_lost, 0);
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK);
}

TEST_F(CFlightDevice, AfterAFailedWriteTheOtherTilesAreWrittenAndNoCommitSucceedsBeforeThatOne) {
    constexpr penstock_range many{.object = 2, .first_tile = 0, .tile_count = 0};
    fail_with_eio(aio::IoKind::write, 1);
    EXPECT_EQ(caller.write(many, 1), PENSTOCK_STORAGE);
    EXPECT_NE(caller.message.find("tile 0"), std::string::npos) << caller.message;
    EXPECT_EQ(penstock_written(caller.store, many, nullptr), PENSTOCK_OK) << "tiles were left out";
    EXPECT_EQ(caller.commit(), PENSTOCK_STORAGE);
    EXPECT_NE(caller.message.find("1 tiles could not be written"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.write({2, 0, 1}, 1), PENSTOCK_OK);
    EXPECT_EQ(caller.commit(), PENSTOCK_OK) << caller.message;
}

TEST_F(CFlightDevice, AFailedFlushPoisonsTheStore) {
    ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
    fail_with_eio(aio::IoKind::flush, 1);
    EXPECT_EQ(caller.commit(), PENSTOCK_POISONED);
    EXPECT_EQ(caller.commit(), PENSTOCK_POISONED);
    const aio::ScratchMemory memory(caller.bytes_of(states));
    EXPECT_REFUSED(PENSTOCK_POISONED, "open the store again",
                   penstock_write(caller.store, states, memory_of(memory), PENSTOCK_DEMAND, nullptr, &error));
    EXPECT_NE(caller.message.find("nothing can be written or committed any more"), std::string::npos) << caller.message;
}

TEST_F(CFlightDevice, MemoryThatTheKernelCannotReachIsTheCallersMistakeAndNoFaultOfTheDrive) {
    ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
    aio::ScratchMemory memory(102'400);
    fail_with(EFAULT, aio::IoKind::read, 1);
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_USAGE);
    EXPECT_NE(caller.message.find("cannot write to the memory that was given"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.message.find("dmesg"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_OK);
    fail_with(EFAULT, aio::IoKind::write, 1);
    EXPECT_EQ(caller.write(weights, 2), PENSTOCK_USAGE);
    EXPECT_NE(caller.message.find("cannot read the memory that was given"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.message.find("dmesg"), std::string::npos) << caller.message;
    EXPECT_EQ(caller.commit(), PENSTOCK_STORAGE) << "a tile is not written";
    EXPECT_EQ(caller.write(weights, 2), PENSTOCK_OK);
    EXPECT_EQ(caller.commit(), PENSTOCK_OK) << caller.message;
}

TEST(CMemory, ThatMayOnlyBeReadIsNamedByEveryBackend) {
    for (const penstock_backend backend : {PENSTOCK_BACKEND_BEST, PENSTOCK_BACKEND_THREADS}) {
        for (const penstock_caching caching : {PENSTOCK_DIRECT, PENSTOCK_PAGE_CACHE}) {
            CCaller caller;
            penstock_store_options options = caller.options();
            options.backend = backend;
            options.caching = caching;
            ASSERT_EQ(caller.open(options), PENSTOCK_OK) << caller.error.message;
            ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
            constexpr std::size_t bytes = 1 << 20;
            void* const frozen = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            ASSERT_NE(frozen, MAP_FAILED);
            const penstock_memory memory{.data = frozen, .bytes = bytes, .lease = nullptr};
            ASSERT_EQ(penstock_read(caller.store, weights, memory, PENSTOCK_DEMAND, nullptr, nullptr), PENSTOCK_OK);
            EXPECT_EQ(caller.finish(), PENSTOCK_USAGE);
            EXPECT_NE(caller.message.find("memory that was given"), std::string::npos) << caller.message;
            ::munmap(frozen, bytes);
        }
    }
}

TEST_F(CFlightDevice, DamageIsToldFromOtherErrors) {
    ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
    device.hook = [](aio::Attempt& attempt, const std::string&) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::read) return std::nullopt;
        std::memset(attempt.data, 7, attempt.bytes);
        return static_cast<std::int32_t>(attempt.bytes);
    };
    aio::ScratchMemory memory(102'400);
    EXPECT_EQ(caller.read(weights, memory), PENSTOCK_DAMAGED);
    EXPECT_NE(caller.message.find("not the ones that were written"), std::string::npos) << caller.message;
}

TEST_F(CFlightDevice, NotesAreLinesToLog) {
    EXPECT_STREQ(penstock_note(caller.store, 0), "a line about the backend");
    std::size_t index = 0;
    while (penstock_note(caller.store, index) != nullptr) ++index;
    EXPECT_LE(index, 3U);
}

// In a process of its own: what a stuck device holds is kept until the process ends.
int live_with_a_stuck_device(Gate& gate, CCaller& caller, penstock_pool* pool) {
    penstock_lease* lease = nullptr;
    penstock_lease* further = nullptr;
    penstock_lease_acquire(pool, 102'400, &lease, nullptr);
    int user = 0;
    gate.closed = true;
    if (penstock_write(caller.store, weights, penstock_lease_memory(lease), PENSTOCK_DEMAND, &user, nullptr) !=
        PENSTOCK_OK)
        return 1;
    if (penstock_next(caller.store, -1, &caller.result, nullptr) != PENSTOCK_OK) return 2;
    std::cerr << caller.result.message << '\n';
    if (caller.result.status != PENSTOCK_STORAGE || caller.result.user != &user) return 3;
    if (caller.result.memory_lost == 0 || caller.result.kind != PENSTOCK_WRITE) return 4;
    if (penstock_next(caller.store, -1, &caller.result, nullptr) != PENSTOCK_IDLE) return 5;
    if (penstock_commit(caller.store, nullptr, nullptr) != PENSTOCK_STORAGE) return 6;
    if (penstock_read(caller.store, states, {}, PENSTOCK_DEMAND, nullptr, nullptr) != PENSTOCK_STORAGE) return 7;
    penstock_lease_release(lease);
    if (penstock_lease_acquire(pool, 102'400, &further, nullptr) != PENSTOCK_BUSY) return 8;
    if (penstock_store_close(caller.store, nullptr) != PENSTOCK_OK) return 9;
    const penstock_store_options options = caller.options();
    if (penstock_store_open(&options, &caller.store, &caller.error) != PENSTOCK_STORAGE) return 10;
    if (std::string(caller.error.message).find("in use") == std::string::npos) return 11;
    return penstock_pool_destroy(pool, nullptr) == PENSTOCK_OK ? 0 : 12;
}

// What a stuck device has done comes to the backend, which signals it, and nobody asks any more.
class StuckAndSignalling final : public ForwardingBackend {
   public:
    explicit StuckAndSignalling(const bool& stuck) : ForwardingBackend(aio::make_thread_backend({})), stuck_(stuck) {}
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override { return stuck_ ? nullptr : inner_->reap(timeout); }
    aio::Attempt* abandon() noexcept override { return stuck_ ? nullptr : inner_->abandon(); }
    int ready_fd() override { return inner_->ready_fd(); }
    const char* name() const noexcept override { return "stuck and signalling"; }

   private:
    const bool& stuck_;
};

int live_in_an_event_loop(Gate& gate, CCaller& caller) {
    const aio::ScratchMemory memory(caller.bytes_of(weights));
    const auto readable = [&](int timeout_ms) {
        pollfd asked = {.fd = penstock_event_fd(caller.store), .events = POLLIN, .revents = 0};
        return ::poll(&asked, 1, timeout_ms) == 1;
    };
    gate.closed = true;
    if (penstock_write(caller.store, weights, memory_of(memory), PENSTOCK_DEMAND, nullptr, nullptr) != PENSTOCK_OK)
        return 1;
    while (penstock_next(caller.store, 0, &caller.result, nullptr) == PENSTOCK_TIMEOUT) {
        if (!readable(60'000)) return 2;
    }
    if (caller.result.memory_lost == 0) return 3;
    if (penstock_next(caller.store, 0, &caller.result, nullptr) != PENSTOCK_IDLE) return 4;
    std::cerr << "the loss was reported\n";
    return readable(100) ? 5 : 0;
}

TEST(CFlightStuck, AfterTheLossWasReportedTheDescriptorIsQuiet) {
    const auto live = [] {
        Gate gate;
        CCaller caller;
        penstock_store_options options = caller.options();
        options.deadline_ms = 300;  // the store is made within it, on a busy machine, too
        caller.store = new penstock_store(store::open_store(&options, [&gate](const auto&, const auto&) {
            return aio::ChosenBackend{.backend = std::make_unique<StuckAndSignalling>(gate.closed), .note = {}};
        }));
        ::_exit(live_in_an_event_loop(gate, caller));
    };
    EXPECT_EXIT(live(), ::testing::ExitedWithCode(0), "the loss was reported");
}

TEST(CFlightStuck, WhatIsStuckBecomesAResultAndItsMemoryIsNeverGrantedAgain) {
    const auto live = [] {
        Gate gate;
        CCaller caller;
        penstock_store_options options = caller.options();
        options.deadline_ms = 300;  // the store is made within it, on a busy machine, too
        caller.store = new penstock_store(open_store(&options, gated(gate)));
        penstock_pool* pool = nullptr;
        penstock_pool_create(128 << 10, &pool, nullptr);
        ::_exit(live_with_a_stuck_device(gate, caller, pool));
    };
    EXPECT_EXIT(live(), ::testing::ExitedWithCode(0), "write of .*data at offset .* has not come back for 0\\.");
}

}  // namespace
}  // namespace penstock::testing
