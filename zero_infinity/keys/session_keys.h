// The keys of what a session is told: rows of the key table, each with the member of CoreOptions that it fills.
#pragma once

#include "zero_infinity/keys/key_spec.h"
#include "zero_infinity/plan/core_options.h"

#include <span>
#include <string_view>

namespace penstock::zero {

// An older word of run.update_order: within, and units of a deferred share.
inline constexpr std::string_view balanced_text = "balanced";

std::span<const KeySpec> session_keys() noexcept;

// Fills the members that JSON names by their keys, with the values that the package's configurations have:
// {"run.update_order": "within", "memory.prefetch_depth": 4}. Throws Error (usage) naming the key: one that is not of a
// session (with all that are), or a value that it does not have.
void take_settings(std::string_view json, CoreOptions& options);

}  // namespace penstock::zero
