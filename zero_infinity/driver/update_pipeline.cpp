#include "zero_infinity/driver/update_pipeline.h"

#include "aio/words/check.h"

namespace penstock::zero {

// Memory for one tile at a time, and the operations that fill and empty it.
class UpdatePipeline::StagingBuffer {
   public:
    enum class State : std::uint8_t {
        empty,    // free for the next tile
        reading,  // its parts are being read
        present,  // the caller's to update
        writing,  // its parts are being written
    };

    explicit StagingBuffer(UpdatePipeline& pipeline) : pipeline_(&pipeline) {
        weights_.buffer = this;
        states_.buffer = this;
    }

    State state() const noexcept { return state_; }
    std::uint64_t number() const noexcept { return number_; }

    void read(std::uint64_t number) {
        number_ = number;
        state_ = State::reading;
        pending_ = 1;  // held until all parts are started: a resident tile is present at once
        const UnitObjects& objects = unit_objects();
        const ModelLayout& layout = *pipeline_->deps_.layout;
        if (objects.weights && layout.format().codec->master_needs_weights &&
            layout.weights_tier(tile().unit) == Tier::nvme)
            start_read(weights_, *objects.weights, pipeline_->deps_.memory->place(number).weights);
        if (objects.states && layout.states_tier() == Tier::nvme)
            start_read(states_, *objects.states, pipeline_->deps_.memory->place(number).states);
        part_done();
    }

    void write() {
        PENSTOCK_CHECK(state_ == State::present, "tile {} is put back but was not handed out", number_);
        write_parts([work = pipeline_->work_](Tier tier) { return tier == Tier::nvme || work == Work::update; });
    }

    void write_residents(std::uint64_t number) {
        number_ = number;
        write_parts([](Tier tier) { return tier == Tier::host; });
    }

   private:
    struct Part final : store::TileOperation {
        void tile_done() noexcept override { buffer->operation_done(*this); }
        StagingBuffer* buffer = nullptr;
    };

    const UnitTile& tile() const { return pipeline_->deps_.layout->tiles()[number_]; }
    const UnitObjects& unit_objects() const { return pipeline_->deps_.layout->objects(tile().unit); }
    store::TileId tile_of(std::uint32_t object) const { return {object, tile().tile}; }

    // Those whose tier is `wanted`.
    template <typename Wanted>
    void write_parts(Wanted wanted) {
        state_ = State::writing;
        pending_ = 1;
        const UnitObjects& objects = unit_objects();
        const ModelLayout& layout = *pipeline_->deps_.layout;
        if (objects.weights && wanted(layout.weights_tier(tile().unit)))
            start_write(weights_, *objects.weights, pipeline_->deps_.memory->place(number_).weights);
        if (objects.states && wanted(layout.states_tier()))
            start_write(states_, *objects.states, pipeline_->deps_.memory->place(number_).states);
        part_done();
    }

    void start_read(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        ++pending_;
        ++pipeline_->operations_under_way_;
        // Tiles ahead of compute: as demand reads they would hold back the writes of the tiles before them.
        pipeline_->deps_.store->read(part, tile_of(object), memory, aio::Urgency::prefetch);
    }

    void start_write(Part& part, std::uint32_t object, std::span<std::byte> memory) {
        ++pending_;
        ++pipeline_->operations_under_way_;
        pipeline_->deps_.store->write(part, tile_of(object), memory, aio::Urgency::write_back);
    }

    void operation_done(const Part& part) noexcept {
        --pipeline_->operations_under_way_;
        if (part.error() && !pipeline_->error_) pipeline_->error_ = part.error();
        part_done();
    }

    void part_done() noexcept {
        if (--pending_ > 0) return;
        if (state_ == State::reading) {
            state_ = State::present;
        } else {
            state_ = State::empty;
            ++pipeline_->written_;
        }
    }

    UpdatePipeline* pipeline_;
    Part weights_;
    Part states_;
    State state_ = State::empty;
    std::uint64_t number_ = 0;
    std::uint32_t pending_ = 0;
};

UpdatePipeline::UpdatePipeline(const UpdatePipelineDeps& deps) : deps_(deps) {
    for (std::uint32_t buffer = 0; buffer < deps.memory->buffers(); ++buffer)
        buffers_.push_back(std::make_unique<StagingBuffer>(*this));
    next_tile_ = written_ = tile_count();
}

UpdatePipeline::~UpdatePipeline() {
    PENSTOCK_CHECK(idle(), "{} operations are under way", operations_under_way_);
}

void UpdatePipeline::begin(ResidentTiles tiles) {
    begin(tiles == ResidentTiles::written ? Work::update : Work::update_holding_back);
    holds_back_ = deps_.layout->has_residents() && tiles == ResidentTiles::held_back;
}

void UpdatePipeline::write_residents() {
    begin(Work::write_residents);
    holds_back_ = false;
}

void UpdatePipeline::begin(Work work) {
    PENSTOCK_CHECK(finished(), "an update begins but {} of {} tiles of the last one are written", written_,
                   tile_count());
    work_ = work;
    next_tile_ = written_ = 0;
}

void UpdatePipeline::put_back(std::uint64_t number) {
    buffers_[number % buffers_.size()]->write();
}

void UpdatePipeline::pump() {
    while (!error_ && next_tile_ < tile_count()) {
        StagingBuffer& buffer = *buffers_[next_tile_ % buffers_.size()];
        if (buffer.state() != StagingBuffer::State::empty) return;
        const std::uint64_t number = next_tile_++;
        work_ == Work::write_residents ? buffer.write_residents(number) : buffer.read(number);
    }
}

bool UpdatePipeline::present(std::uint64_t number) const {
    const StagingBuffer& buffer = *buffers_[number % buffers_.size()];
    return buffer.number() == number && buffer.state() == StagingBuffer::State::present;
}

}  // namespace penstock::zero
