#include "zero_infinity/plan/memory_plan.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace penstock::zero {
namespace {

// What units that are resident by themselves (UnitSpec::resident) take where compute reads apart.
std::uint64_t gathered_resident_bytes(const ModelLayout& layout) {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.stays(unit)) bytes += layout.gathered(unit).bytes;
    return bytes;
}

// The update's visits: the window has room for whatever is trained, visited by compute or not.
PassVisits one_by_one(const ModelLayout& layout) {
    PassVisits visits;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.unit(unit).tile_count() > 0) visits.push_back({{unit}});
    return visits;
}

std::uint64_t slot_bytes(const MemoryRequest& request) {
    return request.layout->staging_tile_bytes() + request.gradient_tile_bytes;
}

pool::Budget fixed_uses(const MemoryRequest& request, std::uint32_t staging_tiles, const SettingNames& names) {
    pool::Budget budget(request.host_budget_bytes, names.host_budget);
    const auto add = [&](const char* use, std::uint64_t bytes, const std::string& setting) {
        if (bytes > 0) budget.add({use, bytes, setting});
    };
    add(gradients_use, request.gradient_bytes,
        request.gradients_may_leave && !names.gradient_memory.empty()
            ? fmt::format("{}, {}", names.gradient_type, names.gradient_memory)
            : names.gradient_type);
    add(activations_use, request.activation_bytes, names.activations);
    add(staging_use, staging_tiles * slot_bytes(request), names.staging);
    const bool gathers = !request.device_has_memory && reads_apart(*request.layout, false);
    add(resident_weights_use,
        request.layout->resident_weights_bytes() + (gathers ? gathered_resident_bytes(*request.layout) : 0),
        names.resident_weights);
    add(resident_states_use, request.layout->resident_states_bytes(), names.resident_states);
    add(ranks_use, request.ranks_bytes, names.ranks);
    if (request.snapshots) add(snapshot_use, snapshot_bytes(*request.layout), names.snapshots);
    return budget;
}

// Weights that fit stay in it from one pass to the next.
WindowUse device_window(const MemoryRequest& request, std::span<const PassVisits> passes, const SettingNames& names) {
    const std::uint64_t residents = gathered_resident_bytes(*request.layout);
    const std::uint64_t fixed = request.device_gradient_bytes + residents;
    const std::vector<UnitBytes> units = units_of_window(*request.layout, /*apart=*/true);
    try {
        if (fixed > request.device_budget_bytes)
            throw Error(ExitCode::does_not_fit,
                        fmt::format("{} bytes are missing", fixed - request.device_budget_bytes));
        const std::uint64_t room = request.device_budget_bytes - fixed;
        return widened_window(units, passes, fitting_window(units, passes, request.prefetch_depth, room), room);
    } catch (const Error& error) {
        throw Error(
            error.code(),
            fmt::format("the device budget {} ({} bytes, of which {} for gradients{}) is too small: {}",
                        names.device_budget, request.device_budget_bytes, request.device_gradient_bytes,
                        residents == 0 ? "" : fmt::format(" and {} for resident weights", residents), error.what()));
    }
}

// Weights first, because what has no room comes from NVMe again; gradients that have none wait in host memory.
void divide_device(const MemoryRequest& request, std::span<const PassVisits> passes, const SettingNames& names,
                   MemoryPlan& plan) {
    plan.window = device_window(request, passes, names);
    const std::uint64_t taken = plan.window.window_bytes + gathered_resident_bytes(*request.layout);
    const bool all = request.device_budget_bytes - taken >= request.device_all_gradients_bytes;
    plan.device_gradient_bytes = all ? request.device_all_gradients_bytes : request.device_gradient_bytes;
    plan.device_bytes = taken + plan.device_gradient_bytes;
}

