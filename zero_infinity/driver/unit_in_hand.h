// The unit that an update is at: its tiles in host memory, as they come.
#pragma once

#include "aio/io.h"
#include "zero_infinity/driver/mailbox.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/driver_memory.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

struct UnitInHandDeps {
    const ModelLayout* layout = nullptr;
    const StagingMemory* memory = nullptr;
    Mailbox* mailbox = nullptr;
    aio::Io* io = nullptr;           // to wake the driver's thread
    TraceRecorder* trace = nullptr;  // null: nobody records what happens
    TraceThread thread = TraceThread::compute;
};

// One thread at a time. What it is given outlives it. Waits are the driver's to end, and throw Error once it has
// failed.
class UnitInHand {
   public:
    enum class Tiles : std::uint8_t {
        through_driver,  // one at a time: read into a slot where they are not resident, and written behind the update
        all_at_once,     // host memory has all of them, and none is written
    };
    struct Unit {
        std::uint32_t unit = 0;
        Tiles tiles = Tiles::through_driver;
        std::byte* weights = nullptr;  // trainable ones, in host memory
        bool shut = false;             // orders::Shut was sent; it is opened once the last tile is put back
        std::uint64_t begun = 0;       // else: the number of the order that began the update
    };
    UnitInHand(const UnitInHandDeps& deps, const Unit& unit);

    std::uint32_t unit() const noexcept { return unit_.unit; }
    // Its next tiles, until they are put back; blocks; none after the last.
    std::span<const StagedTile> next();
    void put_back();     // those that next() gave: they are updated. REQUIRES: it gave some
    bool ended() const;  // all were put back
    std::chrono::nanoseconds waited() const noexcept { return waited_; }

   private:
    StagedTile tile(std::uint32_t index, const StagedStates& states) const;
    void await_weights();
    template <typename Wait>
    void wait(const TraceSpan& span, Wait wait);
    void send(const Order& order);

    UnitInHandDeps deps_;
    Unit unit_;
    std::vector<StagedTile> tiles_;  // with the caller
    std::uint32_t put_back_ = 0;     // so many were
    std::chrono::nanoseconds waited_{0};
    TraceStart updating_;
};

}  // namespace penstock::zero
