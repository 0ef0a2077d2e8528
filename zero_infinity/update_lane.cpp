#include "zero_infinity/update_lane.h"

#include "aio/check.h"

#include <algorithm>

namespace penstock {
// Memory for one tile at a time, and the operations that fill and empty it.
class UpdateLane::Slot {
   public:
    enum class State : std::uint8_t {
        empty,    // free for the next tile
        reading,  // its parts are being read
        present,  // the caller's to update
        writing,  // its parts are being written
    };

    explicit Slot(UpdateLane& lane) : lane_(&lane) {
        weights_.slot = this;
        states_.slot = this;
    }

    State state() const noexcept { return state_; }
    std::uint64_t number() const noexcept { return number_; }

    void read(std::uint64_t number) {
        number_ = number;
        state_ = State::reading;
        pending_ = 1;  // held until all parts are started: a resident tile is present at once
        const UnitObjects& objects = unit_objects();
        const Residency& residency = lane_->parts_.residency;
        if (objects.weights && lane_->parts_.format.codec->master_needs_weights && residency.weights == Tier::nvme)
            start_read(weights_, *objects.weights, lane_->places(number).weights);
        if (objects.states && residency.states == Tier::nvme)
            start_read(states_, *objects.states, lane_->places(number).states);
        part_done();
    }

    void write() {
        PENSTOCK_CHECK(state_ == State::present, "tile {} is put back but was not handed out", number_);
        write_parts([work = lane_->work_](Tier tier) { return tier == Tier::nvme || work == Work::update; });
    }

    void write_residents(std::uint64_t number) {
        number_ = number;
        write_parts([](Tier tier) { return tier == Tier::host; });
    }

   private:
    struct Part final : TileOperation {
        void tile_done() noexcept override { slot->operation_done(*this); }
        Slot* slot = nullptr;
    };

    const UnitObjects& unit_objects() const { return (*lane_->parts_.objects)[lane_->tiles_[number_].unit]; }
    TileId tile_of(std::uint32_t object) const { return {object, lane_->tiles_[number_].tile}; }

    // Those whose tier is `wanted`.
    template <typename Wanted>
    void write_parts(Wanted wanted) {
        state_ = State::writing;
        pending_ = 1;
        const UnitObjects& objects = unit_objects();
        const Residency& residency = lane_->parts_.residency;
        if (objects.weights && wanted(residency.weights))
            start_write(weights_, *objects.weights, lane_->places(number_).weights);
        if (objects.states && wanted(residency.states))
            start_write(states_, *objects.states, lane_->places(number_).states);
        part_done();
    }

    void start_read(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        ++pending_;
        ++lane_->operations_under_way_;
        // Tiles ahead of compute: as demand reads they would hold back the writes of the tiles before them.
        lane_->parts_.store->read(part, tile_of(object), memory, Urgency::prefetch);
    }

    void start_write(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        ++pending_;
        ++lane_->operations_under_way_;
        lane_->parts_.store->write(part, tile_of(object), memory, Urgency::write_back);
    }

    void operation_done(const Part& part) noexcept {
        --lane_->operations_under_way_;
        if (part.error() && !lane_->error_) lane_->error_ = part.error();
        part_done();
    }

    void part_done() noexcept {
        if (--pending_ > 0) return;
        if (state_ == State::reading) {
            state_ = State::present;
        } else {
            state_ = State::empty;
            ++lane_->written_;
        }
    }

    UpdateLane* lane_;
    Part weights_;
    Part states_;
    State state_ = State::empty;
    std::uint64_t number_ = 0;
    std::uint32_t pending_ = 0;
};

std::uint64_t slot_bytes(const std::vector<UnitLayout>& units, const StateFormat& format, Residency residency) {
    std::uint64_t largest = 0;
    for (const UnitLayout& unit : units) {
        const std::uint64_t numel = unit.tile_count() > 0 ? unit.tile_numel(0) : 0;
        const std::uint64_t weights =
            residency.weights == Tier::host ? 0 : whole_granules(numel * format.weights_bytes());
        const std::uint64_t states = residency.states == Tier::host ? 0 : whole_granules(format.states_bytes(numel));
        largest = std::max(largest, weights + states);
    }
    return largest;
}

UpdateLane::UpdateLane(const UpdateLaneParts& parts)
    : parts_(parts), slot_bytes_(slot_bytes(*parts.units, parts.format, parts.residency)) {
    PENSTOCK_CHECK(parts.slots > 0, "the update needs at least one staging slot");
    for (std::uint32_t unit = 0; unit < parts.units->size(); ++unit)
        for (std::uint32_t tile = 0; tile < (*parts.units)[unit].tile_count(); ++tile) tiles_.push_back({unit, tile});
    for (std::uint32_t slot = 0; slot < parts.slots; ++slot) slots_.push_back(std::make_unique<Slot>(*this));
    next_tile_ = written_ = tiles_.size();
}

UpdateLane::~UpdateLane() {
    PENSTOCK_CHECK(idle(), "{} operations are under way", operations_under_way_);
}

void UpdateLane::begin(ResidentParts parts) {
    begin(parts == ResidentParts::written ? Work::update : Work::update_holding_back);
    const bool residents = parts_.residency.weights == Tier::host || parts_.residency.states == Tier::host;
    holds_back_ = residents && parts == ResidentParts::held_back;
}

void UpdateLane::write_residents() {
    begin(Work::write_residents);
    holds_back_ = false;
}

void UpdateLane::begin(Work work) {
    PENSTOCK_CHECK(finished(), "an update begins but {} of {} tiles of the last one are written", written_,
                   tiles_.size());
    work_ = work;
    next_tile_ = written_ = 0;
}

void UpdateLane::put_back(std::uint64_t number) {
    slots_[number % slots_.size()]->write();
}

void UpdateLane::pump() {
    while (!error_ && next_tile_ < tiles_.size()) {
        Slot& slot = *slots_[next_tile_ % slots_.size()];
        if (slot.state() != Slot::State::empty) return;
        const std::uint64_t number = next_tile_++;
        work_ == Work::write_residents ? slot.write_residents(number) : slot.read(number);
    }
}

bool UpdateLane::present(std::uint64_t number) const {
    const Slot& slot = *slots_[number % slots_.size()];
    return slot.number() == number && slot.state() == Slot::State::present;
}

UpdateLane::Places UpdateLane::places(std::uint64_t number) const {
    const Entry& entry = tiles_[number];
    const UnitObjects& objects = (*parts_.objects)[entry.unit];
    std::byte* free = parts_.staging + number % slots_.size() * slot_bytes_;
    Places places;
    if (objects.weights) {
        const std::uint64_t bytes = parts_.store->extent_bytes({*objects.weights, entry.tile});
        std::byte* resident = parts_.residents->group(entry.unit);
        const std::uint64_t stride = parts_.store->layout().objects()[*objects.weights].tile_bytes;
        places.weights = {resident != nullptr ? resident + entry.tile * stride : free, bytes};
        if (resident == nullptr) free += bytes;
    }
    if (objects.states) {
        const TileId id{*objects.states, entry.tile};
        std::byte* resident = parts_.residents->states(id);
        places.states = {resident != nullptr ? resident : free, parts_.store->extent_bytes(id)};
    }
    return places;
}

StagedTile UpdateLane::staged(std::uint64_t number) const {
    const Entry& entry = tiles_[number];
    const Places where = places(number);
    return {entry.unit,
            entry.tile,
            number,
            {where.weights.data(), where.states.data(), (*parts_.units)[entry.unit].tile_numel(entry.tile)}};
}

}  // namespace penstock
