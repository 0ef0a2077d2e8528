#include "zero_infinity/gradients/gradient_sums.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::zero {
GradientSums::GradientSums(const ModelLayout& layout, const GradientSumsOptions& options, pool::PinnedPool& pool,
                           Device& device)
    : layout_(&layout),
      options_(options),
      device_(&device),
      units_(layout.unit_count()),
      sums_(layout.partition().ranks * layout.tiles().size()),
      all_sums_(sums_.size()) {
    const PlaneType type = options.type;
    const bool trains = layout.purpose() == Purpose::training;
    for (std::uint32_t index = 0; index < layout.unit_count(); ++index) {
        const UnitLayout& unit = layout.unit(index);
        UnitSums& sums = units_[index];
        sums.own = unit.spec().parameters.size();
        for (std::uint32_t parameter = 0; parameter < sums.own; ++parameter) {
            const ParameterPlace& place = unit.place(parameter);
            sums.ranges.push_back({.offset_bytes = place.first * bytes_of(type),
                                   .numel = place.numel,
                                   .trainable = trains && place.training == Training::trainable,
                                   .owner = {index, parameter}});
        }
        std::uint64_t offset_bytes = own_gradient_bytes(unit, type);
        for (const BorrowedSpec& borrowed : unit.spec().borrowed) {
            const ParameterSpec& spec = layout.unit(borrowed.owner).spec().parameters.at(borrowed.parameter);
            const bool trainable = trains && spec.training == Training::trainable;
            sums.ranges.push_back({.offset_bytes = offset_bytes,
                                   .numel = spec.numel(),
                                   .trainable = trainable,
                                   .owner = {borrowed.owner, borrowed.parameter}});
            if (trainable) offset_bytes += pool::whole_granules(spec.numel() * bytes_of(type));
        }
        sums.bytes = trains ? offset_bytes : 0;
        sums.shared = options.memory == GradientMemory::one_unit && may_share_gradients(layout, index, type);
    }
    take_memory(pool);
    if (options.device_bytes > 0) make_windows();
}

void GradientSums::take_memory(pool::PinnedPool& pool) {
    const auto take = [&](std::uint64_t bytes) {
        leases_.push_back(pool.acquire(pool.use(gradients_use), bytes));
        std::memset(leases_.back().data(), 0, bytes);  // padding between parameters stays zero
        return leases_.back().data();
    };
    std::uint64_t largest = 0;
    std::vector<std::uint32_t> sharing;
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        UnitSums& unit = units_[index];
        if (unit.bytes == 0) continue;
        if (options_.memory == GradientMemory::all_units || !may_share_gradients(*layout_, index, type())) {
            unit.memory = take(unit.bytes);
            continue;
        }
        sharing.push_back(index);
        largest = std::max(largest, unit.bytes);
    }
    if (sharing.empty()) return;
    const std::uint64_t bytes = largest * std::min<std::uint64_t>(sharing.size(), gradients_at_once(options_.memory));
    std::byte* memory = take(bytes);
    if (options_.memory == GradientMemory::nvme) {
        spilled_.emplace(SpilledSumsDeps{.layout = layout_,
                                         .units = std::move(sharing),
                                         .element_bytes = bytes_of(type()),
                                         .memory = {memory, bytes},
                                         .slot_bytes = largest,
                                         .spill = options_.spill,
                                         .driver = options_.driver});
        return;
    }
    for (const std::uint32_t unit : sharing) units_[unit].memory = memory;
}

std::vector<std::optional<store::SpillBlock>> GradientSums::blocks() const {
    if (!spilled_) return {};
    return {spilled_->blocks().begin(), spilled_->blocks().end()};
}

std::byte* GradientSums::memory_of(std::uint32_t unit) const {
    return leaves(unit) ? spilled_->memory(unit) : units_[unit].memory;
}

std::byte* GradientSums::take(std::uint32_t unit) {
    if (!leaves(unit)) return units_[unit].memory;
    if (opened_ && *opened_ != unit) settle(*opened_);
    opened_ = unit;
    return spilled_->open(unit);
}

const std::byte* GradientSums::look(std::uint32_t unit) {
    if (!leaves(unit)) return units_[unit].memory;
    if (opened_ && *opened_ != unit) settle(*opened_);
    return spilled_->look(unit);
}

// What was summed of it is whole, as far as anybody knows: its squares are those of the bytes that leave.
void GradientSums::settle(std::uint32_t unit) {
    if (!leaves(unit) || !spilled_->is_changed(unit)) return;
    sum_up(unit, *options_.workers);
    spilled_->write(unit);
}

void GradientSums::sum_up(std::uint32_t unit, Workers& workers) {
    clear_gaps(unit);
    sum_squares(layout_->number({unit, 0}), layout_->unit(unit).tile_count(), workers);
}

void GradientSums::complete(std::uint32_t unit) {
    if (!leaves(unit) || awaits_borrowed(unit)) return;
    for (Window& window : windows_)
        if (window.unit == unit) close(window);
    settle(unit);
}

// The sums that were there have been updated with.
void GradientSums::take_shared(std::uint32_t unit) {
    if (!units_[unit].shared) return;
    PENSTOCK_CHECK(is_there(unit) || !holder_,
                   "gradients of unit {} while memory, which is that of one unit, has those of unit {}, which is not "
                   "updated yet",
                   unit, *holder_);
    holder_ = unit;
}

void GradientSums::make_windows() {
    std::byte* data = device_->allocate(options_.device_bytes, gradients_use);
    if (options_.device_bytes < gradient_bytes(*layout_, options_.type, GradientMemory::all_units)) {
        windows_ = {Window{data, {}, {}}, Window{data + options_.device_bytes / 2, {}, {}}};
        return;
    }
    for (const UnitSums& unit : units_) {
        windows_.push_back({data, {}, {}});
        data += unit.bytes;
    }
}

// A step may have been left by an exception: its copies still write into our leases.
GradientSums::~GradientSums() {
    bool ended = true;
    for (const Window& window : windows_) {
        try {
            ended = device_->wait(window.copied, options_.deadline) && ended;
        } catch (const std::exception&) {
            ended = false;
        }
    }
    if (ended) return;
    // The device is lost and may write at any time: the memory is never given to anyone else.
    for (pool::Lease& lease : leases_) lease.orphan();
}

const GradientSums::Range& GradientSums::range(ParameterId parameter) const {
    const Range& range = units_.at(parameter.unit).ranges.at(parameter.index);
    PENSTOCK_CHECK(range.trainable, "unit {}: parameter {} is frozen and has no gradient", parameter.unit,
                   parameter.index);
    return range;
}

GradientSums::Range& GradientSums::range(ParameterId parameter) {
    return const_cast<Range&>(std::as_const(*this).range(parameter));
}

bool GradientSums::is_fresh(ParameterId parameter) const {
    return range(parameter).fresh;
}

GradientSums::Open GradientSums::open(ParameterId parameter) {
    Range& sum = range(parameter);
    PENSTOCK_CHECK(!units_[parameter.unit].counted, "a gradient for unit {}, which was said to have all of them",
                   parameter.unit);
    PENSTOCK_CHECK(!units_[parameter.unit].lent,
                   "a gradient for unit {}, whose last update was not made: it is to be "
                   "visited before",
                   parameter.unit);
    take_shared(parameter.unit);
    complete_ = false;
    std::byte* base = device_->shares_host_memory() ? take(parameter.unit) : window_of(parameter.unit).data;
    return {base + sum.offset_bytes, sum.numel, std::exchange(sum.fresh, false)};
}

// The device's memory in which the unit's gradients are summed, with what was summed before.
GradientSums::Window& GradientSums::window_of(std::uint32_t unit) {
    Window& window = free_window(unit);
    if (window.unit == unit) return window;
    compute_after(window.copied);
    const auto& ranges = units_[unit].ranges;
    if (std::any_of(ranges.begin(), ranges.end(), [](const Range& range) { return range.trainable && !range.fresh; })) {
        if (device_->computes_on_caller()) wait_for(last_out_);
        const Ticket in =
            device_->copy_in(window.data, const_cast<std::byte*>(look(unit)), units_[unit].bytes, last_out_);
        compute_after(in);
        if (leaves(unit)) wait_for(in);  // then others may have that memory
    }
    window.unit = unit;
    return window;
}

