// The machine dies in the middle of any write or flush, and a cache of unflushed writes dies with it: what was reported
// as committed is there afterwards, whole. The last tests prove that the harness notices when it is not.
#include "aio/words/error.h"
#include "swap/store/tensor_store.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/seeds.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

class Machine {
   public:
    explicit Machine(std::uint64_t seed, int directories = 1, aio::Caching caching = aio::Caching::direct)
        : device(seed), caching_(caching), exercise_(seed) {
        for (int i = 0; i < directories; ++i) {
            owned_.push_back(
                std::make_unique<store::StoreDirectory>(fmt::format("{}/store{}", scratch_.path(), i), "test"));
            directories_.push_back(owned_.back().get());
        }
    }

    PowerDevice device;

    // Creates the store or opens it and commits until generation `last` or death. Returns what is wrong, or nothing.
    std::string live(std::uint64_t last) {
        aio::Io io(device.backend(), {});
        std::unique_ptr<store::TensorStore> store;
        try {
            const bool fresh = directories_[0]->content() != store::DirectoryContent::committed;
            if (fresh && reported_) return "a committed generation was forgotten";
            store = fresh ? store::TensorStore::create(
                                io, directories_, {.objects = Exercise::objects(), .caching = caching_, .progress = {}})
                          : store::TensorStore::open(io, directories_, {.caching = caching_});
        } catch (const Error& error) {
            return device.dead() ? "" : error.what();
        }
        if (const std::string wrong = check(io, *store); !wrong.empty()) return wrong;
        for (std::uint64_t next = reported_ ? *reported_ + 1 : 0; next <= last; ++next) {
            if (const auto error = exercise_.advance(io, *store, next)) return device.dead() ? "" : error->message;
            reported_ = next;
        }
        return {};
    }

    std::optional<std::uint64_t> reported() const { return reported_; }

   private:
    std::string check(aio::Io& io, store::TensorStore& store) {
        const auto found = store.generation();
        if (!found) return reported_ ? "a committed generation was forgotten" : "";
        const std::uint64_t least = reported_.value_or(0);
        const std::uint64_t most = reported_ ? *reported_ + 1 : 0;
        if (*found < least || *found > most)
            return fmt::format("generation {} instead of {} or {}", *found, least, most);
        reported_ = found;
        const std::string difference = exercise_.difference(io, store, *found);
        return device.dead() ? "" : difference;
    }

    aio::Caching caching_;
    TemporaryDirectory scratch_{aio::quick_temporary_path()};
    std::vector<std::unique_ptr<store::StoreDirectory>> owned_;
    std::vector<store::StoreDirectory*> directories_;
    Exercise exercise_;
    std::optional<std::uint64_t> reported_;
};

std::uint64_t changes_of_a_life(std::uint64_t seed, std::uint64_t last) {
    Machine machine(seed);
    EXPECT_EQ(machine.live(last), "");
    return machine.device.changes();
}

// Cuts the power at each change of a store's first three generations, and again afterwards.
void cut_everywhere(aio::Caching caching) {
    const std::uint64_t seed = first_seed();
    const std::uint64_t changes = changes_of_a_life(seed, 2);
    ASSERT_GT(changes, 20U);
    for (std::uint64_t after = 1; after <= changes; ++after) {
        for (const Loss loss : {Loss::everything, Loss::random_sectors, Loss::nothing_at_all}) {
            SCOPED_TRACE(
                fmt::format("{}, change {} of {}, loss {}", replay(seed), after, changes, static_cast<int>(loss)));
            Machine machine(seed + after, 1, caching);
            machine.device.die_after(after);
            ASSERT_EQ(machine.live(2), "");
            machine.device.cut(loss);
            ASSERT_EQ(machine.live(4), "");
            machine.device.cut(loss);
            ASSERT_EQ(machine.live(4), "");
            ASSERT_EQ(machine.reported(), 4U);
        }
    }
}

TEST(PowerCut, AtEveryWriteAndFlushOfThreeGenerationsNothingCommittedIsLost) {
    cut_everywhere(aio::Caching::direct);
}

TEST(PowerCut, NorIsItThroughThePageCache) {
    cut_everywhere(aio::Caching::buffered);
}

TEST(PowerCut, ManyLivesOfOneStoreEndWithEveryGenerationInOrder) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(5); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        Machine machine(seed, seed % 2 == 0 ? 1 : 3, seed % 3 == 0 ? aio::Caching::buffered : aio::Caching::direct);
        for (int life = 0; life < 40; ++life) {
            machine.device.die_after(random() % 80 + 1);
            ASSERT_EQ(machine.live(1000), "") << "life " << life;
            machine.device.cut(static_cast<Loss>(random() % 3));
        }
        ASSERT_EQ(machine.live(machine.reported().value_or(0) + 3), "");
        EXPECT_GT(machine.reported().value_or(0), 5U);
    }
}

// ---------------------------------------------------------------- the harness can fail

// What a store without the flush, or with one that does nothing, leaves.
TEST(PowerCut, ADriveThatIgnoresFlushesIsNoticed) {
    Machine machine(3);
    machine.device.flushes_do_nothing = true;
    ASSERT_EQ(machine.live(2), "");
    machine.device.cut(Loss::everything);
    EXPECT_NE(machine.live(2).find("not the ones that were written"), std::string::npos);
}

// What a store whose manifest is not written O_DSYNC leaves.
TEST(PowerCut, ADriveThatIgnoresSynchronousWritesIsNoticed) {
    Machine machine(3);
    ASSERT_EQ(machine.live(0), "");
    machine.device.synchronous_writes_lie = true;
    ASSERT_EQ(machine.live(2), "");
    machine.device.cut(Loss::everything);
    EXPECT_EQ(machine.live(2), "generation 0 instead of 2 or 3");
}

}  // namespace
}  // namespace penstock::testing
