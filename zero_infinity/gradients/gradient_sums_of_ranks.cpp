// What several ranks do with their sums: gradient_sums.h.
#include "zero_infinity/gradients/gradient_sums.h"

#include "aio/words/check.h"

#include <algorithm>

namespace penstock::zero {

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

}  // namespace penstock::zero
