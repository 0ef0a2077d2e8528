#include "zero_infinity/capi/c_model.h"

#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "swap/capi/c_words.h"
#include "zero_infinity/keys/session_keys.h"
#include "zero_infinity/optimizer/optimizer_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace penstock::zero {
namespace {

using store::number_of;
using store::Refusal;
using store::require;
using store::required;

constexpr std::size_t most_dimensions = 64;
constexpr const char* own_prefix = "penstock.";  // keys of the session's own

// What a program cannot be without.
constexpr std::size_t least_model_bytes = offsetof(penstock_model, training);
constexpr std::size_t least_unit_bytes = offsetof(penstock_unit, borrowed);
constexpr std::size_t least_parameter_bytes = offsetof(penstock_parameter, unused);
constexpr std::size_t least_group_bytes = offsetof(penstock_group, weight_decay);

// One of an array whose elements may be shorter or longer than the library's.
template <typename Struct>
Struct element(const Struct* first, std::size_t index, std::size_t struct_bytes, const char* name) {
    Struct own{};
    const auto* bytes = reinterpret_cast<const std::byte*>(first) + index * struct_bytes;
    store::take_struct(bytes, struct_bytes, &own, sizeof own, name);
    return own;
}

void check_stride(std::size_t given, std::size_t least, const char* name) {
    require(given >= least && given <= store::most_struct_bytes, "{} is {}; set it to the sizeof of the structure",
            name, given);
}

PlaneType plane_of(const penstock_type& type, const char* name) {
    switch (number_of(type)) {
        case PENSTOCK_BF16:
            return PlaneType::bf16;
        case PENSTOCK_FP16:
            return PlaneType::fp16;
        case PENSTOCK_FP32:
            return PlaneType::fp32;
        case PENSTOCK_U8:
            return PlaneType::u8;
        default:
            throw Refusal(PENSTOCK_USAGE, fmt::format("{}: there is no type {}", name, number_of(type)));
    }
}

Unused unused_of(const penstock_unused& unused) {
    switch (number_of(unused)) {
        case PENSTOCK_UNUSED_REFUSED:
            return Unused::refused;
        case PENSTOCK_UNUSED_ALLOWED:
            return Unused::allowed;
        case PENSTOCK_UNUSED_SKIPPED:
            return Unused::skipped;
        default:
            throw Refusal(PENSTOCK_USAGE, fmt::format("there is no penstock_unused {}", number_of(unused)));
    }
}

Tier tier_of(const penstock_tier& tier) {
    const int number = number_of(tier);
    require(number == PENSTOCK_NVME || number == PENSTOCK_HOST, "there is no tier {}", number);
    return number == PENSTOCK_HOST ? Tier::host : Tier::nvme;
}

GradientTier tier_of(const penstock_gradients& gradients) {
    const int number = number_of(gradients);
    require(number >= PENSTOCK_GRADIENTS_HOST && number <= PENSTOCK_GRADIENTS_AUTO, "there are no gradients {}",
            number);
    if (number == PENSTOCK_GRADIENTS_AUTO) return GradientTier::automatic;
    return number == PENSTOCK_GRADIENTS_HOST ? GradientTier::host : GradientTier::nvme;
}

std::unique_ptr<Optimizer> optimizer_of(const penstock_optimizer& optimizer, const penstock_group& group) {
    const int number = number_of(optimizer);
    require(number >= 0 && number < static_cast<int>(optimizer_kinds.size()), "there is no optimizer {}", number);
    return optimizer_kinds[static_cast<std::size_t>(number)].make({.betas = {group.beta1, group.beta2},
                                                                   .epsilon = group.epsilon,
                                                                   .weight_decay = group.weight_decay,
                                                                   .momentum = group.momentum,
                                                                   .dampening = group.dampening,
                                                                   .nesterov = group.nesterov != 0,
                                                                   .lr_decay = group.lr_decay,
                                                                   .initial_accumulator = group.initial_accumulator});
}

ParameterSpec parameter_of(const penstock_parameter& given, const std::string& unit, std::size_t group_count) {
    ParameterSpec spec;
    spec.name = &required(given.name, "a parameter's name");
    require(given.dimensions <= most_dimensions, "parameter '{}' of unit '{}' has {} dimensions", spec.name, unit,
            given.dimensions);
    if (given.dimensions > 0) {
        const std::int64_t* shape = &required(given.shape, "a parameter's shape");
        spec.shape.assign(shape, shape + given.dimensions);
    }
    spec.training = given.frozen != 0 ? Training::frozen : Training::trainable;
    spec.unused = unused_of(given.unused);
    require(given.frozen != 0 || given.group < group_count, "parameter '{}' of unit '{}' is in group {} of {}",
            spec.name, unit, given.group, group_count);
    return spec;
}

UnitSpec unit_of(const penstock_unit& given) {
    UnitSpec spec;
    spec.name = &required(given.name, "a unit's name");
    require(given.parameters != nullptr || given.parameter_count == 0, "the parameters of unit '{}' are NULL",
            spec.name);
    require(given.borrowed != nullptr || given.borrowed_count == 0, "the borrowed parameters of unit '{}' are NULL",
            spec.name);
    for (std::size_t i = 0; i < given.borrowed_count; ++i)
        spec.borrowed.push_back({given.borrowed[i].unit, given.borrowed[i].parameter});
    if (number_of(given.frozen_type) != PENSTOCK_TYPE_DEFAULT)
        spec.frozen_type = plane_of(given.frozen_type, "a unit's frozen_type");
    spec.resident = given.resident != 0;
    return spec;
}

// The last group is that of all that no other names.
ParameterGroups groups_of(const penstock_model& model, std::vector<ParameterGroup> groups) {
    for (std::size_t i = 0; i < groups.size(); ++i)
        groups[i].optimizer =
            optimizer_of(model.optimizer, element(model.groups, i, model.group_struct_bytes, "a group"));
    std::shared_ptr<const Optimizer> others = groups.back().optimizer;
    groups.pop_back();
    return {std::move(others), std::move(groups)};
}

// Groups that no parameter is in are what a session refuses; as the last one it is legal.
void check_groups(const std::vector<ParameterGroup>& groups) {
    for (std::size_t i = 0; i + 1 < groups.size(); ++i)
        require(!groups[i].names.empty(), "no parameter is in group {}; leave it out", i);
}

}  // namespace

