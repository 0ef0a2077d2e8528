#include "zero_infinity/capi/c_plan.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/capi/c_text.h"
#include "zero_infinity/plan/lightest_plan.h"
#include "zero_infinity/plan/ranks/zero_stages.h"
#include "zero_infinity/plan/session_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::zero {
namespace {

void put_uses(const pool::Budget& budget, penstock_plan& plan) {
    PENSTOCK_CHECK(budget.uses().size() <= std::size(plan.uses), "{} uses of the pool", budget.uses().size());
    for (const pool::Use& use : budget.uses()) {
        penstock_plan_use& place = plan.uses[plan.use_count++];
        put_text(use.name, place.name);
        place.bytes = use.bytes;
    }
}

const char* option_of(Lightening change) {
    switch (change) {
        case Lightening::prefetch_one:
            return "prefetch_depth=1";
        case Lightening::staging_two:
            return "staging_tiles=2";
        case Lightening::states_on_nvme:
            return "states=nvme";
        case Lightening::weights_on_nvme:
            return "weights=nvme";
        case Lightening::no_prefetch:  // 0 is another number's default here
            break;
        case Lightening::gradients_on_nvme:
            return "gradients=nvme";
        case Lightening::gradients_bf16:
            return "gradient_type=bf16";
    }
    return "";
}

std::string lightest_options(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room,
                             Partition partition) {
    const std::optional<LightestPlan> lightest = lightest_plan(model, options, room, partition, 1);
    if (!lightest && options.activation_bytes > 0)
        return fmt::format(
            "nothing lighter fits this machine's memory with {} of it for activations: lower "
            "activation_budget_bytes, take a smaller model, or another machine",
            bytes_text(options.activation_bytes));
    if (!lightest) return "nothing lighter fits this machine's memory: take a smaller model, or another machine";
    std::string text = fmt::format("the lightest that fits: host_budget_bytes={}", lightest->pool_bytes);
    for (const Lightening change : lightest->changes) text += fmt::format(", {}", option_of(change));
    return text;
}

// Where it does, what has no room is something else, as a directory's disk.
bool plan_fits(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room, Partition partition) try {
    SessionPlan(model, options, room, partition);
    return true;
} catch (const Error& error) {
    return error.code() != ExitCode::does_not_fit;
}

penstock_plan told(const SessionPlan& own) {
    penstock_plan plan{};
    plan.struct_bytes = sizeof plan;
    plan.pool_bytes = own.memory.budget.limit_bytes();
    plan.device_bytes = own.memory.device_bytes;
    plan.store_bytes = own.store_bytes();
    plan.prefetch_depth = own.memory.window.depth;
    plan.read_bytes = own.step_bytes.read;
    plan.write_bytes = own.step_bytes.write;
    plan.resident_write_bytes = own.step_bytes.resident_write;
    plan.further_read_bytes = own.step_bytes.further_read;
    plan.further_write_bytes = own.step_bytes.further_write;
    plan.planned_bytes = own.step_bytes.mean(own.options.durability);
    const ParameterCount count = count_parameters(own.model.units);
    plan.parameters = count.all;
    plan.trainable_parameters = count.trainable;
    put_uses(own.memory.budget, plan);
    put_text(own.memory.budget.table(), plan.memory_table);
    plan.available_bytes = own.room.host.available_bytes;
    return plan;
}

// Of a rank of those, with the lightest options where it does not fit by itself.
template <typename Use>
auto with_plan(const penstock_model* model, const penstock_session_options* options, const RankCount& count, Use use) {
    const ModelSpec spec = model_of(model);
    const CoreOptions given = options_of(store::taken(options, least_options_bytes, "options"));
    MachineRoom room = MachineRoom::read(given.device);
    room.sharing = count.sharing();
    const Partition partition = count.any();
    std::optional<SessionPlan> plan;
    try {
        plan.emplace(spec, given, room, partition);
    } catch (const Error& error) {
        throw with_lightest(error, spec, given, room, partition);
    }
    return use(*plan);
}

penstock_ranks_plan told(const SessionPlan& of_rank, const RankCount& count, std::uint64_t passes) {
    const WireBytes wire = wire_bytes(of_rank, passes);
    penstock_ranks_plan plan{};
    plan.struct_bytes = sizeof plan;
    plan.ranks = count.ranks;
    plan.ranks_of_node = count.sharing();
    plan.gathered_bytes = wire.gathered;
    plan.exchanged_bytes = wire.exchanged;
    plan.first_gathered_bytes = wire.gathered_first;
    const auto stages = zero_stage_bytes(count_parameters(of_rank.model.units).all, count.ranks);
    std::copy(stages.begin(), stages.end(), plan.zero_bytes);
    put_text(ranks_table(of_rank, count, passes, free_bytes_of(of_rank.options.swap_directories)), plan.text);
    return plan;
}

}  // namespace

penstock_plan plan_of(const penstock_model* model, const penstock_session_options* options) {
    return with_plan(model, options, {}, [](const SessionPlan& plan) { return told(plan); });
}

PlanOfRanks plan_of_ranks(const penstock_model* model, const penstock_session_options* options, const RankCount& count,
                          std::uint64_t passes) {
    store::require(count.ranks > 0 && passes > 0, "a plan of {} ranks and steps of {} passes", count.ranks, passes);
    return with_plan(model, options, count, [&](const SessionPlan& plan) {
        check_node(plan, count);
        return PlanOfRanks{told(plan), told(plan, count, passes)};
    });
}

Error with_lightest(const Error& error, const ModelSpec& model, const CoreOptions& options, const MachineRoom& room,
                    Partition partition) {
    if (error.code() != ExitCode::does_not_fit || options.device.kind != DeviceKind::cpu ||
        plan_fits(model, options, room, partition))
        return error;
    return {error.code(), fmt::format("{}\n{}", error.what(), lightest_options(model, options, room, partition))};
}

}  // namespace penstock::zero
