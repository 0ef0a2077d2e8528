#include "zero_infinity/driver/weight_streamer.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

bool overlap(const Fetch& one, const Fetch& other) noexcept {
    return one.offset_bytes < other.offset_bytes + other.bytes && other.offset_bytes < one.offset_bytes + one.bytes;
}

// The later one must wait for the earlier one.
bool collide(const Fetch& one, const Fetch& other) noexcept {
    return one.unit == other.unit || overlap(one, other);
}

}  // namespace

// Reads the tiles of one unit's weights to one place. One at a time.
class WeightStreamer::UnitRead {
   public:
    UnitRead(WeightStreamer& streamer, std::uint32_t unit)
        : streamer_(&streamer), unit_(unit), tiles_(streamer.deps_.layout->shard_tiles(unit)) {
        const ModelLayout& layout = *streamer.deps_.layout;
        trainable_ = static_cast<std::size_t>(std::count_if(tiles_.begin(), tiles_.end(), [&](const GroupTile& part) {
            return part.tile.object == layout.objects(unit).weights;
        }));
        if (!layout.format().codec->master_needs_weights) made_by_update_ = trainable_;
        operations_ = std::vector<TileRead>(tiles_.size());
        for (TileRead& operation : operations_) operation.read = this;
    }

    // False: there is nothing to read.
    bool start(std::byte* place, FetchUse use, aio::Urgency urgency) {
        PENSTOCK_CHECK(pending_ == 0, "unit {} is being read already", unit_);
        const std::size_t first = use == FetchUse::compute ? 0 : made_by_update_;
        const std::size_t last = use == FetchUse::update ? trainable_ : tiles_.size();
        pending_ = last - first;
        for (std::size_t index = first; index < last; ++index) {
            const GroupTile& part = tiles_[index];
            operations_[index].started = trace_start(streamer_->deps_.trace);
            operations_[index].bytes = part.bytes;
            streamer_->deps_.store->read(operations_[index], part.tile, {place + part.offset_bytes, part.bytes},
                                         urgency);
        }
        return last > first;
    }

    // From where the unit's bytes begin: those of trainable weights that an update needs; it writes all of them anew.
    std::uint64_t bytes_to_update() const {
        if (made_by_update_ == trainable_) return 0;
        const GroupTile& last = tiles_[trainable_ - 1];
        return last.offset_bytes + last.bytes;
    }

    void await() noexcept {
        for (TileRead& operation : operations_)
            if (!operation.idle()) streamer_->deps_.store->promote(operation, aio::Urgency::demand);
    }

   private:
    struct TileRead final : store::TileOperation {
        void tile_done() noexcept override { read->tile_done(*this); }
        UnitRead* read = nullptr;
        TraceStart started;
        std::uint64_t bytes = 0;
    };

    void tile_done(const TileRead& operation) noexcept {
        trace_end(streamer_->deps_.trace, TraceThread::driver, operation.started,
                  {.lane = TraceLane::read,
                   .unit = unit_,
                   .object = operation.tile().object,
                   .tile = operation.tile().tile,
                   .bytes = operation.bytes});
        if (operation.error() && !streamer_->error_) streamer_->error_ = operation.error();
        if (--pending_ == 0) streamer_->read_done(unit_);
    }

    WeightStreamer* streamer_;
    std::uint32_t unit_;
    std::vector<GroupTile> tiles_;
    std::vector<TileRead> operations_;
    std::size_t trainable_ = 0;       // so many of the first
    std::size_t made_by_update_ = 0;  // so many of the first are not read for it
    std::size_t pending_ = 0;
};

WeightStreamer::WeightStreamer(WeightStreamerDeps deps)
    : deps_(std::move(deps)), shut_(deps_.layout->unit_count()), passage_(deps_.memory->arrivals().size()) {
    for (std::uint32_t unit = 0; unit < deps_.layout->unit_count(); ++unit) {
        const bool none = deps_.layout->shard(unit).bytes == 0;
        reads_.push_back(none ? nullptr : std::make_unique<UnitRead>(*this, unit));
    }
    under_way_.reserve(reads_.size());
    to_copy_.reserve(reads_.size());
    copies_.reserve(reads_.size());
}

