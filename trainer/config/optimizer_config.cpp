#include "trainer/config/optimizer_config.h"

#include "aio/words/error.h"
#include "trainer/config/key_table.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace penstock::trainer {
namespace {

using Names = std::vector<std::string_view>;
constexpr std::string_view section = "optimizer.params.";

struct OptimizerKeys {
    std::string_view type;
    Names params;
};

const std::array<OptimizerKeys, 5>& optimizer_keys() {
    static const std::array<OptimizerKeys, 5> known = {{
        {"AdamW", {"lr", "betas", "eps", "weight_decay"}},
        {"Adam", {"lr", "betas", "eps", "weight_decay", "adam_w_mode"}},
        {"SGD", {"lr", "weight_decay", "momentum", "dampening", "nesterov"}},
        {"Lion", {"lr", "betas", "weight_decay"}},
        {"Adagrad", {"lr", "eps", "weight_decay", "lr_decay", "initial_accumulator_value"}},
    }};
    return known;
}

const Names& params_of(std::string_view type) {
    const auto& known = optimizer_keys();
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& each) { return each.type == type; });
    if (found == known.end()) throw Error(ExitCode::internal, fmt::format("optimizer.type {} has no parameters", type));
    return found->params;
}

bool has(const Names& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

void check_params(const Settings& settings, const std::string& type) {
    const Names& own = params_of(type);
    const auto refuse = [&](const std::string& path) {
        throw Error(ExitCode::usage, fmt::format("{}: {} is no parameter of optimizer.type \"{}\", which has {}",
                                                 settings.file(), path, type, fmt::join(own, ", ")));
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

// Only what the type has gets a value: the others stay unset.
void derive_defaults(Settings& settings, const std::string& type) {
    const Names& own = params_of(type);
    const auto fill = [&](const char* name, SettingValue value) {
        const std::string key = std::string(section) + name;
        if (has(own, name) && !settings.has(key)) settings.derive(key, std::move(value));
    };
    fill("betas", std::vector<double>{0.9, type == "Lion" ? 0.99 : 0.999});
    fill("eps", type == "Adagrad" ? 1e-10 : 1e-8);
    fill("adam_w_mode", true);
    for (const char* zero : {"momentum", "dampening", "lr_decay", "initial_accumulator_value"}) fill(zero, 0.0);
    fill("nesterov", false);
}

OptimizerOptions common_options(const Settings& settings) {
    OptimizerOptions options;
    const auto number = [&](const char* name, double& value) {
        const std::string key = std::string(section) + name;
        if (settings.has(key)) value = settings.number(key);
    };
    const auto boolean = [&](const char* name, bool& value) {
        const std::string key = std::string(section) + name;
        if (settings.has(key)) value = settings.boolean(key);
    };
    if (settings.has("optimizer.params.betas")) {
        options.beta1 = settings.numbers("optimizer.params.betas")[0];
        options.beta2 = settings.numbers("optimizer.params.betas")[1];
    }
    number("lr", options.learning_rate);
    number("eps", options.epsilon);
    number("weight_decay", options.weight_decay);
    boolean("adam_w_mode", options.adam_w_mode);
    number("momentum", options.momentum);
    number("dampening", options.dampening);
    boolean("nesterov", options.nesterov);
    number("lr_decay", options.lr_decay);
    number("initial_accumulator_value", options.initial_accumulator);
    return options;
}

OptimizerOptions with(OptimizerOptions options, const SettingGroup& group) {
    const auto take = [&](const char* name, std::size_t index, auto& value) {
        if (const auto found = group.values.find(name); found != group.values.end())
            value = static_cast<std::remove_reference_t<decltype(value)>>(found->second.at(index));
    };
    take("lr", 0, options.learning_rate);
    take("betas", 0, options.beta1);
    take("betas", 1, options.beta2);
    take("eps", 0, options.epsilon);
    take("weight_decay", 0, options.weight_decay);
    take("adam_w_mode", 0, options.adam_w_mode);
    take("momentum", 0, options.momentum);
    take("dampening", 0, options.dampening);
    take("nesterov", 0, options.nesterov);
    take("lr_decay", 0, options.lr_decay);
    take("initial_accumulator_value", 0, options.initial_accumulator);
    return options;
}

std::unique_ptr<zero::Optimizer> make_optimizer(const std::string& type, const OptimizerOptions& o) {
    if (type == "SGD")
        return zero::make_sgd(
            {.momentum = o.momentum, .dampening = o.dampening, .weight_decay = o.weight_decay, .nesterov = o.nesterov});
    if (type == "Lion") return zero::make_lion({.beta1 = o.beta1, .beta2 = o.beta2, .weight_decay = o.weight_decay});
    if (type == "Adagrad")
        return zero::make_adagrad({.lr_decay = o.lr_decay,
                                   .weight_decay = o.weight_decay,
                                   .initial_accumulator = o.initial_accumulator,
                                   .epsilon = o.epsilon});
    if (type == "Adam" && !o.adam_w_mode)
        return zero::make_adam(
            {.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay});
    return zero::make_adamw({.beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .weight_decay = o.weight_decay});
}

}  // namespace

OptimizerConfig optimizer_config(Settings& settings) {
    OptimizerConfig config;
    config.type = settings.text("optimizer.type");
    check_params(settings, config.type);
    derive_defaults(settings, config.type);
    config.others = common_options(settings);
    if (!settings.has("optimizer.groups")) return config;
    for (const SettingGroup& group : settings.groups("optimizer.groups")) {
        config.groups.push_back({group.params, with(config.others, group)});
        if (group.values.contains("lr") && config.others.learning_rate == 0)
            throw Error(ExitCode::usage,
                        fmt::format("{}: the lr of optimizer.groups \"{}\" needs an optimizer.params.lr greater than "
                                    "0: the group's rate is the schedule's, times lr divided by optimizer.params.lr",
                                    settings.file(), group.params));
    }
    return config;
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