// The unit's own, or the one of two that it is in or whose turn it is.
GradientSums::Window& GradientSums::free_window(std::uint32_t unit) {
    if (all_stay()) return windows_[unit];
    if (windows_[turn_].unit != unit) {
        close(windows_[turn_]);  // its copy goes on while the other one is added to
        turn_ = 1 - turn_;
    }
    return windows_[turn_];
}

void GradientSums::close(Window& window) {
    if (!window.unit) return;
    const std::uint32_t unit = *window.unit;
    copy_out(window);
    if (leaves(unit) && !awaits_borrowed(unit)) settle(unit);  // else it would leave twice
}

void GradientSums::copy_out(Window& window) {
    const std::uint32_t unit = *std::exchange(window.unit, std::nullopt);
    window.copied = last_out_ = device_->copy_out(take(unit), window.data, units_[unit].bytes);
    if (leaves(unit)) wait_for(window.copied);
}

void GradientSums::close_all() {
    for (Window& window : windows_) close(window);
    for (const Window& window : windows_) wait_for(window.copied);
}

// A stream waits by itself; a thread, until the deadline.
void GradientSums::compute_after(Ticket ticket) const {
    if (device_->computes_on_caller()) wait_for(ticket);
    device_->compute_after(ticket);
}

void GradientSums::wait_for(Ticket ticket) const {
    if (device_->wait(ticket, options_.deadline)) return;
    throw Error(ExitCode::internal,
                fmt::format("gradients are on their way between device '{}' and host memory for more than {} s: "
                            "the device is stuck; the last committed step is safe",
                            device_->name(), options_.deadline.count()));
}

void GradientSums::add(ParameterId parameter, const GradientView& addend) {
    PENSTOCK_CHECK(device_->shares_host_memory(), "gradients in host memory are added to those of a device");
    const Open sum = open(parameter);
    PENSTOCK_CHECK(addend.numel == sum.numel, "a gradient of {} elements for a parameter of {}", addend.numel,
                   sum.numel);
    sum.fresh ? convert(addend, type(), sum.data) : add_converted(addend, type(), sum.data);
}

void GradientSums::clear() {
    complete_ = false;
    holder_.reset();
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        for (Range& range : units_[index].ranges) range.fresh = true;
        if (leaves(index)) spilled_->clear(index);
    }
}

void GradientSums::clear(ParameterId parameter) {
    complete_ = false;
    if (std::exchange(range(parameter).fresh, true) || !leaves(parameter.unit)) return;
    close_all();
    take(parameter.unit);  // its squares are others now
}

GradientSums::Sum GradientSums::sum(ParameterId parameter) {
    const Range& sum = range(parameter);
    PENSTOCK_CHECK(!sum.fresh, "unit {}: parameter {} has no gradient yet", parameter.unit, parameter.index);
    PENSTOCK_CHECK(is_there(parameter.unit) && !leaves(parameter.unit),
                   "unit {}: parameter {} is updated and has no gradient any more, or none that stays in host memory",
                   parameter.unit, parameter.index);
    for (Window& window : windows_)
        if (window.unit == parameter.unit) close(window);
    for (const Window& window : windows_) wait_for(window.copied);
    return {units_[parameter.unit].memory + sum.offset_bytes, sum.numel};
}

bool GradientSums::add_borrowed() {
    bool added = false;
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        UnitSums& unit = units_[index];
        for (std::size_t at = unit.own; at < unit.ranges.size(); ++at) {
            Range& borrowed = unit.ranges[at];
            if (!borrowed.trainable || borrowed.fresh) continue;
            close_all();
            add_borrowed(borrowed, unit);
            complete_ = false;
            added = true;
        }
    }
    return added;
}

void GradientSums::add_borrowed(Range& borrowed, const UnitSums& unit) {
    take_shared(borrowed.owner.unit);
    Range& owner = range(borrowed.owner);
    const GradientView addend{unit.memory + borrowed.offset_bytes, type(), borrowed.numel};
    std::byte* sum = take(borrowed.owner.unit) + owner.offset_bytes;
    std::exchange(owner.fresh, false) ? convert(addend, type(), sum) : penstock::zero::add(addend, sum);
    borrowed.fresh = true;
}

