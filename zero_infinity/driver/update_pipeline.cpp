#include "zero_infinity/driver/update_pipeline.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

// Memory for one tile's states, and its gradient, at a time, and the operations that fill it, empty it and write the
// tile's weights.
class UpdatePipeline::Slot final : SpillListener {
   public:
    enum class State : std::uint8_t {
        empty,    // free for the next tile
        reading,  // its states are being read
        staged,   // the caller's to update
        writing,  // its parts are being written
    };

    Slot(UpdatePipeline& pipeline, std::uint32_t index) : pipeline_(&pipeline), index_(index) {
        weights_.slot = this;
        states_.slot = this;
    }

    State state() const noexcept { return state_; }
    std::uint64_t number() const noexcept { return number_; }
    std::uint32_t unit() const { return tile().unit; }
    std::uint64_t update() const noexcept { return update_; }
    void give_up() noexcept { state_ = State::empty; }  // REQUIRES: staged, and not handed out

    void read(std::uint64_t number) {
        take(number);
        state_ = State::reading;
        pending_ = 1;  // held until all parts are started: a resident tile is there at once
        if (objects().states && layout().states_tier(tile()) == Tier::nvme)
            start_read(states_, *objects().states, states_memory());
        if (const auto block = pipeline_->gradient_of(number)) {
            ++pending_;  // the lane's to wait for
            pipeline_->deps_.spills->send(*block, {.way = SpillErrand::Way::in,
                                                   .memory = gradient_memory(),
                                                   .urgency = aio::Urgency::prefetch,
                                                   .listener = this,
                                                   .unit = unit(),
                                                   .tile = tile().tile});
        }
        part_done();
    }

    void write(std::byte* weights) {
        PENSTOCK_CHECK(state_ == State::staged, "tile {} is put back but was not handed out", number_);
        write_parts(weights, [work = work_](Tier tier) { return tier == Tier::nvme || work == Work::update; });
    }

    void write_residents(std::uint64_t number) {
        take(number);
        write_parts(pipeline_->deps_.memory->resident_weights(number), [](Tier tier) { return tier == Tier::host; });
    }

   private:
    struct Part final : store::TileOperation {
        void tile_done() noexcept override { slot->operation_done(*this); }
        Slot* slot = nullptr;
        TraceStart started;
        TraceLane lane = TraceLane::read;
        std::uint64_t bytes = 0;
    };

    void take(std::uint64_t number) {
        number_ = number;
        update_ = pipeline_->updates_;
        work_ = pipeline_->work_;
    }

    const ModelLayout& layout() const { return *pipeline_->deps_.layout; }
    const UnitTile& tile() const { return layout().tiles()[number_]; }
    const UnitObjects& objects() const { return layout().objects(tile().unit); }
    store::TileId tile_of(std::uint32_t object) const { return {object, tile().tile}; }
    std::span<std::byte> states_memory() const { return pipeline_->deps_.memory->states(number_, index_); }
    std::span<std::byte> gradient_memory() const { return pipeline_->deps_.memory->gradient(index_); }
    void spill_ended(store::SpillBlock) noexcept override { part_done(); }

    // Those whose tier is `wanted`.
    template <typename Wanted>
    void write_parts(std::byte* weights, Wanted wanted) {
        state_ = State::writing;
        pending_ = 1;
        if (objects().weights && wanted(layout().weights_tier(tile().unit)))
            start_write(weights_, *objects().weights, {weights, layout().extent_bytes(tile_of(*objects().weights))});
        if (objects().states && wanted(layout().states_tier(tile())))
            start_write(states_, *objects().states, states_memory());
        part_done();
    }

    void begin(Part& part, TraceLane lane, std::uint64_t bytes) {
        ++pending_;
        ++pipeline_->operations_under_way_;
        part.started = trace_start(pipeline_->deps_.trace);
        part.lane = lane;
        part.bytes = bytes;
    }

    void start_read(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        begin(part, TraceLane::read, memory.size());
        // Tiles ahead of compute: as demand reads they would hold back the writes of the tiles before them.
        pipeline_->deps_.store->read(part, tile_of(object), memory, aio::Urgency::prefetch);
    }

    void start_write(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        begin(part, TraceLane::write, memory.size());
        pipeline_->deps_.store->write(part, tile_of(object), memory, aio::Urgency::write_back);
    }

    void operation_done(const Part& part) noexcept {
        --pipeline_->operations_under_way_;
        trace_end(pipeline_->deps_.trace, TraceThread::driver, part.started,
                  {.lane = part.lane,
                   .unit = unit(),
                   .object = part.tile().object,
                   .tile = part.tile().tile,
                   .bytes = part.bytes});
        if (part.error() && !pipeline_->error_) pipeline_->error_ = part.error();
        if (&part == &weights_) pipeline_->weights_of_tile_written(tile().unit);
        part_done();
    }

    void part_done() noexcept {
        if (--pending_ > 0) return;
        if (state_ == State::reading) {
            state_ = State::staged;
            const std::byte* gradient = pipeline_->gradient_of(number_) ? gradient_memory().data() : nullptr;
            if (!pipeline_->error_) pipeline_->deps_.staged(number_, states_memory().data(), gradient);
        } else {
            state_ = State::empty;
            pipeline_->tile_written(number_);
        }
    }

    UpdatePipeline* pipeline_;
    std::uint32_t index_;
    Part weights_;
    Part states_;
    State state_ = State::empty;
    std::uint64_t number_ = 0;
    std::uint64_t update_ = 0;  // of all that were begun
    Work work_ = Work::update;
    std::uint32_t pending_ = 0;
};

