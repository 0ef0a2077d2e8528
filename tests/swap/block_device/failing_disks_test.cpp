// One store on two disks of which one fails, as the kernel tells of it: through a loop device and ext4.
#include "aio/words/error.h"
#include "swap/store/tensor_store.h"
#include "tests/swap/block_device/fuse_disk.h"
#include "tests/swap/block_device/loop_device.h"
#include "tests/swap/directory/mounts.h"
#include "tests/swap/store/exercise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <functional>
#include <iostream>

namespace penstock::testing {
namespace {

constexpr std::uint64_t disk_bytes = 24U << 20;

// Two disks with file systems, and a store across them. In the child of run_with_mounts().
class TwoDisks {
   public:
    explicit TwoDisks(const TemporaryDirectory& scratch) : scratch_(scratch) {
        for (const char* name : {"a", "b"}) {
            if (::mkdir(mount_point(disks_.size()).c_str(), 0700) != 0) throw std::runtime_error("mkdir");
            disks_.push_back(std::make_unique<FuseDisk>(scratch.file(name), disk_bytes));
            make_file_system(FileSystem::ext4, disks_.back()->image_path());
        }
        mount();
    }
    ~TwoDisks() { stop(); }

    FuseDisk& disk(std::size_t index) { return *disks_[index]; }
    std::string path(std::size_t index) const { return mount_point(index) + "/store"; }
    aio::Io& io() { return *io_; }
    store::TensorStore& store() { return *store_; }

    void mount() {
        for (std::size_t i = 0; i < disks_.size(); ++i)
            mounts_.push_back(std::make_unique<MountedLoop>(disks_[i]->path(), FileSystem::ext4, mount_point(i)));
    }
    void create() {
        io_ = std::make_unique<aio::Io>(aio::make_thread_backend({}), aio::IoLimits{});
        store_ = store::TensorStore::create(*io_, directories(), {.objects = Exercise::objects()});
    }
    void open() {
        io_ = std::make_unique<aio::Io>(aio::make_thread_backend({}), aio::IoLimits{});
        store_ = store::TensorStore::open(*io_, directories());
    }
    void stop() {
        store_.reset();
        io_.reset();
        owned_.clear();
        mounts_.clear();
    }
    // The machine is started again, with sound disks.
    void restart() {
        stop();
        for (const auto& disk : disks_) disk->set_health(DiskHealth::sound);
        mount();
        open();
    }

   private:
    std::string mount_point(std::size_t index) const { return scratch_.file(fmt::format("mount{}", index)); }
    std::vector<store::StoreDirectory*> directories() {
        std::vector<store::StoreDirectory*> directories;
        owned_.clear();
        for (std::size_t i = 0; i < disks_.size(); ++i) {
            owned_.push_back(std::make_unique<store::StoreDirectory>(path(i), "test"));
            directories.push_back(owned_.back().get());
        }
        return directories;
    }

    const TemporaryDirectory& scratch_;
    std::vector<std::unique_ptr<FuseDisk>> disks_;
    std::vector<std::unique_ptr<MountedLoop>> mounts_;
    std::vector<std::unique_ptr<store::StoreDirectory>> owned_;
    std::unique_ptr<aio::Io> io_;
    std::unique_ptr<store::TensorStore> store_;
};

class FailingDisks : public ::testing::Test {
   protected:
    // `body` returns what is wrong.
    void on_two_disks(const std::function<std::string(TwoDisks&)>& body) {
        if (!can_make(FileSystem::ext4)) GTEST_SKIP() << "mkfs.ext4 is not installed";
        const TemporaryDirectory scratch(aio::quick_temporary_path());
        std::unique_ptr<TwoDisks> disks;
        const auto make = [&] {
            try {
                disks = std::make_unique<TwoDisks>(scratch);
            } catch (const std::exception& error) {
                std::cout << error.what() << std::endl;
            }
            return disks != nullptr;
        };
        const MountOutcome outcome = run_with_mounts(make, [&] {
            const std::string wrong = body(*disks);
            disks.reset();
            return wrong;
        });
        if (!outcome.allowed) GTEST_SKIP() << "disks of a test's own need root, /dev/fuse and loop devices";
        EXPECT_EQ(outcome.text, "");
    }

