// Executes the plans: moves weights to where compute reads them and tiles through the update, on a thread of its own.
//
// The driver's thread owns the Io and the store from construction to destruction. The compute thread asks and waits:
//   begin(pass) … enter(v), memory(u), leave(v) for each visit … begin_update() … next_tile(), put_back() … commit() or
//   end_update().
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/tensor_store.h"
#include "zero_infinity/device.h"
#include "zero_infinity/mailbox.h"
#include "zero_infinity/traffic.h"
#include "zero_infinity/unit.h"
#include "zero_infinity/update_lane.h"
#include "zero_infinity/weight_lane.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

struct DriverOptions {
    StateFormat format;
    Residency residency;
    std::uint32_t staging_tiles = 4;     // in memory at once during the update
    std::chrono::seconds deadline{120};  // for a device copy and for each read at the start; other I/O has the Io's
    bool keeping = false;                // keep() may be called: takes keep_bytes() of the budget's use keep_use
    Caching caching = Caching::direct;   // of snapshots
    std::string job = "penstock";        // owner of snapshots
};

// Names of the budget's uses that the driver takes its memory from, beside those of residents.h and keep_lane.h.
inline constexpr const char* weights_use = "weights";  // host window: the larger of the two passes'
inline constexpr const char* staging_use = "staging";  // staging_tiles × slot_bytes()

struct DriverParts {
    Io* io = nullptr;
    TensorStore* store = nullptr;
    PinnedPool* pool = nullptr;
    Device* device = nullptr;
    const std::vector<UnitLayout>* units = nullptr;
};

struct WaitTimes {
    std::chrono::nanoseconds weights{0};  // compute waited for weights
    std::chrono::nanoseconds tiles{0};    // the update waited for a tile
    std::chrono::nanoseconds commit{0};   // for the last writes and the manifest
    std::chrono::nanoseconds total() const noexcept { return weights + tiles + commit; }
};

// All calls on the compute thread. Any of them throws Error once an operation has failed (storage) or a device is stuck
// (see stuck()); after that only the destructor may be called. The constructor reads resident objects and so blocks.
class Driver {
   public:
    Driver(const DriverParts& parts, const DriverOptions& options, PassSchedules training, PassSchedules inference);
    ~Driver();
    Driver(const Driver&) = delete;
    Driver& operator=(const Driver&) = delete;

    void begin(Pass pass);            // REQUIRES: the last pass is over, the last update committed or ended
    void enter(std::uint32_t visit);  // blocks until compute may read the visit's groups
    // REQUIRES: the visit is entered and not left, the unit is one of its groups.
    UnitMemory memory(std::uint32_t visit, std::uint32_t unit) const;
    void leave(std::uint32_t visit);  // visits are entered and left in order

    void begin_update(ResidentParts residents);  // REQUIRES: as begin()
    std::optional<StagedTile> next_tile();       // blocks; nothing after the last tile of the last unit
    void put_back(const StagedTile& tile);       // updated; it is written while the next ones are worked on
    // Blocks until the update's writes have ended: nothing new is durable. REQUIRES: all tiles put back.
    void end_update();
    // Writes what was held back in host memory, and blocks until all is durable. REQUIRES: no pass, all tiles put back.
    void commit(const ClientState& client);

    // Begins to copy the newest committed generation into the new directory `path`, and returns at once; training may
    // go on. What becomes of it, failure included, is told by take_kept(). REQUIRES: keeping, as begin(), the newest
    // step is committed, no copy is under way.
    void keep(const std::string& path);
    KeepProgress keep_progress() const;
    // Blocks until the copy under way has ended, if there is one. `wanted` is asked every now and then, and shown how
    // far it is; once it says no, the copy is ended early.
    void finish_keep(const std::function<bool(const KeepProgress&)>& wanted);
    std::vector<KeptCopy> take_kept();  // copies that have ended since the last call

    const WaitTimes& waits() const noexcept;  // since construction
    // Lines for the log that came up since the last call, e.g. a tile that was right only when it was read again.
    std::vector<std::string> take_notes();

    // Ends the driver's thread, once what is under way is back or the deadline has passed: stuck() is final then. Only
    // stuck() and the destructor may follow.
    void stop() noexcept;

    // A device did not answer by the deadline. Its operations may still write into memory when they come back: the
    // driver's destructor keeps its own, and the Io, store, pool and device must be kept until the process ends.
    bool stuck() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock
