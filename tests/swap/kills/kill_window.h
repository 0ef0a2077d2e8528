// A few tile operations in flight at once, over a list of tasks that is as long as one likes.
#pragma once

#include "tests/aio/fakes/scratch.h"
#include "tests/swap/kills/kill_plan.h"

#include <deque>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

// What is done with one tile, one after the other.
struct TileTask {
    store::TileId tile;
    Version holds = 0;            // read first, and found to be that; 0: not read
    std::vector<Version> writes;  // the last one counts
};

class KillWindow {
   public:
    // All outlive it.
    KillWindow(aio::Io& io, store::TensorStore& store, const KillPlan& plan);

    // Does all tasks, each tile's at most once; plan.in_flight at a time. What is wrong, or nothing.
    std::string run(std::span<const TileTask> tasks);

   private:
    struct Place final : store::TileOperation {
        explicit Place(std::uint64_t bytes) : memory(bytes) {}
        void tile_done() noexcept override {}
        aio::ScratchMemory memory;
        const TileTask* task = nullptr;  // null: free
        bool started = false;
        bool reads = false;
        std::size_t written = 0;
    };

    bool advance(Place& place, std::string& complaint);
    void start_next(Place& place);
    std::string judge(const Place& place) const;

    aio::Io& io_;
    store::TensorStore& store_;
    const KillPlan& plan_;
    std::deque<Place> places_;
};

}  // namespace penstock::testing
