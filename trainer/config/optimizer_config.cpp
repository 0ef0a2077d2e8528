#include "trainer/config/optimizer_config.h"

#include "aio/words/error.h"
#include "trainer/config/config.h"
#include "trainer/config/key_table.h"
#include "trainer/config/program_place.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock::trainer {
namespace {

using Names = std::vector<std::string_view>;
constexpr std::string_view section = "optimizer.params.";

struct OptimizerKeys {
    OptimizerType type;
    Names params;
};

const std::array<OptimizerKeys, 5>& optimizer_keys() {
    static const std::array<OptimizerKeys, 5> known = {{
        {OptimizerType::adamw, {"lr", "betas", "eps", "weight_decay"}},
        {OptimizerType::adam, {"lr", "betas", "eps", "weight_decay", "adam_w_mode"}},
        {OptimizerType::sgd, {"lr", "weight_decay", "momentum", "dampening", "nesterov"}},
        {OptimizerType::lion, {"lr", "betas", "weight_decay"}},
        {OptimizerType::adagrad, {"lr", "eps", "weight_decay", "lr_decay", "initial_accumulator_value"}},
    }};
    return known;
}

const Names& params_of(OptimizerType type) {
    return std::ranges::find(optimizer_keys(), type, &OptimizerKeys::type)->params;
}

OptimizerType type_of(const Settings& settings) {
    return find_word<OptimizerType>(settings.text("optimizer.type")).value();
}

bool has(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

void check_params(const Settings& settings, OptimizerType type) {
    const Names& own = params_of(type);
    const auto refuse = [&](const std::string& path) {
        throw Error(ExitCode::usage, fmt::format("{}: {} is no parameter of optimizer.type \"{}\", which has {}",
                                                 settings.file(), path, word_of(type), fmt::join(own, ", ")));
    };
    for (const KeySpec& key : keys()) {
        if (!key.path.starts_with(section) || !settings.given(key.path)) continue;
        if (!has(own, key.path.substr(section.size()))) refuse(std::string(key.path));
    }
    if (!settings.has("optimizer.groups")) return;
    const std::vector<SettingGroup>& groups = settings.groups("optimizer.groups");
    for (std::size_t index = 0; index < groups.size(); ++index)
        for (const auto& [name, value] : groups[index].values)
            if (!has(own, name)) refuse(fmt::format("optimizer.groups[{}].{}", index, name));
}

// What a group says of a key: lists of groups keep all values as numbers.
SettingValue value_of(const KeySpec& key, const std::vector<double>& numbers) {
    if (key.type == KeyType::boolean) return numbers.at(0) != 0;
    if (key.type == KeyType::pair) return numbers;
    return numbers.at(0);
}

OptimizerOptions with(const OptimizerOptions& others, const SettingGroup& group) {
    TrainConfig config;
    config.optimizer.others = others;
    for (const auto& [name, numbers] : group.values) {
        const KeySpec* key = find_key(std::string(section) + name);
        fill(*key, value_of(*key, numbers), config);
    }
    return config.optimizer.others;
}

std::unique_ptr<zero::Optimizer> make_optimizer(OptimizerType type, const OptimizerOptions& o) {
    const auto [beta1, beta2] = o.betas;
    switch (type) {
        case OptimizerType::sgd:
            return zero::make_sgd({.momentum = o.momentum,
                                   .dampening = o.dampening,
                                   .weight_decay = o.weight_decay,
                                   .nesterov = o.nesterov});
        case OptimizerType::lion:
            return zero::make_lion({.beta1 = beta1, .beta2 = beta2, .weight_decay = o.weight_decay});
        case OptimizerType::adagrad:
            return zero::make_adagrad({.lr_decay = o.lr_decay,
                                       .weight_decay = o.weight_decay,
                                       .initial_accumulator = o.initial_accumulator,
                                       .epsilon = o.epsilon});
        case OptimizerType::adam:
            if (o.adam_w_mode) break;
            return zero::make_adam(
                {.beta1 = beta1, .beta2 = beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay});
        case OptimizerType::adamw:
            break;
    }
    return zero::make_adamw({.beta1 = beta1, .beta2 = beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay});
}

}  // namespace

// Only what the type has gets a value: the others stay unset.
std::map<std::string, SettingValue> optimizer_defaults(const Settings& settings) {
    const OptimizerType type = type_of(settings);
    check_params(settings, type);
    const Names& own = params_of(type);
    std::map<std::string, SettingValue> defaults;
    const auto fill = [&](const char* name, SettingValue value) {
        const std::string key = std::string(section) + name;
        if (has(own, name) && !settings.has(key)) defaults.emplace(key, std::move(value));
    };
    fill("betas", std::vector<double>{0.9, type == OptimizerType::lion ? 0.99 : 0.999});
    fill("eps", type == OptimizerType::adagrad ? 1e-10 : 1e-8);
    fill("adam_w_mode", true);
    for (const char* zero : {"momentum", "dampening", "lr_decay", "initial_accumulator_value"}) fill(zero, 0.0);
    fill("nesterov", false);
    return defaults;
}

std::vector<OptimizerGroup> optimizer_groups(const Settings& settings, const OptimizerOptions& others) {
    if (!settings.has("optimizer.groups")) return {};
    std::vector<OptimizerGroup> groups;
    for (const SettingGroup& group : settings.groups("optimizer.groups")) {
        groups.push_back({group.params, with(others, group)});
        if (group.values.contains("lr") && others.learning_rate == 0)
            throw Error(ExitCode::usage,
                        fmt::format("{}: the lr of optimizer.groups \"{}\" needs an optimizer.params.lr greater than "
                                    "0: the group's rate is the schedule's, times lr divided by optimizer.params.lr",
                                    settings.file(), group.params));
    }
    return groups;
}

zero::ParameterGroups make_optimizers(const OptimizerConfig& config) {
    std::vector<zero::ParameterGroup> groups;
    for (const OptimizerGroup& group : config.groups) {
        const double own = group.options.learning_rate;
        const double factor = own == config.others.learning_rate ? 1 : own / config.others.learning_rate;
        groups.push_back({group.pattern, make_optimizer(config.type, group.options), factor});
    }
    return {make_optimizer(config.type, config.others), std::move(groups)};
}

}  // namespace penstock::trainer