ModelSpec model_of(const penstock_model* given) {
    const penstock_model model = store::taken(given, least_model_bytes, "model");
    require(model.units != nullptr && model.unit_count > 0, "the model has no units");
    require(model.groups != nullptr && model.group_count > 0, "the model has no groups");
    check_stride(model.unit_struct_bytes, least_unit_bytes, "model.unit_struct_bytes");
    check_stride(model.parameter_struct_bytes, least_parameter_bytes, "model.parameter_struct_bytes");
    check_stride(model.group_struct_bytes, least_group_bytes, "model.group_struct_bytes");
    std::vector<ParameterGroup> groups(model.group_count);
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].pattern = fmt::format("group {}", i);
    std::vector<UnitSpec> units;
    for (std::size_t i = 0; i < model.unit_count; ++i) {
        const penstock_unit unit = element(model.units, i, model.unit_struct_bytes, "a unit");
        UnitSpec spec = unit_of(unit);
        for (std::size_t j = 0; j < unit.parameter_count; ++j) {
            const penstock_parameter parameter =
                element(unit.parameters, j, model.parameter_struct_bytes, "a parameter");
            spec.parameters.push_back(parameter_of(parameter, spec.name, groups.size()));
            if (parameter.frozen == 0)
                groups[parameter.group].names.insert(spec.name + "." + spec.parameters.back().name);
        }
        units.push_back(std::move(spec));
    }
    check_groups(groups);
    return {.units = std::move(units),
            .optimizers = groups_of(model, std::move(groups)),
            .training = visits_of(model.training, model.training_count, model.unit_count),
            .inference = visits_of(model.inference, model.inference_count, model.unit_count)};
}

namespace {

static_assert(static_cast<int>(UpdateOrder::after_backward) == PENSTOCK_AFTER_BACKWARD &&
              static_cast<int>(UpdateOrder::deferred) == PENSTOCK_DEFERRED &&
              static_cast<int>(UpdateOrder::within) == PENSTOCK_WITHIN);
static_assert(static_cast<int>(DeviceKind::cpu) == PENSTOCK_CPU &&
              static_cast<int>(DeviceKind::emulated) == PENSTOCK_EMULATED &&
              static_cast<int>(DeviceKind::cuda) == PENSTOCK_CUDA);

void place_updates(int order, bool clips, CoreOptions& options) {
    require(order >= PENSTOCK_AFTER_BACKWARD && order <= PENSTOCK_BALANCED, "there is no order of updates {}", order);
    options.update_order = static_cast<UpdateOrder>(std::min<int>(order, PENSTOCK_WITHIN));
    options.clips = clips || order == PENSTOCK_SPECULATIVE;
    if (order == PENSTOCK_BALANCED) options.deferred_share.reset();
}

// What the older word says of clips. REQUIRES: all else is filled in.
void clip_where_that_may_be(CoreOptions& options) {
    if (options.clips) return;
    options.clips = true;
    options.clips = refusal_of_order(options).empty();
}

}  // namespace

