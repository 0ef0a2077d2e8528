// From the structures of penstock_session.h to what a session is told.
#pragma once

#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/session/step_pieces.h"

#include <cstddef>
#include <vector>

namespace penstock::zero {

// What a program cannot be without.
inline constexpr std::size_t least_options_bytes = offsetof(penstock_session_options, resume_from);

// Enumerations are taken by reference: a C caller may have set any number, which must not be copied as one of them.
// All throw store::Refusal (usage) on NULL, sizes that cannot be, numbers of no enumeration, indices of nothing; and
// Error (usage) as the makers of optimizers do.
ModelSpec model_of(const penstock_model* given);
CoreOptions options_of(const penstock_session_options& given);
store::ClientState values_of(const penstock_value* values, std::size_t count);
PassVisits visits_of(const penstock_visit* visits, std::size_t count, std::size_t unit_count);
Visit visit_of(const std::uint32_t* units, std::size_t count, std::size_t unit_count);
std::vector<penstock_group> groups_of(const penstock_group* groups, std::size_t count, std::size_t struct_bytes);
bool same_values(const penstock_group& one, const penstock_group& other);
// The groups of a step as the session takes them: the last one as `others`.
std::vector<GroupValues> group_values_of(const penstock_optimizer& optimizer, std::span<const penstock_group> groups);

penstock_type type_of(PlaneType type) noexcept;

}  // namespace penstock::zero