WeightStreamer::~WeightStreamer() {
    PENSTOCK_CHECK(quiet(), "{} fetches are under way", under_way_.size());
}

void WeightStreamer::fetch(const Fetch& fetch, FetchUse use, Ticket after) {
    waiting_.push_back({{fetch, use, after}});
}

bool WeightStreamer::quiet() const noexcept {
    return std::none_of(under_way_.begin(), under_way_.end(), [](const UnderWay& each) { return moves(each.state); });
}

bool WeightStreamer::fetched() const noexcept {
    return waiting_.empty() && std::all_of(under_way_.begin(), under_way_.end(),
                                           [](const UnderWay& each) { return for_update(each.state); });
}

bool WeightStreamer::idle() const noexcept {
    return waiting_.empty() && std::all_of(under_way_.begin(), under_way_.end(),
                                           [](const UnderWay& each) { return each.state == FetchState::offered; });
}

void WeightStreamer::shut(std::uint32_t unit) {
    PENSTOCK_CHECK(deps_.memory->resident(unit) != nullptr, "unit {} is shut, but not resident", unit);
    shut_[unit] = true;
}

void WeightStreamer::await(std::uint32_t unit) {
    for (Waiting& each : waiting_)
        if (each.given.fetch.unit == unit) each.demanded = each.given.fetch.awaited = true;
    if (reads_[unit] != nullptr) reads_[unit]->await();
}

void WeightStreamer::pump() {
    take_in();
    for (std::size_t next = 0; next < waiting_.size() && !error_;) {
        const Waiting each = waiting_[next];
        if (may_start(next) && start(each))  // others may have come back
            std::erase_if(waiting_, [&](const Waiting& other) {
                return other.given.fetch.number == each.given.fetch.number &&
                       other.given.use == each.given.use;  // in place has compute's
            });
        else
            ++next;
    }
    while (!to_copy_.empty()) {
        const std::uint32_t unit = to_copy_.front();
        to_copy_.erase(to_copy_.begin());
        copy_in(under_way(unit));
    }
}

// What was copied back from a device is in host memory alone from then on: its place there is free for the next one.
bool WeightStreamer::in_the_way(const UnderWay& other, const Fetch& fetch) const noexcept {
    const bool in_host_memory = apart() && other.given.use == FetchUse::in_place && for_update(other.state);
    return in_host_memory ? other.given.fetch.unit == fetch.unit : collide(other.given.fetch, fetch);
}

bool WeightStreamer::may_start(std::size_t waiting) const {
    const Fetch& fetch = waiting_[waiting].given.fetch;
    if (shut_[fetch.unit]) return false;
    const auto stays = [&](const UnderWay& other) {
        return other.state != FetchState::offered && in_the_way(other, fetch);
    };
    return std::none_of(under_way_.begin(), under_way_.end(), stays) &&
           std::none_of(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(waiting),
                        [&](const Waiting& earlier) { return collide(earlier.given.fetch, fetch); });
}

// False: there is no room in host memory for it to pass through, or compute is still at its place.
bool WeightStreamer::start(const Waiting& waiting) {
    const Fetch& fetch = waiting.given.fetch;
    // The plan has given the place to another.
    if (!give_up([&](const UnderWay& other) { return in_the_way(other, fetch); }, false)) return false;
    UnderWay started{.given = waiting.given, .state = first_state(waiting.given)};
    if (apart() && deps_.memory->resident(fetch.unit) == nullptr) {
        started.passage_offset = passage_.take(deps_.layout->shard(fetch.unit).bytes);
        // Whoever is given up here is not what compute waits for: it stands still until this one is there.
        if (!started.passage_offset && waiting.takes_room()) {
            give_up([](const UnderWay&) { return true; }, true);
            started.passage_offset = passage_.take(deps_.layout->shard(fetch.unit).bytes);
        }
        if (!started.passage_offset) return false;
    }
    under_way_.push_back(started);
    begin(under_way_.back());
    return true;
}

