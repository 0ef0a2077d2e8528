// A store on a file system that shares blocks, and its snapshots.
#pragma once

#include "swap/snapshot/snapshot_copy.h"
#include "tests/swap/block_device/loop_device.h"
#include "tests/swap/store/moving_store.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

// What goes wrong is told in words, empty where nothing does: it lives in a child, whose mounts are its own.
class SharingStore {
   public:
    static constexpr std::size_t longest_extent = 72U << 10;

    // In `root`/store: opened, or made.
    explicit SharingStore(std::string root, std::vector<store::ObjectSpec> objects = MovingStore::objects());

    aio::Io& io() { return io_; }
    store::TensorStore& store() { return *store_; }
    MovingStore& moving() { return *moving_; }
    std::string data() const { return root_ + "/store/data"; }
    std::string folder() const { return root_ + "/kept"; }
    std::string path_of(const std::string& name) const { return folder() + "/" + name; }
    std::uint64_t room_bytes() const;  // set aside for shared slots

    std::string go_on(int rounds);
    // Throws Error where it is refused at once.
    std::string keep(const std::string& name, store::Blocks blocks = store::Blocks::shared) {
        return keep(name, blocks, blocks);
    }
    std::string keep(const std::string& name, store::Blocks wanted, store::Blocks expected);
    void leave_unfinished(const std::string& name);  // as a process does that is killed before the commit

    // Of a snapshot, as a new process finds it.
    std::string snapshot_difference(const std::string& name, const TileSeeds& seeds, const store::ClientState& client);
    std::unique_ptr<store::StoreDirectory> open_directory(const std::string& name) const;

   private:
    std::string root_;
    store::StoreDirectory directory_;
    aio::Io io_{aio::make_thread_backend({}), {}};
    std::unique_ptr<store::TensorStore> store_;
    std::optional<MovingStore> moving_;
};

std::uint64_t shared_bytes(const std::string& path);  // of the file's, that another file has, too
void fill_disk(const std::string& mount);             // reserves all that is free

class OnXfs : public ::testing::Test {
   protected:
    // `body` gets the place of an XFS of its own, and says what is wrong. Skips where there can be none.
    void on_xfs(const std::function<std::string(const std::string& mount)>& body);
    // In `body`: what is in memory only is gone, the newest part of the journal, too.
    void cut_power();

   private:
    TemporaryDirectory scratch_;
    std::string image_ = scratch_.file("image");
    std::string mount_ = scratch_.file("mount");
    std::unique_ptr<MountedLoop> loop_;  // in the child
};

}  // namespace penstock::testing
