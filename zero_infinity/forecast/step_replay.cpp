#include "zero_infinity/forecast/step_replay.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {
StepReplay::StepReplay(const StepSetting& setting, std::span<const UnitSeconds> seconds, const HostSeconds& host,
                       const DeviceRates& rates)
    : setting_(setting),
      layout_(*setting.layout),
      seconds_(seconds),
      host_(host),
      device_(rates),
      window_(units_of_window(layout_, reads_apart(layout_, /*device_has_memory=*/false)), setting.window.window_bytes,
              setting.window.depth),
      fetched_(layout_.unit_count()),
      gradients_(layout_, setting.spilled_gradients, device_, layout_.tiles().size() + layout_.unit_count(),
                 [this](const GradientReplay::Reached& reached) { wait(report_.wait_spills, reached); }),
      shelf_(setting.laid, setting.training.size(), device_, layout_.tiles().size() + 2 * layout_.unit_count(),
             [this](const ShelfReplay::Reached& reached) { wait(report_.wait_spills, reached); }),
      order_(layout_, setting.rules, watched(setting.steps, *this)),
      tiles_(layout_.tiles().size(), TileState::at_rest),
      begun_(layout_.unit_count()),
      free_slots_(setting.staging_tiles) {
    PENSTOCK_CHECK(seconds.size() == layout_.unit_count(), "seconds of {} units for {}", seconds.size(),
                   layout_.unit_count());
    PENSTOCK_CHECK(setting.visit_seconds.empty() || setting.visit_seconds.size() == setting.training.size(),
                   "seconds of {} visits for {}", setting.visit_seconds.size(), setting.training.size());
}

// ---------------------------------------------------------------- virtual time

// What ends meanwhile begins what waited for it.
void StepReplay::pass(double seconds) {
    device_.advance(seconds);
    now_ += seconds;
    while (const auto transfer = device_.take_ended()) ended(*transfer);
    if (order_.committing() && !committed_at_ && unwritten_tiles_ == 0) {
        committed_at_ = now_ + host_.commit;
        device_.hold(host_.commit);
    }
}

template <typename Reached>
void StepReplay::wait(double& waited, Reached reached) {
    const double start = now_;
    while (!reached()) {
        PENSTOCK_CHECK(!device_.idle(), "a step waits for what is not under way, at {} s", now_);
        pass(device_.seconds_to_next());
    }
    waited += now_ - start;
}

// The driver runs beside it, at what it has to do for the bytes that move; and what serves the device.
void StepReplay::work(double seconds, Dealt dealt) {
    double left = seconds;
    device_.slow_to(host_.contention.device);
    while (left > 0) {
        const double bytes = device_.rate(Direction::read) + device_.rate(Direction::write);
        const double driver = std::min(1.0, bytes * host_.driver_per_byte);
        const bool shared = host_.threads >= host_.cores;
        const double lost = !shared ? 0 : dealt == Dealt::beforehand ? driver : driver / host_.cores;
        const double kept = bytes > 0 ? host_.contention.compute : 1;
        const double speed = std::max(0.1, kept - lost);
        const double next = device_.idle() ? left / speed : std::min(left / speed, device_.seconds_to_next());
        left -= next * speed;
        if (left < 1e-12) left = 0;
        report_.lost += next * (1 - kept);
        pass(next);
    }
    device_.slow_to(1);
}

void StepReplay::ended(const VirtualTransfer& transfer) {
    if (shelf_.has(transfer.number)) return shelf_.ended(transfer.number);
    if (gradients_.has(transfer.number)) return gradients_.ended(transfer);
    if (transfer.number >= tiles_.size()) {
        fetched_[transfer.number - tiles_.size()].arrived = true;
        return;
    }
    TileState& state = tiles_[transfer.number];
    if (state == TileState::reading) {
        state = TileState::staged;
        return;
    }
    state = TileState::at_rest;
    ++free_slots_;
    --unwritten_tiles_;
    const std::uint32_t unit = layout_.tiles()[transfer.number].unit;
    for (Unwritten& place : unwritten_)
        if (place.unit == unit) --place.tiles;
    std::erase_if(unwritten_, [](const Unwritten& place) { return place.tiles == 0; });
    pump_states();
    pump_fetches();
}

