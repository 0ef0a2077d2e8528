// Executes the plans: moves weights to where compute reads them and tiles through the update, on a thread of its own.
//
// The driver's thread owns the Io, the store and all that moves bytes from construction to destruction. The compute
// thread sees the memory and a mailbox, and decides what is fetched to where (WindowPlan); it sends and waits:
//   visit(v, ahead), memory(u) … end_pass() … begin_update() … take(u), end_unit() … commit() or end_update().
// An update may go on within the passes that follow: a unit's tiles are then taken at the visit that first needs it.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/spill/spill.h"
#include "swap/store/tensor_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/mailbox.h"
#include "zero_infinity/driver/unit_in_hand.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/driver_memory.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/order/window_plan.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

struct DriverOptions {
    WindowUse window;                 // in the memory that compute reads
    std::uint64_t passage_bytes = 0;  // MemoryPlan's
    std::uint32_t staging_tiles = 4;  // with their states in memory at once during the update
    // Blocks of the spill that hold the gradients of an update, by number of tile; nothing where the caller has them,
    // and empty where it has all. The longest of them.
    std::vector<std::optional<store::SpillBlock>> gradients = {};
    std::uint64_t gradient_tile_bytes = 0;
    std::chrono::seconds deadline = aio::default_deadline;  // for a device copy; the Io has its own
    // begin_snapshot() may be called: takes snapshot_bytes() of the pool, unless residents alone have the tiles (fill).
    bool snapshots = false;
    aio::Caching caching = aio::Caching::direct;  // of snapshots
    std::string job = "penstock";                 // owner of snapshots
};

struct DriverDeps {
    aio::Io* io = nullptr;
    store::TensorStore* store = nullptr;
    pool::PinnedPool* pool = nullptr;
    Device* device = nullptr;
    Bringing* bringing = nullptr;
    const ModelLayout* layout = nullptr;  // which the store holds
    // Not empty: the store has no tile and gets none, for host memory keeps all of them. Called by the constructor.
    FillResidents fill = {};
    store::Spill* spill = nullptr;   // on that Io; null: nothing is spilled
    Lane* lane = nullptr;            // to other ranks, whose shards are gathered for good; null: none
    TraceRecorder* trace = nullptr;  // null: nobody records what happens
};

struct WaitTimes {
    std::chrono::nanoseconds weights{0};  // compute waited for weights
    std::chrono::nanoseconds tiles{0};    // the update waited for a tile
    std::chrono::nanoseconds commit{0};   // for the last writes and the manifest
    std::chrono::nanoseconds spills{0};   // for bytes that were spilled, or for their memory
    std::chrono::nanoseconds ranks{0};    // for sums and weights of other ranks
    std::chrono::nanoseconds total() const noexcept { return weights + tiles + commit + spills + ranks; }
};

// All calls on the compute thread, but fail(). Any of them throws Error once an operation has failed (storage) or a
// device is stuck (see stuck()); after that only the destructor may be called. The constructor reads resident objects
// and so blocks.
class Driver {
   public:
    Driver(const DriverDeps& deps, const DriverOptions& options);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    // Compute goes to these units, and is expected at `ahead` after them: blocks until it may read them, and has what
    // comes fetched meanwhile. An empty visit begins a pass. See WindowPlan::visit(), whose Error changes nothing here
    // either. A unit that awaits its update at arrival is not waited for: take() does.
    void visit(const Visit& visit, std::span<const Visit> ahead, std::span<const std::uint32_t> held = {});
    // REQUIRES: it does not await its update at arrival; and the last visit names it, or it is resident where compute
    // reads host memory (its place never changes).
    UnitMemory memory(std::uint32_t unit) const;
    void end_pass();  // compute reads no weights any more