// Somebody who borrows from it has a sum that is still to be added to its own.
bool GradientSums::awaits_borrowed(std::uint32_t owner) const {
    const auto lends = [&](const Range& range) { return range.owner.unit == owner && range.trainable && !range.fresh; };
    return std::any_of(units_.begin(), units_.end(), [&](const UnitSums& unit) {
        return std::any_of(unit.ranges.begin() + static_cast<std::ptrdiff_t>(unit.own), unit.ranges.end(), lends);
    });
}

void GradientSums::add_borrowed_from(std::uint32_t owner) {
    for (UnitSums& unit : units_)
        for (std::size_t at = unit.own; at < unit.ranges.size(); ++at)
            if (Range& borrowed = unit.ranges[at];
                borrowed.owner.unit == owner && borrowed.trainable && !borrowed.fresh)
                add_borrowed(borrowed, unit);
}

// What no gradient came to, and the padding, is zero. A device leaves anything in between.
void GradientSums::clear_gaps(std::uint32_t index) {
    UnitSums& unit = units_[index];
    if (unit.bytes == 0) return;
    std::byte* memory = memory_of(index);
    const std::uint64_t own = layout_->unit(index).trainable_numel() * bytes_of(type());
    std::uint64_t end = 0;  // of what is right
    for (std::size_t at = 0; at < unit.own; ++at) {
        const Range& range = unit.ranges[at];
        if (!range.trainable || range.fresh) continue;
        std::memset(memory + end, 0, range.offset_bytes - end);
        end = range.offset_bytes + range.numel * bytes_of(type());
    }
    std::memset(memory + end, 0, own - end);
}

void GradientSums::lend() {
    PENSTOCK_CHECK(complete_, "gradients are updated with before their norm");
    PENSTOCK_CHECK(options_.memory != GradientMemory::one_unit, "all units lend gradients that memory has of one");
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
        units_[unit].lent = layout_->unit(unit).tile_count() > 0 && !units_[unit].counted;  // who is updated gives back
    clear();
}

void GradientSums::give_back(std::uint32_t unit) {
    units_.at(unit).lent = false;
    if (holder_ == unit) holder_.reset();
    if (leaves(unit) && units_[unit].counted && !options_.lends_again) spilled_->clear(unit);
}

bool GradientSums::lend(std::uint32_t unit, Workers& workers) {
    UnitSums& sums = units_.at(unit);
    const UnitLayout& layout = layout_->unit(unit);
    PENSTOCK_CHECK(!sums.lent && layout.tile_count() > 0, "unit {} is lent twice, or has nothing to lend", unit);
    take_shared(unit);
    for (Window& window : windows_)
        if (window.unit == unit) copy_out(window);  // to close it would write it
    close_all();
    add_borrowed_from(unit);
    if (leaves(unit) && spilled_->is_empty(unit)) take(unit);
    look(unit);
    if (options_.lends_again)
        make_whole(unit, workers);
    else if (!leaves(unit) || spilled_->is_changed(unit))
        sum_up(unit, workers);
    sums.lent = sums.counted = true;
    const std::size_t first = place_of(layout_->number({unit, 0}));
    return std::all_of(sums_.begin() + static_cast<std::ptrdiff_t>(first),
                       sums_.begin() + static_cast<std::ptrdiff_t>(first + layout.tile_count()),
                       [](double each) { return std::isfinite(each); });
}

void GradientSums::lend_again(std::uint32_t unit) {
    PENSTOCK_CHECK(options_.lends_again && units_.at(unit).counted && !units_[unit].lent,
                   "unit {} is lent again, but was not given back, or is not kept for that", unit);
    units_[unit].lent = true;
}

void GradientSums::end_step() {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        UnitSums& unit = units_[index];
        if (!std::exchange(unit.counted, false)) continue;
        for (std::size_t at = 0; at < unit.own; ++at) unit.ranges[at].fresh = true;
        if (leaves(index)) spilled_->clear(index);
    }
}

