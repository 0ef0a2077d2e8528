#include "zero_infinity/plan/core_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock::zero {
namespace {

// What was committed before a step is whole until the step's commit where all is written to the other slot: what host
// memory keeps is changed in place.
std::vector<std::string> missing_to_undo(const CoreOptions& options) {
    const SettingNames& names = options.names;
    std::vector<std::string> missing;
    if (options.durability != Durability::every_step) missing.push_back(names.commits);
    if (options.residency.weights != Tier::nvme) missing.push_back(fmt::format("{} \"nvme\"", names.resident_weights));
    if (options.residency.states != Tier::nvme) missing.push_back(fmt::format("{} \"nvme\"", names.resident_states));
    if (options.fill_host_budget) missing.push_back(fmt::format("no {}", names.fill));
    return missing;
}

}  // namespace

std::string refusal_of_order(const CoreOptions& options) {
    const SettingNames& names = options.names;
    const std::optional<double> share = options.deferred_share;
    if (share && !(*share >= 0 && *share <= 1))
        return fmt::format("{} {}: a share is 0 to 1", names.deferred_share, *share);
    if (options.gradient_memory == GradientMemory::one_unit && !updates_at_once(options))
        return fmt::format(
            "{} \"{}\" with gradient_memory one_unit: it needs \"within\", without {} and {}, which updates a unit "
            "before the next one's gradients come",
            names.update_order, word_of(options.update_order), names.clipping, names.deferred_share);
    if (options.update_order != UpdateOrder::within)
        return share == 0.0 ? ""
                            : fmt::format("{} has no effect with {} \"{}\"; leave it out, or take \"within\"",
                                          names.deferred_share, names.update_order, word_of(options.update_order));
    const std::vector<std::string> missing = missing_to_undo(options);
    if (!options.clips || missing.empty()) return "";
    return fmt::format(
        "{} \"within\" with {} updates a step again, from what was committed before it, where the gradient is clipped "
        "after all: it needs {}; or take \"deferred\"",
        names.update_order, names.clipping, fmt::join(missing, ", "));
}

}  // namespace penstock::zero