// ---------------------------------------------------------------- the window

void StepReplay::visit(const Visit& visit, std::span<const Visit> ahead) {
    if (window_spent_) window_.forget();
    window_spent_ = false;
    passing_ = true;
    begin_fetches(window_.visit(visit, ahead), false);
    for (const std::uint32_t unit : visit.units)
        if (!is_to_come(unit)) await_weights(unit);
}

void StepReplay::begin_fetches(std::span<const Fetch> fetches, bool for_update) {
    const bool needed = layout_.format().codec->master_needs_weights;
    for (const Fetch& fetch : fetches) {
        const bool updated = for_update || is_to_come(fetch.unit);
        const UnitObjects& objects = layout_.objects(fetch.unit);
        const std::uint64_t weights = updated && !needed ? 0 : layout_.memory_bytes(objects.weights);
        const std::uint64_t frozen = for_update ? 0 : layout_.memory_bytes(objects.frozen);
        fetched_[fetch.unit] = {.fetch = fetch.number, .arrived = false, .of_compute = !updated};
        waiting_fetches_.push_back({fetch, weights + frozen});
    }
    pump_fetches();
}

void StepReplay::pump_fetches() {
    while (!waiting_fetches_.empty()) {
        const auto [fetch, bytes] = waiting_fetches_.front();
        const auto in_the_way = [&fetch = fetch](const Unwritten& place) {
            return place.offset_bytes < fetch.offset_bytes + fetch.bytes &&
                   fetch.offset_bytes < place.offset_bytes + place.bytes;
        };
        if (std::any_of(unwritten_.begin(), unwritten_.end(), in_the_way)) return;
        waiting_fetches_.pop_front();
        if (bytes == 0) {
            fetched_[fetch.unit].arrived = true;
            continue;
        }
        device_.begin({Direction::read, tiles_.size() + fetch.unit, static_cast<double>(bytes)});
        if (fetch.awaited) device_.raise(tiles_.size() + fetch.unit);
    }
}

void StepReplay::await_weights(std::uint32_t unit) {
    if (!streamed(unit)) return;
    device_.raise(tiles_.size() + unit);
    wait(report_.wait_weights, [&] { return fetched_[unit].arrived; });
}

// ---------------------------------------------------------------- the update

void StepReplay::begin(const BegunUpdate& update) {
    if (!passing_) {
        window_.forget();
        window_spent_ = false;
    }
    begun_.assign(begun_.size(), false);
    for (const std::uint32_t unit : update.units) {
        unwritten_tiles_ += layout_.unit(unit).tile_count();
        for (std::uint32_t tile = 0; tile < layout_.unit(unit).tile_count(); ++tile)
            waiting_tiles_.push_back(layout_.number({unit, tile}));
    }
    pump_states();
}

void StepReplay::pump_states() {
    while (!waiting_tiles_.empty() && free_slots_ > 0) {
        const std::uint64_t number = waiting_tiles_.front();
        const UnitTile tile = layout_.tiles()[number];
        if (!begun_[tile.unit] && is_written(tile.unit)) return;  // by the update before
        begun_[tile.unit] = true;
        waiting_tiles_.pop_front();
        --free_slots_;
        const auto& states = layout_.objects(tile.unit).states;
        double bytes = departs() ? 0 : gradients_.bytes(tile);
        if (states && layout_.states_tier(tile) == Tier::nvme)
            bytes += static_cast<double>(layout_.extent_bytes({*states, tile.tile}));
        tiles_[number] = bytes > 0 ? TileState::reading : TileState::staged;
        if (bytes > 0) device_.begin({Direction::read, number, bytes});
    }
}

bool StepReplay::is_written(std::uint32_t unit) const {
    const auto first = tiles_.begin() + static_cast<std::ptrdiff_t>(layout_.number({unit, 0}));
    return std::find(first, first + layout_.unit(unit).tile_count(), TileState::writing) !=
           first + layout_.unit(unit).tile_count();
}

