#include "zero_infinity/plan/memory_plan.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace penstock::zero {
namespace {

std::vector<GroupSpec> all_groups(const ModelLayout& layout) {
    std::vector<GroupSpec> groups;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        groups.push_back({layout.unit(unit).spec().name, layout.group_bytes(unit)});
    return groups;
}

std::vector<GroupSpec> streamed_groups(const MemoryRequest& request) {
    std::vector<GroupSpec> groups = all_groups(*request.layout);
    for (GroupSpec& group : groups)
        if (request.layout->residency().weights == Tier::host) group.bytes = 0;
    return groups;
}

// Both passes share one window, so each is as deep as it can be within the same bytes; with none to spare, depth 0.
WeightSchedule schedule(const std::vector<GroupSpec>& groups, const std::vector<Visit>& visits, std::uint32_t depth,
                        std::uint64_t window_bytes) {
    WeightSchedule smallest(groups, visits, 0);
    return smallest.window_bytes() > window_bytes ? smallest
                                                  : WeightSchedule::fitting(groups, visits, depth, window_bytes);
}

pool::Budget fixed_uses(const MemoryRequest& request, const SettingNames& names) {
    pool::Budget budget(request.host_budget_bytes, names.host_budget);
    const auto add = [&](const char* use, std::uint64_t bytes, const std::string& setting) {
        if (bytes > 0) budget.add({use, bytes, setting});
    };
    add(gradients_use, request.gradient_bytes, names.gradient_type);
    add(staging_use, request.staging_tiles * request.layout->staging_tile_bytes(), names.staging);
    add(resident_weights_use, request.layout->resident_weights_bytes(), names.resident_weights);
    add(resident_states_use, request.layout->resident_states_bytes(), names.resident_states);
    if (request.snapshots) add(snapshot_use, snapshot_bytes(*request.layout), names.snapshots);
    return budget;
}

void plan_device(const MemoryRequest& request, const SettingNames& names, MemoryPlan& plan) {
    // No tier of a device is resident yet: every group passes through its window.
    const std::vector<GroupSpec> all = all_groups(*request.layout);
    const std::uint64_t room =
        request.device_budget_bytes - std::min(request.device_budget_bytes, request.device_gradient_bytes);
    try {
        plan.training.device = WeightSchedule::fitting(all, request.training, plan.training.host.depth(), room);
        plan.inference.device = WeightSchedule::fitting(all, request.inference, plan.inference.host.depth(), room);
    } catch (const Error& error) {
        throw Error(
            error.code(),
            fmt::format("the device budget {} ({} bytes, of which {} for gradients) is too small: {}",
                        names.device_budget, request.device_budget_bytes, request.device_gradient_bytes, error.what()));
    }
}

}  // namespace

std::uint64_t snapshot_bytes(const ModelLayout& layout) {
    return 2 * layout.largest_extent_bytes();
}

MemoryPlan plan_memory(const MemoryRequest& request, const SettingNames& names) {
    pool::Budget budget = fixed_uses(request, names);
    const std::uint64_t room = budget.limit_bytes() - std::min(budget.limit_bytes(), budget.used_bytes());
    const std::vector<GroupSpec> streamed = streamed_groups(request);
    PassSchedules training{schedule(streamed, request.training, request.prefetch_depth, room), std::nullopt};
    PassSchedules inference{schedule(streamed, request.inference, request.prefetch_depth, room), std::nullopt};
    const std::uint64_t window = std::max(training.host.window_bytes(), inference.host.window_bytes());
    if (window > 0) budget.add({weights_use, window, names.prefetch_depth});
    budget.check({.available_bytes = std::numeric_limits<std::uint64_t>::max(), .limited_by = ""});
    MemoryPlan plan{std::move(budget), std::move(training), std::move(inference)};
    if (request.device_has_memory) plan_device(request, names, plan);
    return plan;
}

}  // namespace penstock::zero
