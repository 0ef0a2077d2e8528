// Copies generations of the store into snapshots of their own while training goes on: one copy at a time.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/snapshot/snapshot_copy.h"
#include "zero_infinity/memory/residents.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::zero {

// What became of a copy.
struct EndedSnapshot {
    std::string path;
    std::uint64_t bytes = 0;             // copied: none where the snapshot shares the store's blocks
    std::optional<std::string> problem;  // why there is no snapshot; the store is not harmed by it
};

struct SnapshotProgress {
    bool under_way = false;
    std::uint64_t copied_bytes = 0;
    std::uint64_t total_bytes = 0;
};

struct SnapshotCopierDeps {
    aio::Io* io = nullptr;
    store::TensorStore* store = nullptr;
    const Residents* residents = nullptr;  // which alone have the tiles; null: the store has them
    aio::Caching caching = aio::Caching::direct;
    std::string job;     // owner of the snapshots' directories
    pool::Lease memory;  // of snapshot_bytes() in memory_plan.h; empty: of residents, or begin() is never called
};

// On the driver's thread.
class SnapshotCopier {
   public:
    explicit SnapshotCopier(SnapshotCopierDeps deps) : deps_(std::move(deps)) {}
    ~SnapshotCopier();

    // Begins to copy the newest committed generation into the new directory `path`, or shares its blocks where the file
    // system can; makes the directories above it. Polls the Io for some milliseconds. What cannot be begun has ended
    // with a problem. `client`: of a scratch store, which has none itself; else null. Of what residents alone have the
    // copy is whole, or has a problem, when this returns: until then nobody may change them. REQUIRES: idle(), memory
    // or residents, no update and no commit under way.
    void begin(const std::string& path, const store::ClientState* client);
    void stop() noexcept;  // the copy ends soon, with a problem
    bool idle() const noexcept { return !copy_ || copy_->finished(); }
    SnapshotProgress progress() const noexcept;

    // Once for each copy that has ended.
    std::optional<EndedSnapshot> take_ended();

   private:
    SnapshotCopierDeps deps_;
    std::string path_;
    std::unique_ptr<store::StoreDirectory> directory_;  // outlives the store that the copying holds
    std::unique_ptr<store::SnapshotCopy> copy_;
    std::optional<EndedSnapshot> ended_at_once_;
};

}  // namespace penstock::zero