void StepReplay::demand(std::uint32_t unit) {
    std::stable_partition(waiting_tiles_.begin(), waiting_tiles_.end(),
                          [&](std::uint64_t number) { return layout_.tiles()[number].unit == unit; });
}

void StepReplay::take_in_hand(std::uint32_t unit) {
    window_spent_ = window_spent_ || !passing_;
    if (!streamed(unit)) return;
    const auto place = window_.place(unit);
    const bool there = place && fetched_[unit].fetch == place->fetch && fetched_[unit].of_compute;
    if (!passing_ && !there) {
        std::vector<Visit> ahead;
        for (const std::uint32_t other : order_.units())
            if (order_.awaits(other) && other != unit && streamed(other)) ahead.push_back({{other}});
        begin_fetches(window_.visit({{unit}}, ahead), true);
    }
    await_weights(unit);
    const std::uint64_t bytes = layout_.memory_bytes(layout_.objects(unit).weights);
    unwritten_.push_back({unit, window_.place(unit)->offset_bytes, bytes, layout_.unit(unit).tile_count()});
}

void StepReplay::update(std::uint32_t unit) {
    const double start = now_;
    const double waited_for_weights = report_.wait_weights;
    take_in_hand(unit);
    report_.wait_tiles += report_.wait_weights - waited_for_weights;  // as the driver counts it
    report_.wait_weights = waited_for_weights;
    demand(unit);
    const std::uint32_t count = layout_.unit(unit).tile_count();
    const auto numel = static_cast<double>(layout_.unit(unit).shard_numel());
    if (departs()) work(seconds_[unit].norm, Dealt::by_piece);
    for (std::uint32_t tile = 0; tile < count; ++tile) {
        const std::uint64_t number = layout_.number({unit, tile});
        wait(report_.wait_tiles, [&] { return tiles_[number] == TileState::staged; });
        const double share = static_cast<double>(layout_.unit(unit).tile_numel(tile)) / numel;
        work(seconds_[unit].update * share, Dealt::by_piece);
        write_tile(number, unit);
    }
    report_.updating += seconds_[unit].update;
    fetched_[unit].of_compute = passing_ && !departs();
    if (!passing_ && streamed(unit)) window_.end_visit();
    report_.update += now_ - start;
}

void StepReplay::write_tile(std::uint64_t number, std::uint32_t unit) {
    const std::uint32_t tile = layout_.tiles()[number].tile;
    const auto bytes = [&](const std::optional<std::uint32_t>& object, Tier tier) -> double {
        if (!object || (tier == Tier::host && !order_.commits())) return 0;
        return static_cast<double>(layout_.extent_bytes({*object, tile}));
    };
    const UnitObjects& objects = layout_.objects(unit);
    const double written =
        bytes(objects.weights, layout_.weights_tier(unit)) + bytes(objects.states, layout_.states_tier({unit, tile}));
    tiles_[number] = TileState::writing;
    if (written == 0) return ended({Direction::write, number, 0});
    device_.begin({Direction::write, number, written});
}

void StepReplay::begin_commit() {
    committed_at_.reset();
    pass(0);
}

// Within a pass its waits are the pass's.
void StepReplay::finish_commit() {
    finish_writes();
    pass(0);
    const double left = std::max(0.0, *committed_at_ - now_);
    if (!passing_) report_.commit += left;
    work(left, Dealt::by_piece);
}

void StepReplay::finish_writes() {
    double waited = 0;
    wait(waited, [&] { return unwritten_tiles_ == 0; });
    if (!passing_) report_.commit += waited;
}

void StepReplay::undo(const std::vector<std::uint32_t>& /*units*/) {
    PENSTOCK_CHECK(false, "a forecast's step is clipped after all");
}

// It is written once its squares are summed; but where it is updated with at once, it stays.
void StepReplay::sum_gradient(std::uint32_t unit) {
    if (gradients_.bytes(unit) == 0) return;
    gradients_.bring(unit, pass_ > 1);
    if (last_pass() && !setting_.rules.defers_others && order_.begun()) return;
    if (!departs() || !order_.awaits(unit)) work(seconds_[unit].norm, Dealt::by_piece);  // else its update does
    gradients_.write(unit);
}