// Its squares are summed, also where no gradient came to it. Where its sums leave, they do.
void GradientSums::make_whole(std::uint32_t unit, Workers& workers) {
    if (leaves(unit)) {
        if (spilled_->is_empty(unit)) take(unit);
        return settle(unit);
    }
    if (is_there(unit)) return sum_up(unit, workers);
    sum_squares(layout_->number({unit, 0}), layout_->unit(unit).tile_count(), workers);
}

void GradientSums::sum_squares(std::size_t first_tile, std::size_t count, Workers& workers) {
    const auto tiles = layout_->tiles().subspan(first_tile, count);
    workers.run(count, [&](std::size_t index) {
        const UnitTile tile = tiles[index];  // of a unit that is not there no gradient came
        sums_[place_of(first_tile + index)] = is_there(tile.unit) ? sum_of_squares(view(tile)) : 0;
    });
}

double GradientSums::norm(Workers& workers, Communicator& communicator) {
    const auto is_lent = [](const UnitSums& unit) { return unit.lent && !unit.counted; };
    PENSTOCK_CHECK(std::none_of(units_.begin(), units_.end(), is_lent),
                   "the norm of gradients that an update works with");
    close_all();
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
        if (layout_->unit(unit).tile_count() > 0 && !units_[unit].counted) make_whole(unit, workers);
    complete_ = true;
    all_sums_ = sums_;
    communicator.all_reduce(all_sums_);  // only one rank's addend of each is not zero: no bit changes
    double sum = 0;
    for (const double each : all_sums_) sum += each;
    return std::sqrt(sum);
}

GradientView GradientSums::tile(UnitTile tile, const std::byte* elsewhere) const {
    PENSTOCK_CHECK(units_[tile.unit].lent, "a tile of gradients of unit {}, which are not lent", tile.unit);
    if (elsewhere != nullptr) return {elsewhere, type(), layout_->unit(tile.unit).tile_numel(tile.tile)};
    return view(tile);
}

GradientView GradientSums::view(UnitTile tile) const {
    const UnitLayout& unit = layout_->unit(tile.unit);
    const std::byte* memory = memory_of(tile.unit);
    PENSTOCK_CHECK(memory != nullptr, "gradients of unit {}, which are not in host memory", tile.unit);
    return {memory + tile.tile * unit.tile_numel() * bytes_of(type()), type(), unit.tile_numel(tile.tile)};
}

// All ranks have as many tiles of a unit as this one, and the tiles before a unit are those before its first.
std::size_t GradientSums::place_of(std::size_t index) const {
    const Partition partition = layout_->partition();
    const UnitTile tile = layout_->tiles()[index];
    const std::size_t before = index - tile.tile;
    return partition.ranks * before + std::size_t{partition.rank} * layout_->unit(tile.unit).tile_count() + tile.tile;
}

std::optional<std::string> GradientSums::first_non_finite() {
    close_all();
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        const UnitSums& unit = units_[index];
        for (std::size_t at = 0; at < unit.own; ++at) {
            const Range& range = unit.ranges[at];
            if (!range.trainable || range.fresh || !is_there(index)) continue;
            const GradientView sum{look(index) + range.offset_bytes, type(), range.numel};
            if (std::isfinite(sum_of_squares(sum))) continue;
            const UnitSpec& spec = layout_->unit(index).spec();
            return fmt::format("unit '{}', parameter '{}'", spec.name, spec.parameters[at].name);
        }
    }
    return std::nullopt;
}

std::optional<std::string> GradientSums::first_missing() const {
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
        if (units_[unit].counted) continue;
        if (auto found = missing(unit)) return found;
    }
    return std::nullopt;
}

std::optional<std::string> GradientSums::missing(std::uint32_t unit) const {
    const UnitSpec& spec = layout_->unit(unit).spec();
    std::vector<std::string> names;
    for (std::size_t at = 0; at < spec.parameters.size(); ++at)
        if (const Range& range = units_[unit].ranges[at];
            range.trainable && range.fresh && spec.parameters[at].unused == Unused::refused)
            names.push_back(spec.parameters[at].name);
    if (names.empty()) return std::nullopt;
    return fmt::format("unit '{}', parameters '{}'", spec.name, fmt::join(names, "', '"));
}

}  // namespace penstock::zero
