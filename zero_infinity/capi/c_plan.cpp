#include "zero_infinity/capi/c_plan.h"

#include "aio/words/check.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/session/session_plan.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::zero {
namespace {

// The place is zero, and keeps one at its end.
template <std::size_t Length>
void put_text(std::string_view text, char (&place)[Length]) {
    std::memcpy(place, text.data(), std::min(text.size(), Length - 1));
}

void put_uses(const pool::Budget& budget, penstock_plan& plan) {
    PENSTOCK_CHECK(budget.uses().size() <= std::size(plan.uses), "{} uses of the pool", budget.uses().size());
    for (const pool::Use& use : budget.uses()) {
        penstock_plan_use& place = plan.uses[plan.use_count++];
        put_text(use.name, place.name);
        place.bytes = use.bytes;
    }
}

void count_parameters(const ModelLayout& layout, penstock_plan& plan) {
    for (const UnitLayout& unit : layout.units())
        for (const ParameterSpec& parameter : unit.spec().parameters) {
            plan.parameters += parameter.numel();
            if (parameter.training == Training::trainable) plan.trainable_parameters += parameter.numel();
        }
}

}  // namespace

penstock_plan plan_of(const penstock_model* model, const penstock_session_options* options) {
    const SessionPlan own(model_of(model), options_of(store::taken(options, least_options_bytes, "options")),
                          Partition{});
    penstock_plan plan{};
    plan.struct_bytes = sizeof plan;
    plan.pool_bytes = own.memory.budget.limit_bytes();
    plan.device_bytes = own.memory.device_bytes;
    plan.store_bytes = own.store_bytes();
    plan.prefetch_depth = own.memory.window.depth;
    plan.read_bytes = own.step_bytes.read;
    plan.write_bytes = own.step_bytes.write;
    plan.resident_write_bytes = own.step_bytes.resident_write;
    plan.planned_bytes = own.step_bytes.mean(own.options.durability);
    count_parameters(own.layout, plan);
    put_uses(own.memory.budget, plan);
    put_text(own.memory.budget.table(), plan.memory_table);
    return plan;
}

}  // namespace penstock::zero
