// A layout with what gradients know: a unit of several tiles, one without any, and a parameter that is borrowed.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <cstdint>
#include <vector>

namespace penstock::testing {

inline constexpr std::uint32_t table = 0, fixed = 1, head = 2;  // units
inline constexpr zero::ParameterId table_weight{table, 0}, table_bias{table, 1}, fixed_scale{fixed, 0};
inline constexpr zero::ParameterId head_weight{head, 0}, borrowed_weight{head, 1};  // that is the table's

inline zero::ModelLayout tied_layout(zero::Partition partition = {}) {
    const zero::ParameterGroups optimizers = zero::make_adamw({});
    const std::vector<zero::UnitSpec> units{
        {.name = "table",
         .parameters = {{.name = "weight", .shape = {5000}},
                        {.name = "bias", .shape = {10}, .unused = zero::Unused::allowed}},
         .borrowed = {}},
        {.name = "fixed",
         .parameters = {{.name = "scale", .shape = {64}, .training = zero::Training::frozen}},
         .borrowed = {}},
        {.name = "head", .parameters = {{.name = "weight", .shape = {20000}}}, .borrowed = {{table, 0}}}};
    return zero::ModelLayout({.units = units,
                              .format = zero::state_format(zero::split_codec(), optimizers.others()),
                              .optimizers = optimizers,
                              .tile_numel = 4096,
                              .partition = partition,
                              .residency = {},
                              .unit_residency = {}});
}

inline pool::Budget gradient_budget(const zero::ModelLayout& layout) {
    const std::uint64_t bytes = zero::gradient_bytes(layout, zero::PlaneType::fp32, zero::GradientMemory::all_units);
    pool::Budget budget(bytes, "test");
    budget.add({zero::gradients_use, bytes, "test"});
    return budget;
}

}  // namespace penstock::testing
