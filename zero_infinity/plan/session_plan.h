// What a session is going to be: the model's layout, how the budgets are divided, what a step moves. Pure: decided by
// what is given, with nothing opened and nothing read.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/plan/division.h"
#include "zero_infinity/plan/machine_room.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/model_spec.h"
#include "zero_infinity/plan/traffic.h"

#include <string>
#include <vector>

namespace penstock::zero {

// A visit of these units as the session makes it: with the owners of what they borrow, each unit once.
Visit with_owners(const Visit& visit, const std::vector<UnitSpec>& units);

// Stays where it is made: its parts refer to each other.
struct SessionPlan {
    // Throws Error: usage (options, a group that no parameter is in, a unit that borrows what does not come before it),
    // does_not_fit (with the table of uses: the budgets, or the room).
    SessionPlan(ModelSpec given_model, const CoreOptions& given_options, const MachineRoom& given_room,
                Partition partition);
    SessionPlan(const SessionPlan&) = delete;
    SessionPlan& operator=(const SessionPlan&) = delete;

    DeviceOptions device() const;  // with a budget of what is used of it
    Traffic nominal_traffic() const;
    std::uint64_t rank_piece_bytes() const;                          // of a collective
    std::uint64_t store_bytes() const;                               // on disk, of the store that would be made
    std::uint64_t leaving_gradient_bytes(std::uint32_t unit) const;  // what they take on NVMe; 0: they stay
    std::vector<std::uint64_t> leaving_gradients() const;            // the same by unit
    // That are written in a step of one pass: none where they are updated with before they leave (updates_at_once()).
    std::uint64_t spilled_gradient_bytes(std::uint32_t unit) const;

    const MachineRoom room;
    const ModelSpec model;
    const CoreOptions options;  // checked; whose gradients leave host memory, where they may and must
    const StateFormat format;
    const std::string fingerprint;  // of all that decides what the bytes of the objects mean
    const ModelLayout layout;
    const StepRules rules;
    const MemoryPlan memory;
    const StepBytes step_bytes;

   private:
    struct Decided;  // before there are members
    SessionPlan(Decided decided, const MachineRoom& given_room);
};

}  // namespace penstock::zero