FetchState WeightStreamer::first_state(const Given& given) const {
    const bool resident = deps_.memory->resident(given.fetch.unit) != nullptr;
    if (given.use == FetchUse::compute && resident) return FetchState::to_copy;
    if (given.use == FetchUse::in_place && apart() && !resident) return FetchState::copying_back;
    return FetchState::reading;
}

// What host memory has already is read at once: of residents, and in place.
void WeightStreamer::begin(UnderWay& started) {
    const Fetch& fetch = started.given.fetch;
    const FetchUse use = started.given.use;
    if (started.state == FetchState::to_copy) return copy_in(started);
    if (started.state == FetchState::copying_back) return copy_back(started);
    const bool there = use == FetchUse::in_place || deps_.memory->resident(fetch.unit) != nullptr;
    const aio::Urgency urgency = fetch.awaited ? aio::Urgency::demand : aio::Urgency::prefetch;
    if (there || !reads_[fetch.unit]->start(host_place(started), use, urgency)) read_done(fetch.unit);
}

// Those that wait for an update that has not begun. `again`: they are to be made again later. False: compute has begun
// with one of them, which stays; the order that says so is on its way.
bool WeightStreamer::give_up(const std::function<bool(const UnderWay&)>& wanted, bool again) {
    bool all = true;
    for (std::size_t at = under_way_.size(); at-- > 0;) {
        UnderWay& each = under_way_[at];
        if (each.state != FetchState::offered || !wanted(each)) continue;
        if (!deps_.withdraw(each.given.fetch)) {
            all = false;
            continue;
        }
        if (again) waiting_.push_back({each.given});
        end(each);
    }
    std::stable_sort(waiting_.begin(), waiting_.end(), [](const Waiting& left, const Waiting& right) {
        return left.given.fetch.number < right.given.fetch.number;
    });
    return all;
}

std::byte* WeightStreamer::host_place(const UnderWay& under_way) const {
    if (std::byte* resident = deps_.memory->resident(under_way.given.fetch.unit)) return resident;
    return under_way.passage_offset ? deps_.memory->arrivals().data() + *under_way.passage_offset
                                    : deps_.memory->window(under_way.given.fetch.offset_bytes);
}

void WeightStreamer::read_done(std::uint32_t unit) {
    UnderWay& read = under_way(unit);
    if (error_) return end(read);
    if (read.given.use != FetchUse::compute) {
        pass_to(read, FetchState::offered);
        return deps_.offer(read.given.fetch, host_place(read));
    }
    if (read.passage_offset) {
        pass_to(read, FetchState::to_copy);
        return to_copy_.push_back(unit);  // not from here: within the store's callback nothing may throw
    }
    deps_.arrived(read.given.fetch, {});
    end(read);
}

void WeightStreamer::updating(std::uint32_t unit) {
    pass_to(under_way(unit), FetchState::updating);
}

// The memory is needed until it is written, and copied where compute reads it on a device. Which of the two ends first
// is for the devices to say, and the writes may have ended already.
void WeightStreamer::updated(std::uint32_t unit) {
    UnderWay& each = under_way(unit);
    if (deps_.memory->resident(unit) != nullptr) each.written = true;  // it stays where it is
    const bool read_next = each.given.use == FetchUse::both && !error_;
    if (read_next && apart()) {
        pass_to(each, FetchState::passing_on);
        return copy_in(each);
    }
    pass_to(each, FetchState::written_behind);
    if (read_next) deps_.arrived(each.given.fetch, {});
    end_if_written(each);
}

void WeightStreamer::written(std::uint32_t unit) {
    UnderWay* each = find(unit);
    if (each == nullptr) return;  // its copy to the device has failed
    PENSTOCK_CHECK(each->state > FetchState::offered, "unit {} was written while its fetch is {}", unit,
                   word_of(each->state));
    each->written = true;
    end_if_written(*each);
}

void WeightStreamer::end_if_written(UnderWay& each) {
    if (each.state == FetchState::written_behind && each.written) end(each);
}