// Host memory that shards pass through on their way to where compute reads: as many of the largest as are fetched
// ahead, where there is room; one at least.
std::uint64_t passage_bytes(const ModelLayout& layout, std::uint32_t depth, std::uint64_t room) {
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.weights_tier(unit) == Tier::nvme) largest = std::max(largest, layout.shard(unit).bytes);
    std::uint64_t count = std::uint64_t{depth} + 1;
    while (count > 1 && count * largest > room) --count;
    return count * largest;
}

// Where it does not fit, the least window: the budget's table then says what is missing.
WindowUse host_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, std::uint32_t depth,
                      std::uint64_t room) {
    const WindowUse least = least_window(units, passes, 0);
    return least.window_bytes > room ? least : fitting_window(units, passes, depth, room);
}

// Where shards are gathered, the window comes first, for what has no room in it comes from NVMe again; the passage has
// what is left, and one shard at least.
void divide_host(const MemoryRequest& request, std::span<const PassVisits> passes, std::uint64_t room,
                 MemoryPlan& plan) {
    const bool apart = reads_apart(*request.layout, request.device_has_memory);
    const std::uint64_t least = apart ? passage_bytes(*request.layout, 0, room) : 0;
    plan.window = host_window(units_of_window(*request.layout, apart), passes, request.prefetch_depth,
                              room - std::min(room, least));
    if (apart)
        plan.passage_bytes =
            passage_bytes(*request.layout, request.prefetch_depth, room - std::min(room, plan.window.window_bytes));
}

std::uint32_t staging_tiles(const MemoryRequest& request, std::uint64_t room) {
    const std::uint64_t each = pool::whole_granules(slot_bytes(request));
    const std::uint64_t more = each == 0 ? 0 : std::min<std::uint64_t>(request.more_staging_tiles, room / each);
    return request.staging_tiles + static_cast<std::uint32_t>(more);
}

}  // namespace

std::vector<UnitBytes> units_of_window(const ModelLayout& layout, bool apart) {
    std::vector<UnitBytes> units;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const bool in_host = layout.weights_tier(unit) == Tier::host;
        const bool stays = apart ? layout.stays(unit) : in_host;
        units.push_back({layout.unit(unit).spec().name, stays ? 0 : layout.gathered(unit).bytes,
                         in_host ? 0 : layout.shard(unit).bytes});
    }
    return units;
}

std::uint64_t snapshot_bytes(const ModelLayout& layout) {
    return 2 * layout.largest_extent_bytes();
}

MemoryPlan plan_memory(const MemoryRequest& request, const SettingNames& names) {
    if (request.host_budget_bytes == planned_host_budget) {
        MemoryRequest exact = request;
        exact.host_budget_bytes = planned_host_budget - 1;
        exact.host_budget_bytes = plan_memory(exact, names).budget.used_bytes();
        return plan_memory(exact, names);
    }
    pool::Budget least = fixed_uses(request, request.staging_tiles, names);
    const std::uint64_t room = least.limit_bytes() - std::min(least.limit_bytes(), least.used_bytes());
    const PassVisits passes[] = {request.training, request.inference, one_by_one(*request.layout)};
    MemoryPlan plan{.budget = std::move(least), .window = {}};
    if (request.device_has_memory) {
        divide_device(request, passes, names, plan);
        plan.passage_bytes = passage_bytes(*request.layout, request.prefetch_depth, room);
    } else {
        divide_host(request, passes, room, plan);
    }
    const std::uint64_t weights = plan.passage_bytes + (request.device_has_memory ? 0 : plan.window.window_bytes);
    plan.pass_read_bytes = plan.window.fetched_bytes;
    plan.further_pass_read_bytes = plan.window.again_bytes;
    plan.gradient_tile_bytes = request.gradient_tile_bytes;
    plan.staging_tiles = staging_tiles(request, room - std::min(room, weights));
    plan.budget = fixed_uses(request, plan.staging_tiles, names);
    if (weights > 0) plan.budget.add({weights_use, weights, names.prefetch_depth});
    plan.budget.check({.available_bytes = std::numeric_limits<std::uint64_t>::max(), .limited_by = ""});
    return plan;
}

}  // namespace penstock::zero