CoreOptions options_of(const penstock_session_options& given) {
    CoreOptions options;
    require(given.directories != nullptr && given.directory_count > 0, "options name no directory");
    for (std::size_t i = 0; i < given.directory_count; ++i)
        options.swap_directories.emplace_back(&required(given.directories[i], "a directory's name"));
    options.job = &required(given.job, "options.job");
    options.purpose = given.forwards != 0 ? Purpose::forwards : Purpose::training;
    if (given.resume_from != nullptr) options.resume_from = given.resume_from;
    options.go_back = given.go_back != 0;
    options.host_budget_bytes = given.host_budget_bytes;
    if (given.prefetch_depth != 0) options.prefetch_depth = given.prefetch_depth;
    if (given.staging_tiles != 0) options.staging_tiles = given.staging_tiles;
    if (given.tile_elements != 0) options.tile_numel = given.tile_elements;
    options.residency = {tier_of(given.weights), tier_of(given.states)};
    options.fill_host_budget = given.fill_host_budget != 0;
    const int device = number_of(given.device);
    require(device >= PENSTOCK_CPU && device <= PENSTOCK_CUDA, "there is no device {}", device);
    options.device = {.kind = static_cast<DeviceKind>(device),
                      .budget_bytes = given.device_budget_bytes,
                      .index = given.device_index};
    options.durability = {std::max<std::uint64_t>(given.commit_steps, 1)};
    const int order = number_of(given.update_order);
    place_updates(order, given.clips != 0, options);
    place_gradients(tier_of(given.gradients), options);
    options.names.gradient_memory = "gradients";
    options.names.resident_weights = "weights";
    options.names.resident_states = "states";
    options.activation_bytes = given.activation_budget_bytes;
    options.names.activations = "activation_budget_bytes";
    options.verify = store::scope_of(given.verify);
    options.snapshots = given.snapshots != 0;
    if (given.codec != nullptr) options.codec = given.codec;
    if (number_of(given.gradient_type) != PENSTOCK_TYPE_DEFAULT)
        options.gradient_type = plane_of(given.gradient_type, "options.gradient_type");
    if (given.threads != 0) options.worker_threads = given.threads;
    options.backend = store::backend_of(given.backend);
    options.caching = store::caching_of(given.caching);
    if (const auto deadline = store::deadline_of(given.deadline_ms))
        options.io_deadline = std::chrono::ceil<std::chrono::seconds>(*deadline);
    if (given.settings != nullptr) take_settings(given.settings, options);
    if (options.host_budget_bytes == 0) options.host_budget_bytes = planned_host_budget;
    if (given.scratch != 0) options.durability = Durability::scratch;
    if (order == PENSTOCK_BALANCED) clip_where_that_may_be(options);
    return options;
}

store::ClientState values_of(const penstock_value* values, std::size_t count) {
    require(values != nullptr || count == 0, "the values are NULL");
    store::ClientState state;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string key = &required(values[i].key, "a value's key");
        require(!key.starts_with(own_prefix), "the key '{}' begins with '{}', as those of the session do", key,
                own_prefix);
        require(values[i].data != nullptr || values[i].bytes == 0, "the value of '{}' is NULL", key);
        state[key] = values[i].bytes == 0 ? std::string()
                                          : std::string(static_cast<const char*>(values[i].data), values[i].bytes);
    }
    return state;
}

Visit visit_of(const std::uint32_t* units, std::size_t count, std::size_t unit_count) {
    require(units != nullptr || count == 0, "the units of a visit are NULL");
    Visit visit;
    for (std::size_t i = 0; i < count; ++i) {
        require(units[i] < unit_count, "a visit of unit {}: the model has {}", units[i], unit_count);
        visit.units.push_back(units[i]);
    }
    return visit;
}

PassVisits visits_of(const penstock_visit* visits, std::size_t count, std::size_t unit_count) {
    require(visits != nullptr || count == 0, "the visits are NULL");
    PassVisits all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(visit_of(visits[i].units, visits[i].unit_count, unit_count));
    return all;
}

std::vector<GroupValues> group_values_of(const penstock_optimizer& optimizer, std::span<const penstock_group> groups) {
    std::vector<GroupValues> values;
    for (const penstock_group& group : groups) values.push_back({group.learning_rate, optimizer_of(optimizer, group)});
    return values;
}

std::vector<penstock_group> groups_of(const penstock_group* groups, std::size_t count, std::size_t struct_bytes) {
    require(groups != nullptr && count > 0, "the step has no groups");
    check_stride(struct_bytes, least_group_bytes, "step.group_struct_bytes");
    std::vector<penstock_group> taken;
    for (std::size_t i = 0; i < count; ++i) taken.push_back(element(groups, i, struct_bytes, "a group"));
    return taken;
}

bool same_values(const penstock_group& one, const penstock_group& other) {
    const auto values = [](const penstock_group& of) {
        return std::tie(of.learning_rate, of.weight_decay, of.beta1, of.beta2, of.epsilon, of.momentum, of.dampening,
                        of.nesterov, of.lr_decay, of.initial_accumulator);
    };
    return values(one) == values(other);
}

penstock_type type_of(PlaneType type) noexcept {
    switch (type) {
        case PlaneType::bf16:
            return PENSTOCK_BF16;
        case PlaneType::fp16:
            return PENSTOCK_FP16;
        case PlaneType::fp32:
            return PENSTOCK_FP32;
        default:
            return PENSTOCK_U8;
    }
}

}  // namespace penstock::zero
