#include "zero_infinity/gradients/gradient_sums.h"

#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace penstock::zero {
namespace {

std::vector<std::uint64_t> bytes_by_unit(const ModelLayout& layout, const HostSums& host) {
    std::vector<std::uint64_t> bytes;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) bytes.push_back(host.bytes(unit));
    return bytes;
}

}  // namespace

GradientSums::GradientSums(const ModelLayout& layout, const GradientSumsOptions& options, pool::PinnedPool& pool,
                           Device& device)
    : layout_(&layout),
      options_(options),
      ledger_(layout),
      host_(layout,
            {.type = options.type,
             .memory = options.memory,
             .spill = options.spill,
             .driver = options.driver,
             .more = options.more},
            pool),
      device_(device, options.device_bytes, bytes_by_unit(layout, host_), options.deadline),
      norm_(layout, ledger_),
      closing_(host_.shares()),
      sent_ahead_(layout.unit_count()),
      counted_ahead_(layout.unit_count()) {
    PENSTOCK_CHECK(
        options.beside == nullptr || (options.memory == GradientMemory::all_units && options.lane == nullptr),
        "sums that do not stay in host memory are counted beside compute");
    if (options.lane != nullptr) shard_.emplace(layout, options.type, pool, *options.lane);
}

// Copies of a step that was left by an exception end here, or never: then their memory is never granted again.
GradientSums::~GradientSums() {
    if (!device_.end()) host_.orphan();
}

// ---------------------------------------------------------------- what comes

// The ledger is asked first and told last: a window of the device begins with what had come before.
GradientSums::Open GradientSums::open(ParameterId parameter) {
    ledger_.expect(parameter);
    forget_count(parameter.unit);
    host_.hold(parameter.unit);
    if (closing_.begun())
        for (const std::uint32_t unit : closing_.come_to(parameter.unit)) add_over_ranks(unit);
    to_own(parameter.unit);
    const HostSums::Place& place = host_.place(parameter);
    std::byte* base = device_.shares_host_memory() ? to_change(parameter.unit) : on_device(parameter.unit);
    return {base + place.offset_bytes, place.numel, ledger_.add(parameter)};
}

void GradientSums::add(ParameterId parameter, const GradientView& addend) {
    PENSTOCK_CHECK(device_.shares_host_memory(), "gradients in host memory are added to those of a device");
    const Open sum = open(parameter);
    PENSTOCK_CHECK(addend.numel == sum.numel, "a gradient of {} elements for a parameter of {}", addend.numel,
                   sum.numel);
    sum.fresh ? convert(addend, type(), sum.data) : add_converted(addend, type(), sum.data);
}

void GradientSums::clear() {
    forget_counts();
    ledger_.clear();
    host_.forget_all();
    if (closes()) empty_slots();
    if (shard_) shard_->clear();
    reach_ = Reach::none;
}

void GradientSums::clear(ParameterId parameter) {
    forget_count(parameter.unit);
    if (shard_ && parameter.index < layout_->unit(parameter.unit).spec().parameters.size()) {
        const ParameterPlace& place = layout_->unit(parameter.unit).place(parameter.index);
        shard_->clear(parameter.unit, place.first, place.numel);
    }
    if (!ledger_.clear(parameter) || !leaves(parameter.unit)) return;
    all_to_host();
    to_change(parameter.unit);  // its squares are others now
}

GradientSums::Sum GradientSums::sum(ParameterId parameter) {
    const std::uint32_t unit = parameter.unit;
    forget_count(unit);
    PENSTOCK_CHECK(ledger_.has(parameter), "unit {}: parameter {} has no gradient yet", unit, parameter.index);
    PENSTOCK_CHECK(host_.is_there(unit) && !leaves(unit) && (!shard_ || shard_->is_laid_out(unit)),
                   "unit {}: parameter {} is updated and has no gradient any more, or none that stays in host memory",
                   unit, parameter.index);
    if (device_.has(unit)) to_host(unit);
    device_.wait();
    const HostSums::Place& place = host_.place(parameter);
    return {host_.memory(unit) + place.offset_bytes, place.numel};
}

GradientSums::Sum GradientSums::make(ParameterId parameter) {
    if (shard_) {
        PENSTOCK_CHECK(reach_ == Reach::laid_out, "unit {}: a gradient of all ranks is made before theirs are there",
                       parameter.unit);
        ledger_.pass_on(parameter);  // its range is zero where nothing came
    } else if (is_fresh(parameter)) {
        forget_count(parameter.unit);
        all_to_host();
        host_.hold(parameter.unit);
        const HostSums::Place& place = host_.place(parameter);
        std::memset(to_change(parameter.unit) + place.offset_bytes, 0, place.numel * bytes_of(type()));
        ledger_.add(parameter);
        reach_ = Reach::own;
    }
    return sum(parameter);
}

