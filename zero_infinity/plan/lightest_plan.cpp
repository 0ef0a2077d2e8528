#include "zero_infinity/plan/lightest_plan.h"

#include "aio/words/error.h"

#include <utility>

namespace penstock::zero {
namespace {

constexpr Lightening in_order[] = {Lightening::prefetch_one,    Lightening::staging_two, Lightening::states_on_nvme,
                                   Lightening::weights_on_nvme, Lightening::no_prefetch, Lightening::gradients_on_nvme,
                                   Lightening::gradients_bf16};

// What several ranks have in one place only.
bool is_of_ranks(Lightening change) noexcept {
    return change != Lightening::weights_on_nvme && change != Lightening::gradients_on_nvme;
}

// Whether the options are other ones now.
bool apply(Lightening change, std::uint32_t least_prefetch, CoreOptions& options) {
    switch (change) {
        case Lightening::prefetch_one:
            return options.prefetch_depth > 1 && (options.prefetch_depth = 1, true);
        case Lightening::staging_two:
            return options.staging_tiles > 2 && (options.staging_tiles = 2, true);
        case Lightening::states_on_nvme:
            return std::exchange(options.residency.states, Tier::nvme) == Tier::host;
        case Lightening::weights_on_nvme:
            return std::exchange(options.residency.weights, Tier::nvme) == Tier::host;
        case Lightening::no_prefetch:
            return options.prefetch_depth > least_prefetch && (options.prefetch_depth = least_prefetch, true);
        case Lightening::gradients_on_nvme:
            return !options.names.gradient_memory.empty() && options.gradient_memory == GradientMemory::all_units &&
                   (options.gradient_memory = GradientMemory::nvme, true);
        case Lightening::gradients_bf16:
            return std::exchange(options.gradient_type, PlaneType::bf16) == PlaneType::fp32;
    }
    return false;
}

// What the pools of all ranks that share the room need at least; nothing where it is not that large.
std::optional<std::uint64_t> needed_bytes(const ModelSpec& model, CoreOptions options, const MachineRoom& room,
                                          Partition partition) try {
    options.host_budget_bytes = planned_host_budget;
    options.fill_host_budget = false;  // it takes no more than there is
    const std::uint64_t bytes = room.sharing * SessionPlan(model, options, room, partition).memory.budget.used_bytes();
    return bytes <= room.host.available_bytes ? std::optional(bytes) : std::nullopt;
} catch (const Error& error) {
    if (error.code() != ExitCode::does_not_fit) throw;
    return std::nullopt;
}

}  // namespace

std::optional<LightestPlan> lightest_plan(const ModelSpec& model, const CoreOptions& given, const MachineRoom& room,
                                          Partition partition, std::uint32_t least_prefetch) {
    CoreOptions options = given;
    std::vector<Lightening> changes;
    std::optional<LightestPlan> lightest;
    const auto fits = [&] {
        const std::optional<std::uint64_t> bytes = needed_bytes(model, options, room, partition);
        if (bytes) lightest = {.changes = changes, .pool_bytes = *bytes};
        return bytes && *bytes <= given.host_budget_bytes;
    };
    if (fits()) return lightest;
    for (const Lightening change : in_order) {
        if (partition.ranks > 1 && !is_of_ranks(change)) continue;
        if (!apply(change, least_prefetch, options)) continue;
        changes.push_back(change);
        if (fits()) break;
    }
    return lightest;
}

}  // namespace penstock::zero
