#include "zero_infinity/driver/weight_streamer.h"

#include "aio/words/check.h"

#include <algorithm>

namespace penstock::zero {

// Reads all tiles of one unit's group into its place. One fetch at a time: a group is never fetched again before it
// was dropped.
class WeightStreamer::GroupRead {
   public:
    GroupRead(WeightStreamer& streamer, std::vector<GroupTile> tiles) : streamer_(&streamer), tiles_(std::move(tiles)) {
        operations_ = std::vector<TileRead>(tiles_.size());
        for (TileRead& operation : operations_) operation.group = this;
    }

    void start(const Fetch& fetch, std::byte* place, aio::Urgency urgency) {
        PENSTOCK_CHECK(pending_ == 0, "unit {} is being read already", fetch.group);
        fetch_ = &fetch;
        pending_ = tiles_.size();
        for (std::size_t index = 0; index < tiles_.size(); ++index) {
            const GroupTile& part = tiles_[index];
            streamer_->deps_.store->read(operations_[index], part.tile, {place + part.offset_bytes, part.bytes},
                                         urgency);
        }
    }

   private:
    struct TileRead final : store::TileOperation {
        void tile_done() noexcept override { group->tile_done(*this); }
        GroupRead* group = nullptr;
    };

    void tile_done(const TileRead& operation) noexcept {
        if (operation.error() && !streamer_->error_) streamer_->error_ = operation.error();
        if (--pending_ > 0) return;
        --streamer_->reads_under_way_;
        if (!streamer_->error_) streamer_->host_plan_.arrived(*fetch_);
    }

    WeightStreamer* streamer_;
    std::vector<GroupTile> tiles_;
    std::vector<TileRead> operations_;
    const Fetch* fetch_ = nullptr;
    std::size_t pending_ = 0;
};

WeightStreamer::WeightStreamer(const WeightStreamerDeps& deps)
    : deps_(deps), host_plan_(deps.memory->schedules().host) {
    const PassSchedules& schedules = deps.memory->schedules();
    if (schedules.device) device_plan_.emplace(*schedules.device);
    PENSTOCK_CHECK(!schedules.device || schedules.device->depth() <= schedules.host.depth(),
                   "the device window looks {} visits ahead, the host window only {}", schedules.device->depth(),
                   schedules.host.depth());
    for (std::uint32_t unit = 0; unit < deps.layout->unit_count(); ++unit) {
        auto tiles = deps.layout->group_tiles(unit);
        reads_.push_back(tiles.empty() ? nullptr : std::make_unique<GroupRead>(*this, std::move(tiles)));
    }
}

WeightStreamer::~WeightStreamer() {
    PENSTOCK_CHECK(idle(), "{} reads and {} copies are under way", reads_under_way_, copies_.size());
}

void WeightStreamer::begin() {
    PENSTOCK_CHECK(idle(), "a pass begins while {} reads are under way", reads_under_way_);
    host_plan_.begin();
    if (device_plan_) device_plan_->begin();
    to_copy_.clear();
}

void WeightStreamer::used(std::uint32_t visit) {
    host_plan_.used(visit);
    if (!device_plan_) return;
    for (const std::uint32_t index : device_plan_->used(visit)) {
        const Fetch& fetch = deps_.memory->schedules().device->fetches()[index];
        deps_.device->released(deps_.memory->device(fetch), fetch.bytes);
    }
}

void WeightStreamer::pump() {
    if (!error_) start_reads();
    if (!error_ && device_plan_) start_copies();
    take_in();
}

void WeightStreamer::start_reads() {
    while (const Fetch* fetch = host_plan_.next()) {
        ++reads_under_way_;
        const aio::Urgency urgency =
            fetch->first_visit <= host_plan_.cursor() ? aio::Urgency::demand : aio::Urgency::prefetch;
        reads_[fetch->group]->start(*fetch, deps_.memory->host(*fetch), urgency);
    }
}

void WeightStreamer::start_copies() {
    while (const Fetch* fetch = device_plan_->next()) to_copy_.push_back(fetch);
    while (!to_copy_.empty()) {
        const Fetch& fetch = *to_copy_.front();
        const std::byte* from = source(fetch);
        if (from == nullptr) return;  // copies keep their order: the first one is the most urgent
        const auto now = std::chrono::steady_clock::now();
        std::byte* to = deps_.memory->device(fetch);
        copies_.push_back({&fetch, deps_.device->copy_in(to, from, fetch.bytes), now});
        to_copy_.pop_front();
    }
}

void WeightStreamer::take_in() {
    while (!copies_.empty() && deps_.device->reached(copies_.front().ticket)) {
        if (!error_) device_plan_->arrived(*copies_.front().fetch);
        copies_.pop_front();
    }
}

std::byte* WeightStreamer::source(const Fetch& copy) const {
    if (std::byte* resident = deps_.residents->group(copy.group)) return resident;
    const WeightSchedule& host = deps_.memory->schedules().host;
    const Fetch& held = host.holder(copy.first_visit, copy.group);
    const auto index = static_cast<std::uint32_t>(&held - host.fetches().data());
    return host_plan_.state(index) == WeightPlan::FetchState::present ? deps_.memory->host(held) : nullptr;
}

std::optional<std::chrono::nanoseconds> WeightStreamer::oldest_copy() const {
    if (copies_.empty()) return std::nullopt;
    return std::chrono::steady_clock::now() - copies_.front().started;
}

bool WeightStreamer::copying() const noexcept {
    return !copies_.empty();
}

bool WeightStreamer::idle() const noexcept {
    return reads_under_way_ == 0 && copies_.empty();
}

bool WeightStreamer::ready(std::uint32_t visit) const {
    return device_plan_ ? device_plan_->ready(visit) : host_plan_.ready(visit);
}

}  // namespace penstock::zero
