// Memory that runs out at any allocation: an error, never the end of the program, and a store that is whole afterwards.
#include "aio/words/error.h"
#include "swap/capi/c_store.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "swap/store/open_store.h"
#include "swap/store/verify.h"
#include "tests/allocations.h"
#include "tests/fuzz/inline_backend.h"
#include "tests/swap/capi/c_caller.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <thread>

namespace penstock::testing {
namespace {

constexpr std::uint64_t once = 1;
constexpr std::uint64_t for_ever = ~std::uint64_t{0} >> 1;

// A disk that has an error for the first attempt of one kind, if any. Allocates nothing by itself.
struct Fault {
    std::optional<aio::IoKind> kind = {};
    bool damages = false;  // instead: gives other bytes
};

class FailingOnce final : public aio::Backend {
   public:
    explicit FailingOnce(Fault& fault) : fault_(fault) {}
    bool submit(aio::Attempt& attempt) override { return inner_.submit(attempt); }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        aio::Attempt* const all = inner_.reap(timeout);
        for (aio::Attempt* each = all; each != nullptr; each = each->next) {
            if (each->kind != fault_.kind) continue;
            if (fault_.damages) {
                each->data[0] ^= std::byte{1};
            } else {
                each->result = -EIO;
                fault_.kind.reset();
            }
        }
        return all;
    }
    void wake() noexcept override {}
    aio::Attempt* abandon() noexcept override { return inner_.abandon(); }
    std::chrono::steady_clock::time_point now() const noexcept override { return inner_.now(); }
    std::size_t depth() const noexcept override { return inner_.depth(); }
    const char* name() const noexcept override { return "failing once"; }

   private:
    Fault& fault_;
    fuzz::InlineBackend inner_;
};

// Runs `scene` with each allocation refused in turn, alone or with all that follow. It returns how many there were.
template <typename Scene>
void at_each_allocation(const Scene& scene) {
    for (const std::uint64_t count : {once, for_ever}) {
        std::uint64_t number = 0;
        for (bool reached = true; reached; ++number) {
            SCOPED_TRACE("allocation " + std::to_string(number) + (count == once ? "" : " and all that follow"));
            reached = scene(number, count) > number;
            if (::testing::Test::HasFailure()) return;
        }
        EXPECT_GT(number, 3U) << "nothing was refused";
    }
}

// ---------------------------------------------------------------- through C

class NoMemoryC : public ::testing::TestWithParam<int> {
   protected:
    static constexpr penstock_range range{.object = 0, .first_tile = 0, .tile_count = 0};

    NoMemoryC() {
        caller_.open_with([this](const store::StoreDirectory&, const penstock_store_options&) {
            return aio::ChosenBackend{.backend = std::make_unique<FailingOnce>(fault_), .note = {}};
        });
        EXPECT_EQ(caller_.write(range, 1), PENSTOCK_OK);
        EXPECT_EQ(caller_.write(states, 1), PENSTOCK_OK);
        EXPECT_EQ(caller_.commit(), PENSTOCK_OK);
    }

    // What begins must have one result, what is refused none. Returns whether it began.
    template <typename Begin>
    bool step(const Begin& begin) {
        const penstock_status begun = begin();
        if (begun != PENSTOCK_OK) return false;
        ++begun_;
        take_results();
        return true;
    }
    void take_results() {
        for (;;) {
            const penstock_status taken = penstock_next(caller_.store, -1, &caller_.result, &caller_.error);
            if (taken != PENSTOCK_OK) return;  // idle, or no memory: later
            ++results_;
            last_ = caller_.result.status;
        }
    }
    void end_refusals() {
        refuse_allocations(0, 0);
        take_results();
        EXPECT_EQ(results_, begun_);
    }