    // Of all units with something to train, each once, or of some of them, in the order in which compute is expected to
    // take them: what an update reads is fetched ahead in that order; GradientsFrom::spill: also what was sent out
    // before. Writes of the last update may be under way still; they are waited for where host memory is to change that
    // they may read. REQUIRES: no pass, or UpdateAt::departure; no unit awaits its update; no commit is under way.
    void begin_update(std::vector<std::uint32_t> units, ResidentTiles residents, UpdateAt at = UpdateAt::arrival,
                      GradientsFrom gradients = GradientsFrom::memory);
    bool awaits_update(std::uint32_t unit) const noexcept;  // not all of its tiles were put back
    std::optional<std::uint32_t> next_awaiting() noexcept;  // the first of that order
    // Takes the unit in hand: blocks until its weights are in host memory. end_unit(): all of its tiles were put back,
    // and compute may read it, at UpdateAt::departure at the next visit. REQUIRES: no other unit is in hand; it awaits
    // its update; the last visit names it, or no pass has begun.
    UnitInHand& take(std::uint32_t unit);
    void end_unit();
    // The same of a unit whose weights are resident in host memory, and which another thread updates while compute goes
    // on: returns at once. Until all of its tiles are put back no fetch reads them, so that a visit would wait; what
    // compute has on the device stays as it was until that visit. Then it is ended here, in any order.
    UnitInHand hand_out(std::uint32_t unit);
    void end_unit(const UnitInHand& handed_out);
    void fail(const Error& error) noexcept;  // any thread: what was handed out is not updated, and every wait ends
    bool is_resident(std::uint32_t unit) const noexcept;  // its weights are, in host memory
    // What the last update wrote of these units, whose weights and states are on NVMe, is as if it had not been: they
    // are as the newest commit has them. REQUIRES: no pass, end_update(), a durable store, nothing else was written of
    // them.
    void take_back(const std::vector<std::uint32_t>& units);
    // What compute finds in the same place at all times, where it reads elsewhere than where tiles arrive. Of several
    // ranks all call it, and what each unit's update has changed is on its way from the end of that.
    void renew_residents(GatheredResidents::Renew what = GatheredResidents::Renew::updated);
    // Blocks until the updates' writes have ended: nothing new is durable. REQUIRES: no unit awaits its update.
    void end_update();
    // Writes what was held back in host memory; blocks until it is in the store, if that has tiles, and nothing new is
    // durable. REQUIRES: as begin_commit().
    void write_back();
    // Writes what was held back in host memory, and makes all durable: finish_commit() blocks until it is. REQUIRES: no
    // unit awaits its update, no commit is under way.
    void begin_commit(const store::ClientState& client);
    bool commits() const noexcept;                  // one is under way, or has ended unseen
    bool commit_ended();                            // does not block
    void finish_commit();                           // nothing when none is under way
    void commit(const store::ClientState& client);  // both

    // One tile by itself, between memory of its extent and the store; blocks until it is done. Read are the newest
    // bytes, also of what host memory holds back; written is for the next commit, and to where host memory holds it.
    // After an error a device may still be at the memory. REQUIRES: as begin_update(); of read: it was written.
    void read(store::TileId tile, std::span<std::byte> memory);
    void write(store::TileId tile, std::span<std::byte> memory);

    // Bytes of compute's that leave host memory and come back within this run (swap/spill/spill.h), at any time. A
    // block is reserved on disk once, which blocks, and goes out and in any number of times, in the order of the calls,
    // which return at once: its memory, whole granules of the pool, is the driver's until wait_for_spill(). What a
    // block holds nobody else sees. `unit` names it in the trace. Throws Error: does_not_fit (no room on disk: says
    // what to do).
    store::SpillBlock allocate_spill(std::uint64_t bytes);
    void spill_out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit = no_trace_index);
    void spill_in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit = no_trace_index);
    // Blocks until the block has ended all that it was sent for: what went out may be changed, what came in is there.
    void wait_for_spill(store::SpillBlock block);

    // Begins to copy the newest committed generation into the new directory `path`, and returns at once; training may
    // go on. A scratch store has no generation: it is copied as it is, and the copy's client state is `client`. What
    // host memory alone has is not kept apart from what training changes: of that the copy has ended on return. What
    // becomes of it, failure included, is told by take_snapshots(). REQUIRES: memory for snapshots was planned, as
    // begin_update(), the newest step is committed or (scratch) written back, no copy is under way.
    void begin_snapshot(const std::string& path, const store::ClientState* client = nullptr);
    SnapshotProgress snapshot_progress() const;
    // Blocks until the copy under way has ended, if there is one. `wanted` is asked every now and then, and shown how
    // far it is; once it says no, the copy is ended early.
    void finish_snapshot(const std::function<bool(const SnapshotProgress&)>& wanted);
    std::vector<EndedSnapshot> take_snapshots();  // copies that have ended since the last call

    const WaitTimes& waits() const noexcept;       // since construction
    std::uint64_t fetched_bytes() const noexcept;  // since construction, into the window
    // Lines for the log that came up since the last call, e.g. a tile that was right only when it was read again.
    std::vector<std::string> take_notes();

    // Ends the driver's thread, once what is under way is back or the deadline has passed: stuck() is final then. Only
    // stuck() and the destructor may follow.
    void stop() noexcept;

    bool failed() const;  // for good: an operation has failed, or a device is stuck

    // A device did not answer by the deadline. Its operations may still write into memory when they come back: the
    // driver's destructor keeps its own, and the Io, store, pool and device must be kept until the process ends.
    bool stuck() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::zero