    const Exercise exercise{7};
};

std::string unless_named(const std::optional<store::StoreError>& error, const std::string& path,
                         const std::string& word) {
    if (!error) return "a failing disk was not noticed";
    const bool named =
        error->message.find(path + "/") != std::string::npos && error->message.find(word) != std::string::npos;
    return named ? "" : "not named as it should be: " + error->message;
}

TEST_F(FailingDisks, AFlushThatFailsOnOneStopsTheCommitAndTheGenerationBeforeIsWhole) {
    on_two_disks([&](TwoDisks& disks) -> std::string {
        disks.create();
        for (std::uint64_t generation = 0; generation < 3; ++generation) {
            if (const auto error = exercise.advance(disks.io(), disks.store(), generation)) return error->message;
        }
        disks.disk(1).set_health(DiskHealth::flushes_fail);
        if (auto wrong = unless_named(exercise.advance(disks.io(), disks.store(), 3), disks.path(1), "EIO");
            !wrong.empty())
            return wrong;
        disks.restart();
        if (disks.store().generation() != 2) return "another generation than the last that was committed";
        return exercise.difference(disks.io(), disks.store(), 2);
    });
}

TEST_F(FailingDisks, WritesThatFailOnOneAreNamedAndNothingIsCommitted) {
    on_two_disks([&](TwoDisks& disks) -> std::string {
        disks.create();
        if (const auto error = exercise.advance(disks.io(), disks.store(), 0)) return error->message;
        disks.disk(1).set_health(DiskHealth::writes_fail);
        if (auto wrong = unless_named(exercise.write(disks.io(), disks.store(), 1), disks.path(1), "EIO");
            !wrong.empty())
            return wrong;
        if (auto wrong = unless_named(commit(disks.io(), disks.store(), {}), disks.path(1), "written again");
            !wrong.empty())
            return wrong;
        disks.restart();
        return exercise.difference(disks.io(), disks.store(), 0);
    });
}

TEST_F(FailingDisks, ADiskThatIsGoneIsNamedByEachOfItsTilesAndTheOthersAreRight) {
    on_two_disks([&](TwoDisks& disks) -> std::string {
        disks.create();
        if (const auto error = exercise.advance(disks.io(), disks.store(), 0)) return error->message;
        disks.disk(1).set_health(DiskHealth::all_fail);
        for (std::uint32_t index = 0; index < disks.store().layout().tile_count(); ++index) {
            const store::TileId tile = disks.store().layout().tile(index);
            aio::ScratchMemory memory(disks.store().extent_bytes(tile));
            const auto error = read_tile(disks.io(), disks.store(), tile, memory.span());
            const bool on_it = disks.store().layout().extent(tile, 0).device == 1;
            if (!on_it && error) return error->message;
            if (!on_it) continue;
            if (auto wrong = unless_named(error, disks.path(1), fmt::format(", tile {} in ", tile.tile));
                !wrong.empty())
                return wrong;
        }
        disks.restart();
        return exercise.difference(disks.io(), disks.store(), 0);
    });
}

TEST_F(FailingDisks, AStoreIsNotMadeOnADiskThatFails) {
    on_two_disks([&](TwoDisks& disks) -> std::string {
        disks.disk(0).set_health(DiskHealth::flushes_fail);
        try {
            disks.create();
            return "it was made";
        } catch (const Error& error) {
            if (std::string(error.what()).find(disks.path(0)) == std::string::npos) return error.what();
        }
        disks.stop();
        disks.disk(0).set_health(DiskHealth::sound);
        disks.mount();
        disks.create();
        if (const auto error = exercise.advance(disks.io(), disks.store(), 0)) return error->message;
        return exercise.difference(disks.io(), disks.store(), 0);
    });
}

}  // namespace
}  // namespace penstock::testing
