#include "zero_infinity/gradients/gradient_sums.h"

#include "aio/words/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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
      closing_(host_.shares()) {
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
    ledger_.clear();
    host_.forget_all();
    if (closes()) empty_slots();
    if (shard_) shard_->clear();
    reach_ = Reach::none;
}

void GradientSums::clear(ParameterId parameter) {
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
    if (device_.has(unit)) return device_.memory(unit);
    if (const auto other = device_.in_the_way(unit)) to_host(*other);  // its copy goes on while this unit is added to
    device_.enter(unit);
    if (ledger_.has_any(unit)) {
        device_.wait_before_copy_in();
        const Ticket in = device_.copy_in(unit, to_read(unit));
        if (leaves(unit)) device_.wait_for(in);  // then others may have that memory
    }
    return device_.memory(unit);
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
    host_.hold(owner.unit);
    to_own(owner.unit);
    const GradientView addend = host_.sum(borrowed);
    std::byte* sum = to_change(owner.unit) + host_.place(owner).offset_bytes;
    ledger_.hand_on(borrowed) ? convert(addend, type(), sum) : penstock::zero::add(addend, sum);
}

// ---------------------------------------------------------------- several ranks

// What is laid out goes back before an addend overwrites it.
void GradientSums::to_own(std::uint32_t unit) {
    if (shard_) shard_->take_back(unit);
    std::erase(leaving_, unit);
    reach_ = Reach::own;
}

// Every unit, for nobody knows what came to others. While one is made here, those behind it are on their way.
void GradientSums::reduce(Communicator& communicator) {
    reach_ = Reach::all;
    if (!shard_) return;
    PENSTOCK_CHECK(!closes() || closing_.begun(), "sums are reduced in an order that the ranks have not agreed on");
    if (closes())
        for (const std::uint32_t unit : closing_.rest()) add_over_ranks(unit);
    all_to_host();
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        if (!closing_.closes(unit) && layout_->unit(unit).tile_count() > 0) add_over_ranks(unit);
    if (closes()) add_late(communicator);
    closing_.end();
}

// Posted: what is here of it, which may be nothing.
void GradientSums::add_over_ranks(std::uint32_t unit) {
    if (device_.has(unit)) to_host(unit);
    make_room(unit);
    device_.wait();
    shard_->take_back(unit);
    host_.clear_gaps(unit, ledger_);
    shard_->add(unit, host_.whole(unit));
    ledger_.pass_on(unit);
    std::erase(leaving_, unit);
    if (host_.is_in_slot(unit)) leaving_.push_back(unit);
}

// Addends that came to a unit of any rank after it was closed there: of all ranks once more.
void GradientSums::add_late(Communicator& communicator) {
    const auto units = layout_->unit_count();
    std::vector<std::byte> own(units), of_all(units * communicator.ranks());
    for (std::uint32_t unit = 0; unit < units; ++unit)
        own[unit] = static_cast<std::byte>(closing_.closes(unit) && ledger_.has_any(unit));
    communicator.all_gather("which gradients came late", own, of_all);
    for (std::uint32_t unit = 0; unit < units; ++unit)
        for (std::size_t at = unit; at < of_all.size(); at += units)
            if (of_all[at] != std::byte{0}) {
                add_over_ranks(unit);
                break;
            }
}

// ---------------------------------------------------------------- of several ranks, in two slots

// A slot for its sums; or that of the first unit whose own are with all ranks; or memory of its own.
void GradientSums::make_room(std::uint32_t unit) {
    if (!closes() || host_.is_there(unit) || host_.take_slot(unit)) return;
    if (leaving_.empty()) return host_.keep(unit);
    const std::uint32_t first = leaving_.front();
    leaving_.pop_front();
    shard_->wait(first);
    host_.leave_slot(first);
    host_.take_slot(unit);
}

// A place for the whole range, which stays.
void GradientSums::make_whole(std::uint32_t unit) {
    if (host_.is_in_slot(unit)) {
        PENSTOCK_CHECK(std::erase(leaving_, unit) > 0, "the sums of unit {} are laid out before they left", unit);
        host_.leave_slot(unit);
    }
    if (!host_.is_there(unit)) host_.keep(unit);
}

// Nobody reads what is there; what is on its way stays until it has left.
void GradientSums::empty_slots() {
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        if (host_.is_in_slot(unit) && std::ranges::find(leaving_, unit) == leaving_.end()) host_.leave_slot(unit);
}

// ---------------------------------------------------------------- of several ranks, whole on each

// Units without a gradient of any rank are not sent.
void GradientSums::lay_out(Communicator& communicator) {
    PENSTOCK_CHECK(shard_ && (reach_ == Reach::none || reach_ == Reach::all),
                   "sums are laid out before those of all ranks are made");
    all_to_host();
    if (reach_ == Reach::all) hear_what_came(communicator);
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit) {
        if (layout_->unit(unit).tile_count() == 0) continue;
        shard_->wait(unit);
        make_whole(unit);
        ledger_.has_own(unit) ? shard_->lay_out(unit, host_.whole(unit))
                              : shard_->lay_out_zeros(unit, host_.whole(unit));
    }
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit) shard_->wait(unit);
    reach_ = Reach::laid_out;
}

void GradientSums::hear_what_came(Communicator& communicator) {
    std::vector<std::byte> own(ledger_.came_bytes()), of_all(communicator.ranks() * own.size());
    ledger_.say_what_came(own);
    communicator.all_gather("what gradients came", own, of_all);
    for (std::uint32_t rank = 0; rank < communicator.ranks(); ++rank)
        ledger_.hear_what_came(std::span(of_all).subspan(rank * own.size(), own.size()));
}

// ---------------------------------------------------------------- the norm

double GradientSums::norm(Workers& workers, Communicator& communicator, CommitBarrier& commits) {
    all_to_host();
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit) {
        if (ledger_.was_lent_within(unit)) continue;
        ledger_.count(unit);
        if (layout_->unit(unit).tile_count() > 0) count(unit, workers);
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
        for (std::uint32_t index = 0; index < layout_->unit(unit).spec().parameters.size(); ++index) {
            const ParameterId parameter{unit, index};
            if (!ledger_.is_trainable(parameter) || !ledger_.has(parameter)) continue;
            if (!shard_ && !host_.is_there(unit)) continue;
            if (!std::isfinite(sum_of_squares(sum_of(parameter)))) return parameter;
        }
    return std::nullopt;
}

// ---------------------------------------------------------------- who has the sums

void GradientSums::lend() {
    PENSTOCK_CHECK(options_.memory != GradientMemory::one_unit, "all units lend gradients that memory has of one");
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
