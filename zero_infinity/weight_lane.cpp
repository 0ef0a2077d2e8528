#include "zero_infinity/weight_lane.h"

#include "aio/check.h"

#include <algorithm>

namespace penstock {

// Reads all tiles of one unit's group into its place. One fetch at a time: a group is never fetched again before it
// was dropped.
class WeightLane::GroupRead {
   public:
    GroupRead(WeightLane& lane, std::vector<GroupTile> tiles) : lane_(&lane), tiles_(std::move(tiles)) {
        operations_ = std::vector<TileRead>(tiles_.size());
        for (TileRead& operation : operations_) operation.group = this;
    }

    void start(const Fetch& fetch, std::byte* place, Urgency urgency) {
        PENSTOCK_CHECK(pending_ == 0, "unit {} is being read already", fetch.group);
        fetch_ = &fetch;
        pending_ = tiles_.size();
        for (std::size_t index = 0; index < tiles_.size(); ++index) {
            const GroupTile& part = tiles_[index];
            lane_->parts_.store->read(operations_[index], part.tile, {place + part.offset_bytes, part.bytes}, urgency);
        }
    }

   private:
    struct TileRead final : TileOperation {
        void tile_done() noexcept override { group->tile_done(*this); }
        GroupRead* group = nullptr;
    };

    void tile_done(const TileRead& operation) noexcept {
        if (operation.error() && !lane_->error_) lane_->error_ = operation.error();
        if (--pending_ > 0) return;
        --lane_->reads_under_way_;
        if (!lane_->error_) lane_->host_plan_.arrived(*fetch_);
    }

    WeightLane* lane_;
    std::vector<GroupTile> tiles_;
    std::vector<TileRead> operations_;
    const Fetch* fetch_ = nullptr;
    std::size_t pending_ = 0;
};

WeightLane::WeightLane(const WeightLaneParts& parts, PassSchedules schedules)
    : parts_(parts), schedules_(std::move(schedules)), host_plan_(schedules_.host) {
    if (schedules_.device) device_plan_.emplace(*schedules_.device);
    PENSTOCK_CHECK(!schedules_.device || schedules_.device->depth() <= schedules_.host.depth(),
                   "the device window looks {} visits ahead, the host window only {}", schedules_.device->depth(),
                   schedules_.host.depth());
    for (std::uint32_t unit = 0; unit < parts.units->size(); ++unit) {
        auto tiles = group_tiles((*parts.units)[unit], (*parts.objects)[unit], *parts.store, parts.format);
        reads_.push_back(tiles.empty() ? nullptr : std::make_unique<GroupRead>(*this, std::move(tiles)));
    }
}

WeightLane::~WeightLane() {
    PENSTOCK_CHECK(idle(), "{} reads and {} copies are under way", reads_under_way_, copies_.size());
}

void WeightLane::begin() {
    PENSTOCK_CHECK(idle(), "a pass begins while {} reads are under way", reads_under_way_);
    host_plan_.begin();
    if (device_plan_) device_plan_->begin();
    to_copy_.clear();
}

void WeightLane::used(std::uint32_t visit) {
    host_plan_.used(visit);
    if (!device_plan_) return;
    for (const std::uint32_t index : device_plan_->used(visit)) {
        const Fetch& fetch = schedules_.device->fetches()[index];
        parts_.device->released(parts_.device_window + fetch.offset_bytes, fetch.bytes);
    }
}

void WeightLane::pump() {
    if (!error_) start_reads();
    if (!error_ && device_plan_) start_copies();
    take_in();
}

void WeightLane::start_reads() {
    while (const Fetch* fetch = host_plan_.next()) {
        ++reads_under_way_;
        const Urgency urgency = fetch->first_visit <= host_plan_.cursor() ? Urgency::demand : Urgency::prefetch;
        reads_[fetch->group]->start(*fetch, parts_.host_window + fetch->offset_bytes, urgency);
    }
}

void WeightLane::start_copies() {
    while (const Fetch* fetch = device_plan_->next()) to_copy_.push_back(fetch);
    while (!to_copy_.empty()) {
        const Fetch& fetch = *to_copy_.front();
        const std::byte* from = source(fetch);
        if (from == nullptr) return;  // copies keep their order: the first one is the most urgent
        const auto now = std::chrono::steady_clock::now();
        std::byte* to = parts_.device_window + fetch.offset_bytes;
        copies_.push_back({&fetch, parts_.device->copy_in(to, from, fetch.bytes), now});
        to_copy_.pop_front();
    }
}

void WeightLane::take_in() {
    while (!copies_.empty() && parts_.device->reached(copies_.front().ticket)) {
        if (!error_) device_plan_->arrived(*copies_.front().fetch);
        copies_.pop_front();
    }
}

std::byte* WeightLane::source(const Fetch& copy) const {
    if (std::byte* resident = parts_.residents->group(copy.group)) return resident;
    const Fetch& held = host_plan_.holder(copy.first_visit, copy.group);
    const auto index = static_cast<std::uint32_t>(&held - schedules_.host.fetches().data());
    return host_plan_.state(index) == WeightPlan::FetchState::present ? parts_.host_window + held.offset_bytes
                                                                      : nullptr;
}

std::optional<std::chrono::nanoseconds> WeightLane::oldest_copy() const {
    if (copies_.empty()) return std::nullopt;
    return std::chrono::steady_clock::now() - copies_.front().started;
}

bool WeightLane::copying() const noexcept {
    return !copies_.empty();
}

bool WeightLane::idle() const noexcept {
    return reads_under_way_ == 0 && copies_.empty();
}

bool WeightLane::ready(std::uint32_t visit) const {
    return device_plan_ ? device_plan_->ready(visit) : host_plan_.ready(visit);
}

std::uint32_t WeightLane::visit_count() const noexcept {
    return static_cast<std::uint32_t>(schedules_.host.visits().size());
}

UnitMemory WeightLane::memory(std::uint32_t visit, std::uint32_t unit) const {
    std::byte* group = nullptr;
    if (device_plan_) {
        const Fetch& fetch = device_plan_->holder(visit, unit);
        group = parts_.device_window + fetch.offset_bytes;
    } else if (std::byte* resident = parts_.residents->group(unit)) {
        group = resident;
    } else {
        group = parts_.host_window + host_plan_.holder(visit, unit).offset_bytes;
    }
    return {group, group + weights_bytes((*parts_.units)[unit], parts_.format)};
}

}  // namespace penstock
