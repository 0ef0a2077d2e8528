#include "zero_infinity/plan/session_plan.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "swap/directory/store_files.h"
#include "swap/format/layout.h"
#include "zero_infinity/order/update_sequence.h"
#include "zero_infinity/plan/gradient_memory.h"
#include "zero_infinity/plan/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {

Visit with_owners(const Visit& visit, const std::vector<UnitSpec>& units) {
    Visit whole;
    const auto add = [&](std::uint32_t unit) {
        if (std::find(whole.units.begin(), whole.units.end(), unit) == whole.units.end()) whole.units.push_back(unit);
    };
    for (const std::uint32_t unit : visit.units) {
        add(unit);
        for (const BorrowedSpec& borrowed : units.at(unit).borrowed) add(borrowed.owner);
    }
    return whole;
}

namespace {

PassVisits there(const std::vector<UnitSpec>& units) {
    PassVisits visits;
    for (std::uint32_t unit = 0; unit < units.size(); ++unit) visits.push_back({{unit}});
    return visits;
}

// The last unit's forward is part of its backward visit.
PassVisits there_and_back(const std::vector<UnitSpec>& units) {
    PassVisits visits = there(units);
    for (std::uint32_t unit = static_cast<std::uint32_t>(units.size()); unit-- > 1;) visits.push_back({{unit - 1}});
    return visits;
}

ModelSpec checked(ModelSpec model) {
    for (std::uint32_t unit = 0; unit < model.units.size(); ++unit)
        for (const BorrowedSpec& borrowed : model.units[unit].borrowed)
            if (borrowed.owner >= unit || borrowed.parameter >= model.units[borrowed.owner].parameters.size())
                throw Error(ExitCode::usage,
                            fmt::format("unit '{}' borrows parameter {} of unit {}, which does not come before it",
                                        model.units[unit].name, borrowed.parameter, borrowed.owner));
    if (model.training.empty()) model.training = there_and_back(model.units);
    if (model.inference.empty()) model.inference = there(model.units);
    for (PassVisits* visits : {&model.training, &model.inference})
        for (Visit& visit : *visits) visit = with_owners(visit, model.units);
    return model;
}

// What an update would ask for is left out.
CoreOptions for_its_use(CoreOptions options) {
    if (options.purpose == Purpose::training) return options;
    if (!options.resume_from.empty())
        throw Error(ExitCode::usage, fmt::format("forwards alone are made with a snapshot where it lies: name {} in "
                                                 "the place of the store",
                                                 options.resume_from));
    if (options.activation_bytes > 0)
        throw Error(ExitCode::usage, fmt::format("{} with forwards alone: nothing is laid aside in a store that is "
                                                 "only read; leave it out",
                                                 options.names.activations));
    options.update_order = UpdateOrder::after_backward;
    options.clips = false;
    options.deferred_share = 0;
    options.durability = Durability::every_step;
    options.residency.states = Tier::nvme;
    options.snapshots = false;
    place_gradients(GradientTier::host, options);
    return options;
}

// What a run of several ranks does not do yet is refused where it was asked for by name; how it is updated decides no
// bit.
CoreOptions for_ranks(CoreOptions options, std::uint32_t ranks) {
    if (ranks == 1 || options.ranks.gathered == Gathered::for_visits) return options;
    const auto refuse = [&](const std::string& what) {
        throw Error(ExitCode::usage, fmt::format("{} with {} ranks comes later: leave it out", what, ranks));
    };
    if (options.gradient_memory != GradientMemory::all_units)
        refuse(options.names.gradient_memory.empty() ? "gradients on NVMe"
                                                     : options.names.gradient_memory + " \"nvme\"");
    if (options.purpose == Purpose::forwards) refuse("forwards alone");
    if (options.lost_store) refuse("a store that is given up");
    options.gradients_may_leave = false;
    options.update_order = UpdateOrder::after_backward;
    options.clips = false;
    options.deferred_share = 0;
    options.residency.weights = Tier::host;
    if (options.ranks.sum_order == SumOrder::ranks_first) options.gradient_memory = GradientMemory::two_units;
    return options;
}

// What is said of a machine is divided among its ranks, so that one configuration serves any number of them.
void divide_among_ranks(CoreOptions& options, std::uint32_t sharing) {
    if (sharing == 1) return;
    options.io.in_flight = aio::part_of(options.io.in_flight, sharing, options.io.chunk_bytes);
    if (options.host_budget_bytes == planned_host_budget) return;
    options.names.host_budget +=
        fmt::format(" ({}, which {} ranks of a machine divide)", bytes_text(options.host_budget_bytes), sharing);
    options.host_budget_bytes /= sharing;
}

CoreOptions checked(CoreOptions given, const MachineRoom& room, std::uint32_t ranks) {
    const auto refuse = [](const std::string& what) { throw Error(ExitCode::usage, what); };
    CoreOptions options = for_ranks(for_its_use(std::move(given)), ranks);
    if (options.staging_tiles == 0)
        refuse(fmt::format("{} is 0: the update needs at least one", options.names.staging));
    if (options.worker_threads == 0) refuse("worker_threads is 0: at least one thread must do the update");
    if (const std::string why = refusal_of_order(options); !why.empty()) refuse(why);
    if (options.fill_host_budget && options.host_budget_bytes == planned_host_budget)
        refuse(fmt::format("{} without a {}: there is nothing to fill; say how much memory may be taken",
                           options.names.fill, options.names.host_budget));
    if (options.io_deadline.count() <= 0) refuse("io_deadline must be at least one second");
    if (options.device.kind != DeviceKind::cpu && options.device.budget_bytes == 0)
        options.device.budget_bytes = room.device_bytes / 2;
    if (options.gradient_type != PlaneType::fp32 && options.gradient_type != PlaneType::bf16)
        refuse(fmt::format("gradient_type {}: gradients are fp32 or bf16", word_of(options.gradient_type)));
    options.io.deadline = options.io_deadline;
    divide_among_ranks(options, room.sharing);
    return options;
}

std::vector<bool> deferred_of(const ModelLayout& layout, const StateFormat& format, const CoreOptions& options) {
    if (options.update_order != UpdateOrder::within) return std::vector<bool>(layout.unit_count());
    return deferred_units(layout, options.deferred_share.value_or(balanced_share(
                                      format, options.durability, options.residency, options.forward_part)));
}

// A step that could not be updated within goes by the same words as what is left of one that could.
StepRules rules_of(const ModelLayout& layout, const StateFormat& format, const CoreOptions& options) {
    const bool within = options.update_order == UpdateOrder::within;
    return {.order = options.update_order,
            .deferred = deferred_of(layout, format, options),
            .undoes = within && options.clips,
            .defers_others = within && !updates_at_once(options)};
}

StepBytes step_bytes_of(const SessionPlan& plan) {
    const ModelLayout& layout = plan.layout;
    StepBytes bytes;
    bytes.read = plan.memory.pass_read_bytes;
    bytes.further_read = plan.memory.further_pass_read_bytes;
    if (layout.purpose() == Purpose::forwards) return bytes;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const UpdateOrder order = order_of_unit(plan.options.update_order, plan.rules.deferred[unit]);
        const std::uint64_t weights = layout.memory_bytes(layout.objects(unit).weights);
        const std::uint64_t states = layout.states_bytes(unit, Tier::nvme);
        const std::uint64_t gradients = plan.spilled_gradient_bytes(unit);
        bytes.further_read += plan.leaving_gradient_bytes(unit);  // what the pass before wrote
        bytes.further_write += plan.leaving_gradient_bytes(unit);
        if (order != UpdateOrder::within) bytes.read += gradients;
        bytes.write += gradients;
        const bool streamed = layout.weights_tier(unit) == Tier::nvme;
        (streamed ? bytes.write : bytes.resident_write) += weights;
        bytes.write += states;
        bytes.resident_write += layout.states_bytes(unit, Tier::host);
        const bool read = plan.format.codec->master_needs_weights;
        const bool deferred = order == UpdateOrder::deferred;
        if (streamed && read && order == UpdateOrder::after_backward) bytes.read += weights;
        if (streamed && !read && deferred) bytes.read -= weights;  // the pass finds them made by the update
        bytes.read += states;
    }
    return bytes;
}

}  // namespace