// ---------------------------------------------------------------- on a device with memory of its own

// Where the unit's gradients are summed there, with what was summed before.
std::byte* GradientSums::on_device(std::uint32_t unit) {
    if (opened_ != unit) send_ahead();
    opened_ = unit;
    if (device_.has(unit)) {
        device_.write(unit);
        return device_.memory(unit);
    }
    if (const auto other = device_.in_the_way(unit)) to_host(*other);  // its copy goes on while this unit is added to
    device_.enter(unit);
    if (ledger_.has_any(unit)) {
        device_.wait_before_copy_in();
        const Ticket in = device_.copy_in(unit, to_read(unit));
        if (leaves(unit)) device_.wait_for(in);  // then others may have that memory
    }
    return device_.memory(unit);
}

// Backward goes on to another unit.
void GradientSums::send_ahead() {
    if (options_.beside == nullptr || !opened_ || sent_ahead_[*opened_] || !device_.has(*opened_)) return;
    sent_ahead_[*opened_] = true;
    device_.copy_ahead(*opened_, to_change(*opened_));
    if (layout_->unit(*opened_).tile_count() == 0) return;
    counted_ahead_[*opened_] = options_.beside->post([this, unit = *opened_, there = device_.newest_out()] {
        device_.wait_for(there);
        count_in_place(unit, *options_.workers);
    });
}

// More may come to it, or somebody changes it.
void GradientSums::forget_count(std::uint32_t unit) {
    if (const auto job = std::exchange(counted_ahead_.at(unit), 0); job != 0) options_.beside->wait(job);
}

void GradientSums::forget_counts() {
    if (options_.beside != nullptr) options_.beside->finish();
    counted_ahead_.assign(counted_ahead_.size(), 0);
}

void GradientSums::end_pass() {
    send_ahead();
    opened_.reset();
    sent_ahead_.assign(sent_ahead_.size(), false);
}

void GradientSums::copy_out(std::uint32_t unit) {
    const Ticket out = device_.copy_out(unit, to_change(unit));
    if (leaves(unit)) device_.wait_for(out);
}

void GradientSums::to_host(std::uint32_t unit) {
    copy_out(unit);
    if (leaves(unit) && !awaits_borrowed(unit)) write(unit);  // else it would leave twice
}

void GradientSums::all_to_host() {
    while (const auto unit = device_.first()) to_host(*unit);
    device_.wait();
}

// ---------------------------------------------------------------- in host memory

std::byte* GradientSums::to_change(std::uint32_t unit) {
    if (const auto before = host_.leaves_before(unit)) write(*before);
    make_room(unit);
    return host_.to_change(unit);
}

const std::byte* GradientSums::to_read(std::uint32_t unit) {
    if (const auto before = host_.leaves_before(unit)) write(*before);
    return host_.to_read(unit);
}

// Of a unit whose sums leave. Its squares are those of the bytes that leave: whole, as far as anybody knows; where an
// addend follows after all, the unit is read, changed, and counted and written again.
void GradientSums::write(std::uint32_t unit) {
    if (!host_.is_changed(unit)) return;
    count_in_place(unit, *options_.workers);
    host_.write(unit);
}

void GradientSums::let_leave(std::uint32_t unit) {
    if (!leaves(unit) || awaits_borrowed(unit)) return;
    if (device_.has(unit)) to_host(unit);
    write(unit);
}

bool GradientSums::add_borrowed() {
    bool added = false;
    while (const auto borrowed = ledger_.first_borrowed()) {
        all_to_host();
        add_to_owner(*borrowed);
        added = true;
    }
    return added;
}

void GradientSums::add_to_owner(ParameterId borrowed) {
    const ParameterId owner = ledger_.owner_of(borrowed);
    forget_count(owner.unit);
    if (counted_ahead_[borrowed.unit] != 0) options_.beside->wait(counted_ahead_[borrowed.unit]);
    host_.hold(owner.unit);
    to_own(owner.unit);
    const GradientView addend = host_.sum(borrowed);
    std::byte* sum = to_change(owner.unit) + host_.place(owner).offset_bytes;
    ledger_.hand_on(borrowed) ? convert(addend, type(), sum) : penstock::zero::add(addend, sum);
}

// ---------------------------------------------------------------- the norm

double GradientSums::norm(Workers& workers, Communicator& communicator, CommitBarrier& commits) {
    all_to_host();
    if (options_.beside != nullptr) options_.beside->finish();  // the workers are one thread's at a time
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit) {
        if (ledger_.was_lent_within(unit)) continue;
        ledger_.count(unit);
        if (layout_->unit(unit).tile_count() > 0 && counted_ahead_[unit] == 0) count(unit, workers);
    }
    return norm_.of_all(communicator, commits, ledger_);
}

