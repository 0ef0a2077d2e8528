// What has come to each unit's gradients in a step, what is missing, what is borrowed, and who has the sums. Knows the
// layout and the calls; no memory.
#pragma once

#include "zero_infinity/layout/model_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Compute thread only. The layout outlives it. A unit is always in one state, and the calls move it; a dash is refused
// by a check:
//
//   call              open          counted       lent   lent_within      updated_within
//   add(), hand_on()  open          open          -      -                -
//   clear()           open          open          lent   lent_within      updated_within
//   clear(one)        open          open          lent   -                -
//   count()           counted       counted       -      -                -
//   lend_all()        -             lent (1)      -      -                updated_within
//   lend_within()     lent_within   lent_within   -      -                -
//   give_back()       open          counted       open   updated_within   -
//   lend_again()      -             -             -      -                lent_within
//   end_step()        open          counted       lent   lent             open
//
// (1) open, where it has no tile that an update could go through: such a unit is never lent. hand_on() moves the owner,
// which gets the addend.
//
// An order of updates is a way through the table. After backward, and deferred: open, counted, lent, open. Within
// backward: open, lent_within, updated_within, open. Within backward and clipped after all: …, updated_within,
// lent_within, lent, open.
class GradientLedger {
   public:
    enum class State : std::uint8_t {
        open,            // addends may come
        counted,         // its squares are in the norm, and no addend has come since
        lent,            // an update reads its sums, after the norm; the next step's addends wait for it
        lent_within,     // an update reads its sums, before there is a norm; its squares are summed
        updated_within,  // that update is made; no addend comes until the step has ended
    };

    explicit GradientLedger(const ModelLayout& layout);

    State state(std::uint32_t unit) const { return units_.at(unit).state; }
    // Its squares were summed before the norm: they count as they are.
    bool was_lent_within(std::uint32_t unit) const noexcept;

    // REQUIRES, for all below that name a parameter: it is trainable. A unit's own come first, then what it borrows.
    bool has(ParameterId parameter) const { return entry(parameter).has(); }
    bool is_here(ParameterId parameter) const { return entry(parameter).came; }  // in this rank's sum
    bool is_trainable(ParameterId parameter) const {
        return units_.at(parameter.unit).entries.at(parameter.index).trainable;
    }
    bool has_any(std::uint32_t unit) const;  // here; also of what it borrows

    // An addend may come to it. REQUIRES: the unit is open or counted.
    void expect(ParameterId parameter) const;
    bool add(ParameterId parameter);    // true: the first one. REQUIRES: as expect()
    bool clear(ParameterId parameter);  // true: there was one
    void clear();

    // The first borrowed parameter with a sum of its own, in the order of the units that borrow; of an owner: the first
    // one that is borrowed from there. hand_on(): that sum is added to the owner's. True: the first addend there.
    std::optional<ParameterId> first_borrowed(std::optional<std::uint32_t> owner = {}) const;
    ParameterId owner_of(ParameterId borrowed) const { return entry(borrowed).owner; }
    bool hand_on(ParameterId borrowed);

    // Of several ranks. This rank's sums of the unit are in those of all: what comes next begins new ones here; or this
    // one, which did not come, is there as if it had.
    void pass_on(std::uint32_t unit);
    void pass_on(ParameterId parameter) { entry(parameter).passed_on = true; }
    bool has_own(std::uint32_t unit) const;  // a parameter of the unit's own, here or passed on
    // What has come here to the trainable parameters of all units, a bit each in their order; and what came to other
    // ranks, which is as if it had been passed on.
    std::size_t came_bytes() const;
    void say_what_came(std::span<std::byte> bits) const;
    void hear_what_came(std::span<const std::byte> bits);

    void count(std::uint32_t unit);
    void lend_all();
    void lend_within(std::uint32_t unit);
    void give_back(std::uint32_t unit);
    void lend_again(std::uint32_t unit);
    void end_step();
    // REQUIRES: an update reads the unit's sums.
    void expect_lent(std::uint32_t unit) const;

    // "unit NAME, parameters A, B" of the first unit that takes addends and lacks some: trainable parameters that are
    // Unused::refused. missing(): the same of one unit, in any state. Nothing when there are none.
    std::optional<std::string> first_missing() const;
    std::optional<std::string> missing(std::uint32_t unit) const;

   private:
    struct Entry {  // a parameter, or one that is borrowed
        ParameterId owner;
        bool trainable = false;
        bool came = false;
        bool passed_on = false;  // to the sums of all ranks, by this one or another
        bool has() const noexcept { return came || passed_on; }
    };
    struct Unit {
        std::vector<Entry> entries;  // own, then borrowed, as ParameterId counts
        std::size_t own = 0;         // how many of them are own
        State state = State::open;
    };

    const Entry& entry(ParameterId parameter) const;
    Entry& entry(ParameterId parameter);
    bool has_tiles(std::uint32_t unit) const { return layout_->unit(unit).tile_count() > 0; }
    template <typename Units, typename Visit>
    static void for_each_own(Units& units, Visit visit);  // (entry, its bit)

    const ModelLayout* layout_;
    std::vector<Unit> units_;
};

}  // namespace penstock::zero
