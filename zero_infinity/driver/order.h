// What compute tells the driver to do, in the order in which it is sent. Few per step: one per fetch and one per tile.
#pragma once

#include "aio/transfer.h"
#include "aio/words/error.h"
#include "swap/format/manifest.h"
#include "swap/spill/spill.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/spill_lane.h"
#include "zero_infinity/memory/residents.h"
#include "zero_infinity/order/window_plan.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace penstock::zero {
namespace orders {

// Weights.
struct Bring {
    Fetch fetch;
    FetchUse use = FetchUse::compute;
    Ticket after = {};  // when compute has left its place
};
struct Await {  // compute waits for a fetch that was made ahead of it
    std::uint32_t unit = 0;
};

// An update.
struct BeginUpdate {
    std::vector<std::uint32_t> units;
    ResidentTiles residents = ResidentTiles::written;
    GradientsFrom gradients = GradientsFrom::memory;
};
struct AwaitUpdate {  // as Await, and for the unit's tiles
    std::uint32_t unit = 0;
};
struct BeginUnit {  // compute has taken it, and updates it where it lies
    std::uint32_t unit = 0;
};
struct PutBack {
    std::uint64_t number = 0;      // of the tile
    std::byte* weights = nullptr;  // where the tile's lie; null: it has none
};
struct EndUnit {  // all its tiles were put back
    std::uint32_t unit = 0;
};
// Of an update beside compute, of weights that are resident in host memory: no fetch of them begins, and when those
// that have begun are done they may change; until open. Or it has failed, and with it all that is to come.
struct Shut {
    std::uint32_t unit = 0;
};
struct Open {
    std::uint32_t unit = 0;
};
struct Fail {
    ExitCode code = ExitCode::internal;
    std::string message;
};
struct TakeBack {  // what the update wrote of these units, which has ended
    std::vector<std::uint32_t> units;
};

// What is written and durable.
struct WriteBack {};  // what host memory holds back
struct MakeDurable {  // the same, and a commit
    std::shared_ptr<const store::ClientState> client;
};
struct Snapshot {
    std::string path;
    std::shared_ptr<const store::ClientState> client;  // null: the store's
};
struct EndSnapshot {};

// One tile by itself.
struct ReadAlone {
    store::TileId tile;
    std::span<std::byte> memory;
};
struct WriteAlone {
    store::TileId tile;
    std::span<std::byte> memory;
};

// Bytes of compute's that leave host memory and come back.
struct AllocateSpill {
    std::uint64_t bytes = 0;
};
struct SendSpill {
    store::SpillBlock block;
    SpillErrand::Way way = SpillErrand::Way::out;
    std::span<std::byte> memory;
    aio::Urgency urgency = aio::Urgency::write_back;
    std::uint32_t unit = no_trace_index;  // for the trace
};
struct AwaitSpill {  // compute waits for all that the block was sent for
    store::SpillBlock block;
};

struct Stop {};  // before all that it came behind

}  // namespace orders

using Order =
    std::variant<orders::Bring, orders::Await, orders::BeginUpdate, orders::AwaitUpdate, orders::BeginUnit,
                 orders::PutBack, orders::EndUnit, orders::Shut, orders::Open, orders::Fail, orders::TakeBack,
                 orders::WriteBack, orders::MakeDurable, orders::Snapshot, orders::EndSnapshot, orders::ReadAlone,
                 orders::WriteAlone, orders::AllocateSpill, orders::SendSpill, orders::AwaitSpill, orders::Stop>;

template <typename Kind>
bool is(const Order& order) noexcept {
    return std::holds_alternative<Kind>(order);
}

}  // namespace penstock::zero
