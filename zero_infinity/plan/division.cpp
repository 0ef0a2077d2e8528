#include "zero_infinity/plan/division.h"

#include "aio/words/error.h"
#include "zero_infinity/plan/gradient_memory.h"
#include "zero_infinity/plan/host_room.h"
#include "zero_infinity/plan/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

ModelLayout layout_of(const ModelSpec& model, const StateFormat& format, const CoreOptions& options,
                      Partition partition, std::vector<UnitResidency> unit_residency) {
    if (options.tile_numel == 0 || options.tile_numel % tile_alignment != 0)
        throw Error(ExitCode::usage,
                    fmt::format("a tile of {} elements is not a multiple of {}", options.tile_numel, tile_alignment));
    return ModelLayout({.units = model.units,
                        .format = format,
                        .optimizers = model.optimizers,
                        .tile_numel = options.tile_numel,
                        .partition = partition,
                        .residency = options.residency,
                        .unit_residency = std::move(unit_residency),
                        .purpose = options.purpose,
                        .gathered = options.ranks.gathered});
}

// While compute is at one unit, the states of the next one come, and those of the one before are written.
std::uint32_t more_staging_tiles(const ModelLayout& layout, UpdateOrder order) {
    if (order == UpdateOrder::after_backward) return 0;
    std::size_t trained = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) trained += layout.unit(unit).tile_count() > 0;
    const std::size_t mean = trained == 0 ? 0 : (layout.tiles().size() + trained - 1) / trained;
    return static_cast<std::uint32_t>(2 * mean);
}

// More than the least is of use where gradients of more than one unit are there at once.
std::uint64_t device_gradients_bytes(const ModelLayout& layout, const CoreOptions& options) {
    return options.gradient_memory == GradientMemory::all_units
               ? gradient_bytes(layout, options.gradient_type, GradientMemory::all_units)
               : gradient_window_bytes(layout, options.gradient_type);
}

std::uint64_t ranks_bytes(const ModelLayout& layout, const CoreOptions& options) {
    const GatheringPlaces places = gathering_places(layout, options.device.kind != DeviceKind::cpu);
    return layout.partition().ranks * rank_piece_bytes(layout, options.gradient_type, options.ranks.area_bytes) +
           places.count * places.bytes;
}

MemoryRequest memory_request(const ModelSpec& model, const ModelLayout& layout, const CoreOptions& options) {
    return {.layout = &layout,
            .training = model.training,
            .inference = model.inference,
            .prefetch_depth = options.prefetch_depth,
            .staging_tiles = options.staging_tiles,
            .more_staging_tiles = more_staging_tiles(layout, options.update_order),
            .gradient_bytes = gradient_bytes(layout, options.gradient_type, options.gradient_memory) +
                              shard_sums_bytes(layout, options.gradient_type),
            .ranks_bytes = ranks_bytes(layout, options),
            .gradient_tile_bytes = options.gradient_memory == GradientMemory::nvme
                                       ? spilled_gradient_tile_bytes(layout, options.gradient_type)
                                       : 0,
            .gradients_may_leave = options.gradient_memory == GradientMemory::all_units,
            .activation_bytes = options.activation_bytes,
            // Copies are written from where residents lie.
            .snapshots = options.snapshots && !is_in_memory(layout, options),
            .host_budget_bytes = options.host_budget_bytes,
            .device_has_memory = options.device.kind != DeviceKind::cpu,
            .device_budget_bytes = options.device.budget_bytes,
            .device_gradient_bytes = gradient_window_bytes(layout, options.gradient_type),
            .device_all_gradients_bytes = device_gradients_bytes(layout, options)};
}

// With what of each unit is kept in host memory; none: as the options say.
Division divided(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room, Partition partition,
                 std::vector<UnitResidency> residency = {}) {
    const StateFormat format = format_of(options.codec, model.optimizers.others());
    ModelLayout layout = layout_of(model, format, options, partition, std::move(residency));
    MemoryPlan memory = plan_memory(memory_request(model, layout, options), options.names);
    memory.budget.check(room.host);
    return {options, std::move(layout), std::move(memory)};
}

// What is updated beside compute (session/step_update.h).
bool updates_beside(const CoreOptions& options) {
    return options.device.kind != DeviceKind::cpu && options.residency.weights == Tier::host;
}

// Units that are updated beside compute have gradients of their own where there is room: in memory that they share, the
// next one's would wait for the update. Gradients that may leave host memory do so where that alone makes the rest fit;
// where it does not, the refusal is that of gradients that stay.
Division first_fitting(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room,
                       Partition partition) {
    if (updates_beside(options) && options.gradient_memory == GradientMemory::one_unit) {
        CoreOptions each = options;
        each.gradient_memory = GradientMemory::all_units;
        try {
            return divided(model, each, room, partition);
        } catch (const Error& error) {
            if (error.code() != ExitCode::does_not_fit) throw;
        }
    }
    const bool may_leave = options.gradients_may_leave && options.gradient_memory == GradientMemory::all_units;
    try {
        return divided(model, options, room, partition);
    } catch (const Error& stay) {
        if (stay.code() != ExitCode::does_not_fit || !may_leave) throw;
        CoreOptions leaving = options;
        leaving.gradient_memory = GradientMemory::nvme;
        try {
            return divided(model, leaving, room, partition);
        } catch (const Error& leave) {
            throw leave.code() == ExitCode::does_not_fit ? stay : leave;
        }
    }
}

// What both the budget and this rank's part of the room leave. What is kept needs no window and no staging: that room
// is filled, too.
Division filled(Division division, const ModelSpec& model, const MachineRoom& room, Partition partition) {
    for (;;) {
        const pool::Budget& budget = division.memory.budget;
        const std::uint64_t most = std::min(budget.limit_bytes(), room.host.available_bytes / room.sharing);
        const std::uint64_t left = most - std::min(most, budget.used_bytes());
        Division fuller = divided(model, division.options, room, partition, fill_room(division.layout, left));
        if (fuller.layout.resident_bytes() == division.layout.resident_bytes()) return division;
        division = std::move(fuller);
    }
}

}  // namespace

Division divide(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room, Partition partition) {
    Division division = first_fitting(model, options, room, partition);
    return options.fill_host_budget ? filled(std::move(division), model, room, partition) : division;
}

bool is_in_memory(const ModelLayout& layout, const CoreOptions& options) noexcept {
    return options.durability == Durability::scratch && layout.all_resident();
}

}  // namespace penstock::zero
