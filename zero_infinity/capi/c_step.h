// A step of a C caller: checked, as the session takes it, and held against the one that was begun.
#pragma once

#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/session/core_session.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::zero {

// What update() is held to, and which units are updated already.
struct CBegunStep {
    std::vector<penstock_group> groups;
    std::uint64_t number = 0;
    double clip = 0;
    double loss_scale = 1;
    std::vector<std::uint32_t> completed = {};  // units
};

// Stays where it is made: its request refers to it.
class CStep {
   public:
    // Throws store::Refusal: sizes that cannot be, numbers that are none, other groups than the model's.
    CStep(const penstock_step& given, const penstock_optimizer& optimizer, std::size_t group_count);
    CStep(const CStep&) = delete;
    CStep& operator=(const CStep&) = delete;

    UpdateRequest request() const;
    const store::ClientState& values() const noexcept { return values_; }
    CBegunStep begun() const;
    bool is_of(const CBegunStep& begun) const;  // all that decides bits is what it was begun with

   private:
    penstock_step given_{};
    std::vector<penstock_group> given_groups_;
    std::vector<GroupValues> groups_;
    store::ClientState values_;
};

penstock_step_report told(const UpdateReport& report);

}  // namespace penstock::zero