struct SessionPlan::Decided {
    Decided(ModelSpec given, const CoreOptions& options, const MachineRoom& room, Partition partition)
        : model(checked(std::move(given))),
          division(divide(model, checked(options, room, partition.ranks), room, partition)) {}
    ModelSpec model;
    Division division;
};

SessionPlan::SessionPlan(ModelSpec given_model, const CoreOptions& given_options, const MachineRoom& given_room,
                         Partition partition)
    : SessionPlan(Decided(std::move(given_model), given_options, given_room, partition), given_room) {}

SessionPlan::SessionPlan(Decided decided, const MachineRoom& given_room)
    : room(given_room),
      model(std::move(decided.model)),
      options(std::move(decided.division.options)),
      format(format_of(options.codec, model.optimizers.others())),
      fingerprint(fingerprint_of(model, options.codec)),
      layout(std::move(decided.division.layout)),
      rules(rules_of(layout, format, options)),
      memory(std::move(decided.division.memory)),
      step_bytes(step_bytes_of(*this)) {}

DeviceOptions SessionPlan::device() const {
    DeviceOptions device = options.device;
    device.budget_bytes = memory.device_bytes;
    return device;
}

std::uint64_t SessionPlan::rank_piece_bytes() const {
    return zero::rank_piece_bytes(layout, options.gradient_type, options.ranks.area_bytes);
}

