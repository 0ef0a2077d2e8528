#include "zero_infinity/capi/c_step.h"

#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace penstock::zero {
namespace {

using store::require;

constexpr std::size_t least_step_bytes = offsetof(penstock_step, clip);

std::uint64_t count_of(std::chrono::nanoseconds time) {
    return static_cast<std::uint64_t>(time.count());
}

}  // namespace

CStep::CStep(const penstock_step& given, const penstock_optimizer& optimizer, std::size_t group_count) {
    store::take_struct(&given, store::checked_struct(&given, least_step_bytes, "step"), &given_, sizeof given_, "step");
    require(given_.step > 0, "steps count from 1");
    require(given_.group_count == group_count, "the step has {} groups, the model {}", given_.group_count, group_count);
    require(std::isfinite(given_.clip) && given_.clip >= 0, "a clip of {}", given_.clip);
    require(std::isfinite(given_.loss_scale) && given_.loss_scale >= 0, "a loss scale of {}", given_.loss_scale);
    given_groups_ = groups_of(given_.groups, given_.group_count, given_.group_struct_bytes);
    groups_ = group_values_of(optimizer, given_groups_);
    for (const GroupValues& group : groups_)
        require(std::isfinite(group.learning_rate), "a learning rate of {}", group.learning_rate);
    values_ = values_of(given_.values, given_.value_count);
}

UpdateRequest CStep::request() const {
    return {.values = {.step = given_.step, .learning_rate = groups_.back().learning_rate},
            .groups = groups_,
            .clip = given_.clip,
            .loss_scale = given_.loss_scale == 0 ? 1 : given_.loss_scale,
            .overflow = given_.may_skip != 0 ? UpdateRequest::Overflow::skipped : UpdateRequest::Overflow::refused};
}

CBegunStep CStep::begun() const {
    const UpdateRequest asked = request();
    return {.groups = given_groups_, .number = asked.values.step, .clip = asked.clip, .loss_scale = asked.loss_scale};
}

bool CStep::is_of(const CBegunStep& begun) const {
    const UpdateRequest asked = request();
    return begun.number == asked.values.step && begun.clip == asked.clip && begun.loss_scale == asked.loss_scale &&
           asked.overflow == UpdateRequest::Overflow::refused &&
           std::equal(begun.groups.begin(), begun.groups.end(), given_groups_.begin(), same_values);
}

penstock_step_report told(const UpdateReport& report) {
    return {.struct_bytes = sizeof(penstock_step_report),
            .gradient_norm = report.gradient_norm,
            .updated = report.updated ? 1 : 0,
            .committed = report.committed ? 1 : 0,
            .update_ns = count_of(report.update),
            .commit_ns = count_of(report.commit),
            .committed_before = report.committed_before ? 1 : 0,
            .updated_again = report.updated_again ? 1 : 0};
}

}  // namespace penstock::zero
