#include "tests/swap/kills/kill_window.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::testing {

KillWindow::KillWindow(aio::Io& io, store::TensorStore& store, const KillPlan& plan)
    : io_(io), store_(store), plan_(plan) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < store.layout().tile_count(); ++i) {
        bytes = std::max(bytes, store.extent_bytes(store.layout().tile(i)));
    }
    for (std::size_t i = 0; i < plan.in_flight; ++i) places_.emplace_back(bytes);
}

std::string KillWindow::run(std::span<const TileTask> tasks) {
    std::string complaint;
    std::size_t next = 0;
    while (true) {
        bool busy = false;
        for (Place& place : places_) {
            if (place.task == nullptr && next < tasks.size() && complaint.empty()) {
                place.task = &tasks[next++];
                place.started = place.reads = false;
                place.written = 0;
            }
            if (place.task != nullptr) busy |= advance(place, complaint);
        }
        if (!busy && (next == tasks.size() || !complaint.empty())) return complaint;
        io_.wait(busy ? std::chrono::seconds(1) : std::chrono::seconds(0));
    }
}

// False when the place became free.
bool KillWindow::advance(Place& place, std::string& complaint) {
    if (!place.idle()) return true;
    if (place.started) {
        if (const std::string wrong = judge(place); !wrong.empty()) {
            if (complaint.empty()) complaint = wrong;
            place.task = nullptr;
            return false;
        }
        place.written += place.reads ? 0 : 1;
    }
    const bool read_is_due = !place.started && place.task->holds != 0;
    if (!read_is_due && place.written == place.task->writes.size()) {
        place.task = nullptr;
        return false;
    }
    place.reads = read_is_due;
    start_next(place);
    place.started = true;
    return true;
}

void KillWindow::start_next(Place& place) {
    const store::TileId tile = place.task->tile;
    const auto memory = place.memory.span().first(store_.extent_bytes(tile));
    if (place.reads) {
        std::fill(memory.begin(), memory.end(), std::byte{0xaa});
        store_.read(place, tile, memory, aio::Urgency::demand);
    } else {
        fill_version(memory, plan_, tile, place.task->writes[place.written]);
        store_.write(place, tile, memory, aio::Urgency::write_back);
    }
}

std::string KillWindow::judge(const Place& place) const {
    if (place.error()) return place.error()->message;
    if (!place.reads) return {};
    const store::TileId tile = place.task->tile;
    const auto found = place.memory.span().first(store_.extent_bytes(tile));
    if (holds_version(found, store_.layout().tile_bytes(tile), plan_, tile, place.task->holds)) return {};
    return fmt::format("object {} tile {} does not hold version {:#x}", tile.object, tile.tile, place.task->holds);
}

}  // namespace penstock::testing
