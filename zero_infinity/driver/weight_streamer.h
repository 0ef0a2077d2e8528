// Makes fetches: reads units' weights into the window, or through host memory to a window apart (bringing.h); or brings
// them to host memory for an update, from NVMe or from where compute has read them apart, and keeps them there until
// they were written.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/fetch_state.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/bringing.h"
#include "zero_infinity/memory/driver_memory.h"
#include "zero_infinity/memory/host_passage.h"
#include "zero_infinity/order/window_plan.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace penstock::zero {

struct WeightStreamerDeps {
    store::TensorStore* store = nullptr;
    Device* device = nullptr;  // whose tickets say how far copies are
    Bringing* bringing = nullptr;
    const ModelLayout* layout = nullptr;
    const WeightMemory* memory = nullptr;
    TraceRecorder* trace = nullptr;
    // Compute may read it once the ticket is reached, which is so from the start where it reads host memory.
    std::function<void(const Fetch&, Ticket there)> arrived;
    // The unit's trainable weights may be updated there: ModelLayout::shard_tiles(), but for what is frozen.
    std::function<void(const Fetch&, std::byte* weights)> offer;
    // They may not any more, and come again where they are wanted. False: compute has taken them, and will say so.
    std::function<bool(const Fetch&)> withdraw;
};

// On the driver's thread.
class WeightStreamer {
   public:
    explicit WeightStreamer(WeightStreamerDeps deps);
    ~WeightStreamer();

    // As soon as earlier ones to its place, or of its unit, have ended. For compute: a copy to a device comes after the
    // ticket. For an update: of trainable weights those come that the codec rebuilds masters from; the memory is
    // taken from updating() until written(). Until then it is given up for a later fetch to its place, and for one
    // that compute waits for: then it is made again.
    void fetch(const Fetch& fetch, FetchUse use, Ticket after);
    void updating(std::uint32_t unit);  // compute has begun with it. REQUIRES: it was offered
    void updated(std::uint32_t unit);   // compute may read it, too, where that is its use. REQUIRES: updating()
    void written(std::uint32_t unit);   // from where it lies. REQUIRES: updating()
    // Of a unit that is resident in host memory: no fetch of it begins from shut() to open().
    void shut(std::uint32_t unit);
    void open(std::uint32_t unit) { shut_[unit] = false; }
    bool has(std::uint32_t unit) const noexcept;  // a fetch that has begun and is not done
    // Compute waits for its fetch: it goes before others, which give up what they have for an update.
    void await(std::uint32_t unit);
    void pump();                  // take_in(), then starts what may be started
    void take_in();               // device copies that have ended
    bool quiet() const noexcept;  // reads and copies that were begun have ended: what must be so before the end
    bool copying() const noexcept { return !copies_.empty(); }  // device copies are under way: pump again soon
    bool fetched() const noexcept;                              // all that was asked for is there; some may be written
    bool idle() const noexcept;                                 // and nothing is written
    std::optional<std::chrono::nanoseconds> oldest_copy() const;  // since when the first copy under way runs
    const std::optional<store::StoreError>& error() const noexcept { return error_; }

   private:
    class UnitRead;  // the reads of one unit's tiles
    // As it was asked for.
    struct Given {
        Fetch fetch;
        FetchUse use = FetchUse::compute;
        Ticket after;
    };
    struct Waiting {
        Given given;
        bool demanded = false;  // compute stands still for it
        // Where host memory has no room, it takes that of others. An awaited one for an update does not yet: compute
        // may stand still for another of the same visit, which this one would take the room of.
        bool takes_room() const noexcept { return demanded || (given.fetch.awaited && given.use == FetchUse::compute); }
    };
    struct UnderWay {
        Given given;
        FetchState state = FetchState::reading;
        // Its writes have ended. Apart from the state, because they end when the store says so: while compute updates
        // the last tile, while the copy to the device is under way, or behind both.
        bool written = false;
        std::optional<std::uint64_t> passage_offset = {};  // in host memory, on its way to the device
    };
    struct Copy {
        std::uint32_t unit = 0;
        TraceLane lane = TraceLane::copy_in;
        Ticket ticket;
        std::chrono::steady_clock::time_point started;
        TraceStart traced;
        std::uint64_t bytes = 0;
    };

    bool apart() const noexcept { return deps_.bringing->apart(); }
    FetchState first_state(const Given& given) const;
    bool in_the_way(const UnderWay& other, const Fetch& fetch) const noexcept;
    bool may_start(std::size_t waiting) const;
    bool start(const Waiting& waiting);
    void begin(UnderWay& started);
    bool give_up(const std::function<bool(const UnderWay&)>& wanted, bool again);
    std::byte* host_place(const UnderWay& under_way) const;
    void read_done(std::uint32_t unit);
    void copy_in(UnderWay& each);
    void copy_back(UnderWay& each);
    template <typename Begin>
    Ticket begin_copy(std::uint32_t unit, TraceLane lane, std::uint64_t bytes, Begin begin);
    void copied(const Copy& copy);
    void pass_to(UnderWay& each, FetchState next);  // the only place that changes a state. REQUIRES: may_follow()
    void end(UnderWay& each);                       // which is gone then
    void end_if_written(UnderWay& each);
    UnderWay* find(std::uint32_t unit);       // null: it has none
    UnderWay& under_way(std::uint32_t unit);  // REQUIRES: it has one

    // Fixed at construction.
    WeightStreamerDeps deps_;
    std::vector<std::unique_ptr<UnitRead>> reads_;  // by unit; null without tiles

    // A fetch is in one of the two lists, never in both: in the first until it has its memory, in the second until it
    // is done. It goes back from the second to the first when it is given up for another.
    std::deque<Waiting> waiting_;      // in the order in which they were asked for
    std::vector<UnderWay> under_way_;  // one of a unit at most, and so never moved by growing
    std::vector<bool> shut_;           // by unit
    HostPassage passage_;              // what those under way have of host memory

    // Of those under way, by unit.
    std::vector<std::uint32_t> to_copy_;  // in the order in which they were read, which is not that of their beginning
    std::vector<Copy> copies_;            // under way, in the order in which they began

    std::optional<store::StoreError> error_;  // the first one: nothing begins after it
};

}  // namespace penstock::zero