void WeightStreamer::copy_in(UnderWay& each) {
    if (each.state == FetchState::to_copy) pass_to(each, FetchState::copying);
    const Fetch& fetch = each.given.fetch;
    const Ticket there = begin_copy(fetch.unit, TraceLane::copy_in, deps_.layout->shard(fetch.unit).bytes, [&] {
        return deps_.bringing->bring(fetch.unit, deps_.memory->window(fetch.offset_bytes), host_place(each),
                                     each.given.after);
    });
    if (!error_) deps_.arrived(fetch, there);  // the device itself waits for it
}

// What compute has read on the device is what NVMe has. Nothing overwrites it meanwhile: whatever wants its place
// waits for this fetch.
void WeightStreamer::copy_back(UnderWay& each) {
    const Fetch& fetch = each.given.fetch;
    const std::uint64_t bytes = reads_[fetch.unit]->bytes_to_update();
    if (bytes == 0) return read_done(fetch.unit);
    begin_copy(fetch.unit, TraceLane::copy_out, bytes, [&] {
        return deps_.bringing->bring_back(fetch.unit, host_place(each), deps_.memory->window(fetch.offset_bytes),
                                          bytes);
    });
}

template <typename Begin>
Ticket WeightStreamer::begin_copy(std::uint32_t unit, TraceLane lane, std::uint64_t bytes, Begin begin) {
    const auto now = std::chrono::steady_clock::now();
    const TraceStart traced = trace_start(deps_.trace);
    try {
        copies_.push_back({unit, lane, begin(), now, traced, bytes});
    } catch (...) {  // the driver's end; the memory of what may have begun is kept as long as the device
        std::erase_if(under_way_, [&](const UnderWay& each) { return each.given.fetch.unit == unit; });
        throw;
    }
    return copies_.back().ticket;
}

void WeightStreamer::take_in() {
    for (std::size_t at = 0; at < copies_.size();) {
        if (!deps_.device->reached(copies_[at].ticket)) {
            ++at;
            continue;
        }
        const Copy ended = copies_[at];
        copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(at));
        copied(ended);
    }
}

void WeightStreamer::copied(const Copy& copy) {
    trace_end(deps_.trace, TraceThread::driver, copy.traced,
              {.lane = copy.lane, .unit = copy.unit, .bytes = copy.bytes});
    if (copy.lane == TraceLane::copy_out) return read_done(copy.unit);
    UnderWay& ended = under_way(copy.unit);
    if (ended.state == FetchState::copying) return end(ended);
    pass_to(ended, FetchState::written_behind);
    end_if_written(ended);
}

void WeightStreamer::pass_to(UnderWay& each, FetchState next) {
    PENSTOCK_CHECK(may_follow(each.state, next), "the fetch of unit {} goes from '{}' to '{}'", each.given.fetch.unit,
                   word_of(each.state), word_of(next));
    each.state = next;
}

void WeightStreamer::end(UnderWay& each) {
    pass_to(each, FetchState::done);
    if (each.passage_offset) passage_.give_back(*each.passage_offset);
    under_way_.erase(under_way_.begin() + (&each - under_way_.data()));
}

bool WeightStreamer::has(std::uint32_t unit) const noexcept {
    return std::any_of(under_way_.begin(), under_way_.end(),
                       [&](const UnderWay& each) { return each.given.fetch.unit == unit; });
}

WeightStreamer::UnderWay* WeightStreamer::find(std::uint32_t unit) {
    const auto found = std::find_if(under_way_.begin(), under_way_.end(),
                                    [&](const UnderWay& each) { return each.given.fetch.unit == unit; });
    return found == under_way_.end() ? nullptr : &*found;
}

WeightStreamer::UnderWay& WeightStreamer::under_way(std::uint32_t unit) {
    UnderWay* found = find(unit);
    PENSTOCK_CHECK(found != nullptr, "unit {} has no fetch under way", unit);
    return *found;
}

std::optional<std::chrono::nanoseconds> WeightStreamer::oldest_copy() const {
    if (copies_.empty()) return std::nullopt;
    return std::chrono::steady_clock::now() - copies_.front().started;
}

}  // namespace penstock::zero