std::uint64_t SessionPlan::store_bytes() const {
    if (options.durability == Durability::scratch && layout.all_resident()) return 0;
    const auto objects = layout.objects();
    store::Geometry geometry;
    geometry.shares = options.swap_shares;
    if (geometry.shares.empty()) geometry.shares.assign(options.swap_directories.size(), 1);
    geometry.slots = options.durability == Durability::scratch || options.purpose == Purpose::forwards ? 1 : 2;
    return store::bytes_on_disk(store::Layout({objects.begin(), objects.end()}, std::move(geometry)));
}

std::uint64_t SessionPlan::leaving_gradient_bytes(std::uint32_t unit) const {
    if (options.gradient_memory != GradientMemory::nvme) return 0;
    return zero::spilled_gradient_bytes(layout, unit, options.gradient_type);
}

std::vector<std::uint64_t> SessionPlan::leaving_gradients() const {
    std::vector<std::uint64_t> bytes;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) bytes.push_back(leaving_gradient_bytes(unit));
    return bytes;
}

std::uint64_t SessionPlan::spilled_gradient_bytes(std::uint32_t unit) const {
    return updates_at_once(options) ? 0 : leaving_gradient_bytes(unit);
}

// A mean over the elements of all tiles; nothing where nothing is trained.
Traffic SessionPlan::nominal_traffic() const {
    if (options.purpose == Purpose::forwards) return {};
    const bool alike = options.update_order != UpdateOrder::within || options.deferred_share == 0.0;
    if (!options.fill_host_budget && alike && options.gradient_memory != GradientMemory::nvme)
        return traffic(format, options.durability, options.residency, options.update_order);
    Traffic mean;
    double all = 0;
    for (const UnitTile& tile : layout.tiles()) {
        const Residency residency{layout.weights_tier(tile.unit), layout.states_tier(tile)};
        const UpdateOrder order = order_of_unit(options.update_order, rules.deferred[tile.unit]);
        const double gradients = spilled_gradient_bytes(tile.unit) > 0 ? bytes_of(options.gradient_type) : 0;
        const Traffic own = traffic(format, options.durability, residency, order, 0, gradients);
        const auto numel = static_cast<double>(layout.unit(tile.unit).tile_numel(tile.tile));
        mean.read_bytes += own.read_bytes * numel;
        mean.write_bytes += own.write_bytes * numel;
        all += numel;
    }
    if (all == 0) return {};
    return {mean.read_bytes / all, mean.write_bytes / all};
}

}  // namespace penstock::zero