// Its squares are summed, also where no gradient came to it. Where its sums leave, they do.
void GradientSums::count(std::uint32_t unit, Workers& workers) {
    if (!leaves(unit)) return count_in_place(unit, workers);
    if (host_.is_empty(unit)) to_change(unit);  // an update reads zeros, too
    write(unit);
}

void GradientSums::count_in_place(std::uint32_t unit, Workers& workers) {
    if (shard_) {
        shard_->look(unit);
        return norm_.count(
            unit, [this](UnitTile tile) { return shard_->tile(tile); }, workers);
    }
    if (!host_.is_there(unit)) return norm_.count(unit, {}, workers);
    host_.clear_gaps(unit, ledger_);
    norm_.count(
        unit, [this](UnitTile tile) { return host_.tile(tile); }, workers);
}

// Here; of several ranks what of it is in the shard.
GradientView GradientSums::sum_of(ParameterId parameter) {
    if (shard_) return shard_->part(parameter);
    to_read(parameter.unit);
    return host_.sum(parameter);
}

std::string GradientSums::name_of(ParameterId parameter) const {
    const UnitSpec& spec = layout_->unit(parameter.unit).spec();
    return fmt::format("unit '{}', parameter '{}'", spec.name, spec.parameters.at(parameter.index).name);
}

std::optional<ParameterId> GradientSums::first_non_finite() {
    all_to_host();
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        if (const auto found = first_non_finite(unit)) return found;
    return std::nullopt;
}

std::optional<ParameterId> GradientSums::first_non_finite(std::uint32_t unit) {
    if (!shard_ && !host_.is_there(unit)) return std::nullopt;
    for (std::uint32_t index = 0; index < layout_->unit(unit).spec().parameters.size(); ++index) {
        const ParameterId parameter{unit, index};
        if (!ledger_.is_trainable(parameter) || !ledger_.has(parameter)) continue;
        if (!std::isfinite(sum_of_squares(sum_of(parameter)))) return parameter;
    }
    return std::nullopt;
}

// ---------------------------------------------------------------- who has the sums

void GradientSums::lend() {
    PENSTOCK_CHECK(options_.memory != GradientMemory::one_unit, "all units lend gradients that memory has of one");
    forget_counts();
    ledger_.lend_all();
    host_.forget_all();
    if (shard_) shard_->clear();
    reach_ = Reach::none;
}

void GradientSums::give_back(std::uint32_t unit) {
    ledger_.give_back(unit);
    host_.let_go(unit);
    if (ledger_.was_lent_within(unit) && !options_.lends_again) host_.forget(unit);
}

bool GradientSums::lend(std::uint32_t unit, Workers& workers) {
    host_.hold(unit);
    if (device_.has(unit)) copy_out(unit);  // to_host() would write it
    all_to_host();
    while (const auto borrowed = ledger_.first_borrowed(unit)) add_to_owner(*borrowed);
    ledger_.lend_within(unit);
    if (host_.is_empty(unit)) to_change(unit);
    to_read(unit);
    // Only what may be lent again is written: an update within backward takes its gradients from memory.
    if (options_.lends_again)
        count(unit, workers);
    else if (!leaves(unit) || host_.is_changed(unit))
        count_in_place(unit, workers);
    return norm_.is_finite(unit);
}

Ticket GradientSums::begin_lend(std::uint32_t unit) {
    PENSTOCK_CHECK(options_.beside != nullptr, "the sums of unit {} are lent beside compute, where nothing is", unit);
    forget_count(unit);
    if (awaits_borrowed(unit)) all_to_host();
    while (const auto borrowed = ledger_.first_borrowed(unit)) add_to_owner(*borrowed);
    if (device_.has(unit)) copy_out(unit);
    ledger_.lend_within(unit);
    return device_.newest_out();
}

bool GradientSums::take_lent(std::uint32_t unit, Ticket there, Workers& workers) {
    device_.wait_for(there);
    count_in_place(unit, workers);
    return norm_.is_finite(unit);
}

void GradientSums::lend_again(std::uint32_t unit) {
    PENSTOCK_CHECK(options_.lends_again, "unit {} is lent again, but is not kept for that", unit);
    ledger_.lend_again(unit);
}

void GradientSums::end_step() {
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        if (ledger_.was_lent_within(unit)) host_.forget(unit);
    ledger_.end_step();
}

GradientView GradientSums::tile(UnitTile tile, const std::byte* elsewhere) const {
    ledger_.expect_lent(tile.unit);
    if (elsewhere != nullptr) return {elsewhere, type(), layout_->unit(tile.unit).tile_numel(tile.tile)};
    return shard_ ? shard_->tile(tile) : host_.tile(tile);
}

}  // namespace penstock::zero