// Of what was not taken within backward, and did not leave.
void StepReplay::norm() {
    const double before = now_;
    for (std::uint32_t unit = 0; unit < layout_.unit_count(); ++unit)
        if ((!order_.updates_within() || order_.leaves(unit)) && gradients_.bytes(unit) == 0)
            work(seconds_[unit].norm, Dealt::by_piece);
    report_.backward += now_ - before;
}

// ---------------------------------------------------------------- the step

// By unit: the visit that is its backward.
std::vector<std::size_t> StepReplay::last_visits() const {
    std::vector<std::size_t> last(layout_.unit_count(), 0);
    for (std::size_t i = 0; i < setting_.training.size(); ++i)
        for (const std::uint32_t unit : setting_.training[i].units) last[unit] = i;
    return last;
}

void StepReplay::compute(std::size_t index, bool backward) {
    const std::vector<std::uint32_t>& units = setting_.training[index].units;
    double seconds = 0;
    if (!setting_.visit_seconds.empty()) {
        seconds = setting_.visit_seconds[index];
    } else if (!units.empty()) {
        seconds = backward ? seconds_[units.front()].backward : seconds_[units.front()].forward;
    }
    const std::size_t pieces = shelf_.pieces(index);
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        shelf_.begin_piece(index, piece);
        work(seconds / static_cast<double>(pieces), Dealt::beforehand);
        shelf_.end_piece(index, piece);
    }
    report_.compute += seconds;
}

void StepReplay::make_pass() {
    const std::span<const Visit> visits = setting_.training;
    const std::vector<std::size_t> last = last_visits();
    shelf_.begin_pass();
    visit({}, visits);
    for (std::size_t i = 0; i < visits.size(); ++i) {
        const std::vector<std::uint32_t>& units = visits[i].units;
        const double start = now_;
        const double updating = report_.update;
        visit(visits[i], visits.subspan(i + 1));
        order_.arrive(units);
        const bool backward =
            setting_.visit_seconds.empty() ? !units.empty() && last[units.front()] == i : i >= setting_.forward_visits;
        compute(i, backward);
        for (const std::uint32_t unit : units)
            if (last[unit] == i) sum_gradient(unit);
        for (const std::uint32_t unit : units)
            if (last[unit] == i && last_pass()) order_.depart(unit);
        (backward ? report_.backward : report_.forward) += now_ - start - (report_.update - updating);
    }
    window_.end_visit();
    passing_ = false;
}

// What the pass has left of this step's update, or of the one before; and all of it, or what is not deferred.
void StepReplay::make_update(bool commits) {
    order_.finish();
    order_.drop_idle();
    norm();
    const Ended ended =
        order_.begun() ? order_.end_begun(false) : order_.end(commits, std::vector<bool>(layout_.unit_count(), true));
    if (ended == Ended::whole) order_.finish();
}

StepForecast StepReplay::step(bool commits) {
    const double read = device_.moved(Direction::read);
    const double written = device_.moved(Direction::write);
    const double reading = device_.busy_seconds(Direction::read);
    const double writing = device_.busy_seconds(Direction::write);
    const double start = now_;
    report_ = {};
    work(host_.rest, Dealt::beforehand);
    for (pass_ = 1; pass_ <= setting_.passes; ++pass_) {
        if (last_pass() && order_.may_begin(false)) order_.begin(commits);
        make_pass();
    }
    make_update(commits);
    for (const UnitSeconds& unit : seconds_) report_.compute += unit.norm;
    report_.seconds = now_ - start;
    report_.read_bytes = device_.moved(Direction::read) - read;
    report_.write_bytes = device_.moved(Direction::write) - written;
    report_.reading = device_.busy_seconds(Direction::read) - reading;
    report_.writing = device_.busy_seconds(Direction::write) - writing;
    report_.driver = (report_.read_bytes + report_.write_bytes) * host_.driver_per_byte;
    return report_;
}

}  // namespace penstock::zero