UpdatePipeline::UpdatePipeline(UpdatePipelineDeps deps)
    : deps_(std::move(deps)),
      slot_of_(tile_count()),
      left_(deps_.layout->unit_count()),
      begun_(deps_.layout->unit_count()) {
    for (std::uint32_t slot = 0; slot < deps_.memory->slots(); ++slot)
        slots_.push_back(std::make_unique<Slot>(*this, slot));
    std::uint64_t first = 0;
    for (std::uint32_t unit = 0; unit < left_.size(); ++unit) {
        first_.push_back(first);
        first += deps_.layout->unit(unit).tile_count();
    }
}

UpdatePipeline::~UpdatePipeline() {
    PENSTOCK_CHECK(idle(), "{} operations are under way", operations_under_way_);
}

void UpdatePipeline::begin(std::span<const std::uint32_t> units, ResidentTiles tiles, GradientsFrom gradients) {
    begin(tiles == ResidentTiles::written ? Work::update : Work::update_holding_back);
    gradients_ = gradients;
    for (const std::uint32_t unit : units) append_tiles(unit);
    holds_back_ = deps_.layout->has_residents() && tiles == ResidentTiles::held_back;
}

void UpdatePipeline::write_residents() {
    begin(Work::write_residents);
    for (std::uint32_t unit = 0; unit < left_.size(); ++unit) append_tiles(unit);
    holds_back_ = false;
}

void UpdatePipeline::begin(Work work) {
    PENSTOCK_CHECK(finished() || (work != Work::write_residents && all_put_back()),
                   "an update begins but {} of {} tiles of the last one are written", written_, to_write_);
    if (finished()) to_write_ = written_ = 0;
    work_ = work;
    ++updates_;
    demanded_.reset();
}

bool UpdatePipeline::all_put_back() const {
    return waiting_.empty() && std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
               return slot->state() == Slot::State::empty || slot->state() == Slot::State::writing;
           });
}

std::optional<store::SpillBlock> UpdatePipeline::gradient_of(std::uint64_t number) const {
    if (gradients_ == GradientsFrom::memory || deps_.gradients.empty()) return std::nullopt;
    return deps_.gradients[number];
}

void UpdatePipeline::take_back(std::span<const std::uint32_t> units) {
    PENSTOCK_CHECK(finished(), "tiles are taken back while {} are written", to_write_ - written_);
    for (const std::uint32_t unit : units) {
        const UnitObjects& objects = deps_.layout->objects(unit);
        for (std::uint32_t tile = 0; tile < deps_.layout->unit(unit).tile_count(); ++tile) {
            if (objects.weights) deps_.store->take_back({*objects.weights, tile});
            if (objects.states) deps_.store->take_back({*objects.states, tile});
        }
    }
}

void UpdatePipeline::append_tiles(std::uint32_t unit) {
    const std::uint64_t count = deps_.layout->unit(unit).tile_count();
    to_write_ += count;
    for (std::uint64_t tile = 0; tile < count; ++tile) waiting_.push_back(first_[unit] + tile);
}

// The update before does not write it any more.
bool UpdatePipeline::may_begin(std::uint32_t unit) const {
    return std::none_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
        return slot->state() == Slot::State::writing && slot->unit() == unit && slot->update() != updates_;
    });
}

void UpdatePipeline::demand(std::uint32_t unit) {
    demanded_ = unit;
    std::stable_partition(waiting_.begin(), waiting_.end(),
                          [&](std::uint64_t number) { return deps_.layout->tiles()[number].unit == unit; });
}

void UpdatePipeline::put_back(std::uint64_t number, std::byte* weights) {
    PENSTOCK_CHECK(slot_of_[number] != nullptr, "tile {} is put back but was not staged", number);
    slot_of_[number]->write(weights);
}

void UpdatePipeline::pump() {
    while (!error_ && !waiting_.empty()) {
        const std::uint64_t number = waiting_.front();
        const std::uint32_t unit = deps_.layout->tiles()[number].unit;
        if (begun_[unit] != updates_ && !may_begin(unit)) return;
        Slot* slot = slot_for(unit);
        if (slot == nullptr) return;
        if (std::exchange(begun_[unit], updates_) != updates_)
            left_[unit] = static_cast<std::uint32_t>(deps_.layout->unit(unit).tile_count());
        waiting_.pop_front();
        slot_of_[number] = slot;
        work_ == Work::write_residents ? slot->write_residents(number) : slot->read(number);
    }
}

// A free one; for what compute waits for, one whose tile waits for compute: that tile comes again behind what is
// demanded.
UpdatePipeline::Slot* UpdatePipeline::slot_for(std::uint32_t unit) {
    for (const auto& slot : slots_)
        if (slot->state() == Slot::State::empty) return slot.get();
    if (unit != demanded_) return nullptr;
    for (const auto& slot : slots_) {
        if (slot->state() != Slot::State::staged || slot->unit() == unit) continue;
        slot->give_up();
        slot_of_[slot->number()] = nullptr;
        deps_.given_up(slot->number());
        const auto behind = std::find_if(waiting_.begin(), waiting_.end(), [&](std::uint64_t number) {
            return deps_.layout->tiles()[number].unit != unit;
        });
        waiting_.insert(behind, slot->number());
        return slot.get();
    }
    return nullptr;
}

void UpdatePipeline::tile_written(std::uint64_t number) {
    slot_of_[number] = nullptr;
    ++written_;
}

void UpdatePipeline::weights_of_tile_written(std::uint32_t unit) {
    if (--left_[unit] == 0) deps_.weights_written(unit);
}

}  // namespace penstock::zero