    Fault fault_;
    CCaller caller_;
    aio::ScratchMemory memory_{1 << 20};
    penstock_status last_ = PENSTOCK_OK;
    std::uint64_t begun_ = 0;
    std::uint64_t results_ = 0;
};

// The parameter: 0 without a fault, else the kind that fails (1 + IoKind), or 4: what is read is damaged.
TEST_P(NoMemoryC, EndsInErrorsAndTheStoreGoesOn) {
    std::uint64_t seed = 1;
    at_each_allocation([&](std::uint64_t number, std::uint64_t count) {
        if (GetParam() > 0)
            fault_ = {.kind = GetParam() == 4 ? aio::IoKind::read : static_cast<aio::IoKind>(GetParam() - 1),
                      .damages = GetParam() == 4};
        aio::fill_random(memory_.span().first(102'400), ++seed);
        refuse_allocations(number, count);
        step([&] {
            return penstock_write(caller_.store, range, memory_of(memory_), PENSTOCK_DEMAND, nullptr, &caller_.error);
        });
        penstock_client_set(caller_.store, "a key that is long enough for the heap", "value", 5, &caller_.error);
        step([&] { return penstock_commit(caller_.store, nullptr, &caller_.error); });
        step([&] {
            return penstock_read(caller_.store, states, memory_of(memory_), PENSTOCK_DEMAND, nullptr, &caller_.error);
        });
        const std::uint64_t needed = allocations_since_refusal();
        end_refusals();
        fault_ = {};
        if (penstock_commit(caller_.store, nullptr, &caller_.error) == PENSTOCK_OK) {
            ++begun_;
            take_results();
            EXPECT_EQ(results_, begun_);
        }
        if (last_ == PENSTOCK_POISONED || last_ == PENSTOCK_STORAGE) {  // as it may: then a new life goes on
            caller_.open_with([this](const store::StoreDirectory&, const penstock_store_options&) {
                return aio::ChosenBackend{.backend = std::make_unique<FailingOnce>(fault_), .note = {}};
            });
        }
        EXPECT_EQ(caller_.write(range, seed), PENSTOCK_OK) << caller_.error.message << caller_.message;
        EXPECT_EQ(caller_.commit(), PENSTOCK_OK) << caller_.message;
        aio::ScratchMemory read(caller_.bytes_of(range));
        EXPECT_EQ(caller_.read(range, read), PENSTOCK_OK) << caller_.message;
        return needed;
    });
}

INSTANTIATE_TEST_SUITE_P(EachFault, NoMemoryC, ::testing::Range(0, 5));

// In a process of its own: what a stuck device holds is kept until the process ends. The loss is found while a commit
// begins, which then has its result as well; what is refused has none.
int live_with_a_loss(std::uint64_t number, std::uint64_t count) {
    Gate gate;
    CCaller caller;
    penstock_store_options options = caller.options();
    options.deadline_ms = 80;  // which a busy machine keeps, too
    caller.store = new penstock_store(store::open_store(&options, gated(gate)));
    aio::ScratchMemory memory(1 << 20);
    if (caller.write(weights, 1) != PENSTOCK_OK || caller.commit() != PENSTOCK_OK) return 1;
    gate.closed = true;
    std::uint64_t left = 1;
    if (penstock_read(caller.store, weights, memory_of(memory), PENSTOCK_DEMAND, nullptr, nullptr) != PENSTOCK_OK)
        return 2;
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    refuse_allocations(number, count);
    if (penstock_commit(caller.store, nullptr, &caller.error) == PENSTOCK_OK) ++left;
    while (penstock_next(caller.store, 0, &caller.result, &caller.error) == PENSTOCK_OK) --left;
    refuse_allocations(0, 0);
    penstock_status taken = PENSTOCK_TIMEOUT;
    while ((taken = penstock_next(caller.store, -1, &caller.result, &caller.error)) == PENSTOCK_OK) {
        if (caller.result.status != PENSTOCK_STORAGE) return 3;
        --left;
    }
    return taken == PENSTOCK_IDLE && left == 0 ? 0 : 4;
}

TEST(NoMemory, WhenADeviceIsStuckEachOperationThatBeganHasItsResult) {
    for (const std::uint64_t count : {once, for_ever}) {
        for (std::uint64_t number = 0; number < 16; ++number) {
            SCOPED_TRACE(std::to_string(number));
            EXPECT_EXIT(std::_Exit(live_with_a_loss(number, count)), ::testing::ExitedWithCode(0), "");
        }
    }
}

TEST(NoMemory, AtAnOpeningIsAnErrorAfterWhichItIsOpened) {
    CCaller caller;
    ASSERT_EQ(caller.open(), PENSTOCK_OK);
    ASSERT_EQ(caller.write(weights, 1), PENSTOCK_OK);
    ASSERT_EQ(caller.write(states, 1), PENSTOCK_OK);
    ASSERT_EQ(caller.commit(), PENSTOCK_OK);
    caller.end();
    penstock_store_options options = caller.options();
    options.backend = PENSTOCK_BACKEND_THREADS;
    options.verify = PENSTOCK_VERIFY_ALL;
    at_each_allocation([&](std::uint64_t number, std::uint64_t count) {
        refuse_allocations(number, count);
        const penstock_status opened = penstock_store_open(&options, &caller.store, &caller.error);
        const std::uint64_t needed = allocations_since_refusal();
        refuse_allocations(0, 0);
        if (opened != PENSTOCK_OK) {
            EXPECT_EQ(caller.store, nullptr);
            EXPECT_EQ(penstock_store_open(&options, &caller.store, &caller.error), PENSTOCK_OK) << caller.error.message;
        }
        aio::ScratchMemory read(caller.bytes_of(weights));
        EXPECT_EQ(caller.read(weights, read), PENSTOCK_OK) << caller.message;
        caller.end();
        return needed;
    });
}

TEST(NoMemory, AtACreationIsAnErrorAfterWhichItIsCreated) {
    CCaller caller;
    penstock_store_options options = caller.options();
    options.backend = PENSTOCK_BACKEND_THREADS;
    at_each_allocation([&](std::uint64_t number, std::uint64_t count) {
        refuse_allocations(number, count);
        const penstock_status opened = penstock_store_open(&options, &caller.store, &caller.error);
        const std::uint64_t needed = allocations_since_refusal();
        refuse_allocations(0, 0);
        if (opened != PENSTOCK_OK) {
            EXPECT_EQ(penstock_store_open(&options, &caller.store, &caller.error), PENSTOCK_OK) << caller.error.message;
        }
        caller.end();
        return needed;
    });
}

// ---------------------------------------------------------------- verification and copies

class NoMemoryCopy : public ::testing::Test {
   protected:
    NoMemoryCopy() {
        open_.start_io({}, {.backend = std::make_unique<FailingOnce>(fault_), .note = {}});
        store::TensorStore& store = open_.create({.objects = {{"weights", 8 * 4096, 4096}}});
        for (std::uint32_t tile = 0; tile < 8; ++tile) write(tile);
        commit_blocking(open_.io(), store, {{"a key that is long enough for the heap", "value"}});
    }
    void write(std::uint32_t tile) { write_blocking(open_.io(), open_.store(), {0, tile}, memory_.span()); }

    Fault fault_;
    TemporaryDirectory scratch_{aio::quick_temporary_path()};
    aio::ScratchMemory memory_{4096};
    store::OpenStore open_{{scratch_.file("store")}, "no memory"};
};

TEST_F(NoMemoryCopy, AVerificationEndsAndSaysHowManyTilesAreDamaged) {
    flip_bit(open_.store().location({0, 3}).path, open_.store().location({0, 3}).offset_bytes);
    at_each_allocation([&](std::uint64_t number, std::uint64_t count) {
        refuse_allocations(number, count);
        std::optional<store::VerifyReport> report;
        try {
            report = verify(open_.io(), open_.store(), {});
        } catch (const std::bad_alloc&) {
        } catch (const Error&) {
        }
        const std::uint64_t needed = allocations_since_refusal();
        refuse_allocations(0, 0);
        EXPECT_EQ(report ? report->damaged_tiles : 1U, 1U);
        EXPECT_EQ(verify(open_.io(), open_.store(), {}).damaged_tiles, 1U);
        return needed;
    });
}

// Also while tiles that it still needs are written, and its device has errors.
TEST_F(NoMemoryCopy, ASnapshotIsMadeOrIsNotAndTheStoreGoesOn) {
    std::uint64_t copies = 0;
    aio::ScratchMemory copy_memory(4096);
    for (const bool failing : {false, true}) {
        at_each_allocation([&](std::uint64_t number, std::uint64_t count) {
            store::StoreDirectory directory(scratch_.file("copy" + std::to_string(copies++)), "no memory");
            auto to = create_snapshot(open_.io(), open_.store(), directory, aio::Caching::direct);
            store::SnapshotCopy copy(open_.store(), std::move(to), copy_memory.span());
            TestTile waits;
            if (failing) fault_.kind = aio::IoKind::write;
            refuse_allocations(number, count);
            try {
                open_.store().write(waits, {0, 7}, memory_.span(), aio::Urgency::demand);
            } catch (const std::bad_alloc&) {
            }
            while (!copy.finished() || !waits.idle()) open_.io().poll();
            const std::uint64_t needed = allocations_since_refusal();
            refuse_allocations(0, 0);
            fault_ = {};
            write(7);
            commit_blocking(open_.io(), open_.store(), {{"a key that is long enough for the heap", "value"}});
            return needed;
        });
    }
}

}  // namespace
}  // namespace penstock::testing
