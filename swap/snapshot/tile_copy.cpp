#include "swap/snapshot/tile_copy.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/spare_text.h"

#include <algorithm>
#include <new>

namespace penstock::store {
namespace {

constexpr std::uint64_t max_lanes = 64;

StoreError copied(const StoreError& error) noexcept {
    return {.kind = error.kind, .message = text_or_less([&] { return error.message; })};
}

}  // namespace

std::uint64_t TileCopy::lane_bytes(const TensorStore& from, const TensorStore& to) {
    std::uint64_t longest = 0;
    for (std::uint32_t object = 0; object < from.layout().objects().size(); ++object) {
        longest = std::max({longest, from.extent_bytes({object, 0}), to.extent_bytes({object, 0})});
    }
    const std::uint64_t granule = std::max(from.granule_bytes(), to.granule_bytes());
    return round_up(longest, granule);
}

TileCopy::TileCopy(TensorStore& from, TensorStore& to, std::span<std::byte> memory, Options options,
                   TileCopyListener& listener)
    : from_(from), to_(to), options_(options), listener_(listener), due_(from.layout().tile_count()) {
    PENSTOCK_CHECK(from.layout().objects() == to.layout().objects(), "a copy between stores of different objects");
    const std::uint64_t bytes = lane_bytes(from, to);
    PENSTOCK_CHECK(memory.size() >= bytes, "memory of {} bytes for tiles of up to {}", memory.size(), bytes);
    for (std::uint64_t i = 0; i < std::min(memory.size() / bytes, max_lanes); ++i) {
        Lane& lane = lanes_.emplace_back();
        lane.owner = this;
        lane.memory = memory.subspan(i * bytes, bytes);
    }
}

void TileCopy::start() {
    PENSTOCK_CHECK(state_ == State::fresh, "a copy is started again");
    state_ = State::reading;
    for (std::uint32_t index = 0; index < due_.size(); ++index) {
        const TileId tile = from_.layout().tile(index);
        if (!(options_.source == Source::pinned ? from_.pinned(tile) : from_.written(tile))) continue;
        due_[index] = true;
        ++due_count_;
        total_bytes_ += from_.extent_bytes(tile);
    }
    for (Lane& lane : lanes_) begin_next(lane);
    advance();
}

void TileCopy::begin_next(Lane& lane) {
    const bool hurried = !hurried_.empty();
    const std::optional<std::uint32_t> index = take_next();
    if (!index) return;
    lane.step = Step::reading;
    ++reading_;
    const aio::Urgency urgency = options_.pace == Pace::full ? aio::Urgency::demand
                                 : hurried                   ? aio::Urgency::prefetch
                                                             : aio::Urgency::scrub;
    const TileId tile = from_.layout().tile(*index);
    if (options_.source == Source::pinned) {
        from_.read_pinned(lane, tile, lane.memory, urgency);
    } else {
        from_.read(lane, tile, lane.memory, urgency);
    }
}

std::optional<std::uint32_t> TileCopy::take_next() noexcept {
    if (stopped_ || due_count_ == 0) return std::nullopt;
    std::uint32_t index = 0;
    if (!hurried_.empty()) {
        index = hurried_.front();
        hurried_.pop_front();
    } else {
        while (!due_[next_]) ++next_;
        index = next_;
    }
    due_[index] = false;
    --due_count_;
    return index;
}

void TileCopy::begin_write(Lane& lane) {
    lane.step = Step::writing;
    ++writing_;
    const bool soon = options_.pace == Pace::full || !hurried_.empty();  // its memory is waited for
    to_.write(lane, lane.tile(), lane.memory, soon ? aio::Urgency::write_back : aio::Urgency::scrub);
}

void TileCopy::lane_done(Lane& lane) noexcept {
    const Step step = lane.step;
    lane.step = Step::idle;
    if (lane.error() && !error_) error_ = copied(*lane.error());
    if (error_) stop();
    if (step == Step::reading) {
        --reading_;
        listener_.tile_read(lane.tile());
        if (!stopped_) begin_write(lane);
    } else {
        --writing_;
        if (!lane.error()) copied_bytes_ += from_.extent_bytes(lane.tile());
    }
    if (lane.step == Step::idle) begin_next(lane);
    advance();
}

void TileCopy::stop() noexcept {
    if (stopped_) return;
    stopped_ = true;
    hurried_.clear();
    for (Lane& lane : lanes_) promote(lane);
    advance();
}

void TileCopy::hurry(TileId tile) noexcept {
    const std::uint32_t index = from_.layout().tile_index(tile);
    if (due_[index] && !stopped_) {
        // All lanes are taken, or it would not be due: every one of them that ends soon is one for this tile.
        try {
            hurried_.push_back(index);
        } catch (const std::bad_alloc&) {  // then it is read in its turn
        }
        for (Lane& lane : lanes_) promote(lane);
        return;
    }
    for (Lane& lane : lanes_) {
        if (lane.step == Step::reading && lane.tile() == tile) promote(lane);
    }
}

void TileCopy::promote(Lane& lane) noexcept {
    if (lane.step == Step::reading) from_.promote(lane, aio::Urgency::prefetch);
    if (lane.step == Step::writing) to_.promote(lane, aio::Urgency::write_back);
}

void TileCopy::advance() noexcept {
    if (state_ == State::reading && reading_ == 0 && (stopped_ || due_count_ == 0)) {
        state_ = State::writing;
        listener_.reading_ended();
    }
    if (state_ == State::writing && writing_ == 0) {
        state_ = State::ended;
        listener_.copy_ended();
    }
}

}  // namespace penstock::store
