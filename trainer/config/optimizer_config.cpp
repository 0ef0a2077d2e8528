#include "trainer/config/optimizer_config.h"

#include "aio/words/error.h"
#include "trainer/config/config.h"
#include "trainer/config/key_table.h"
#include "trainer/config/program_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::trainer {
namespace {

constexpr std::string_view section = "optimizer.params.";
constexpr std::string_view adam = "Adam";

const zero::OptimizerKind& kind_of(const Settings& settings) {
    return *zero::find_optimizer(settings.text("optimizer.type"));
}

std::vector<std::string_view> params_of(const zero::OptimizerKind& kind) {
    std::vector<std::string_view> names{"lr"};
    std::ranges::copy_if(kind.params, std::back_inserter(names), [](std::string_view name) { return !name.empty(); });
    if (kind.word == adam) names.emplace_back("adam_w_mode");
    return names;
}

bool has(const std::vector<std::string_view>& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

void check_params(const Settings& settings, const zero::OptimizerKind& kind) {
    const std::vector<std::string_view> own = params_of(kind);
    const auto refuse = [&](const std::string& path) {
        throw Error(ExitCode::usage, fmt::format("{}: {} is no parameter of optimizer.type \"{}\", which has {}",
                                                 settings.file(), path, kind.word, fmt::join(own, ", ")));
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

OptimizerParams with(const OptimizerParams& others, const SettingGroup& group) {
    TrainConfig config;
    config.optimizer.others = others;
    for (const auto& [name, numbers] : group.values) {
        const KeySpec* key = find_key(std::string(section) + name);
        fill(*key, value_of(*key, numbers), config);
    }
    return config.optimizer.others;
}

// DeepSpeed's "Adam" is AdamW, unless it is said not to be.
std::unique_ptr<zero::Optimizer> make_optimizer(const zero::OptimizerKind& kind, const OptimizerParams& params) {
    const bool decoupled = kind.word == adam && params.adam_w_mode;
    return (decoupled ? *zero::find_optimizer("AdamW") : kind).make(params);
}

}  // namespace

// Only what the kind has gets a value: the others stay unset.
std::map<std::string, SettingValue> optimizer_defaults(const Settings& settings) {
    const zero::OptimizerKind& kind = kind_of(settings);
    check_params(settings, kind);
    TrainConfig config;
    config.optimizer.others = {kind.defaults};
    std::map<std::string, SettingValue> defaults;
    for (const std::string_view name : params_of(kind)) {
        const KeySpec& key = *find_key(std::string(section).append(name));
        const bool of_kind = !key.fallback.empty();  // else it is the same of all, and the table's
        if (of_kind && !settings.has(key.path)) defaults.emplace(key.path, read(key, config));
    }
    return defaults;
}

std::vector<OptimizerGroup> optimizer_groups(const Settings& settings, const OptimizerParams& others) {
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
        groups.push_back({group.pattern, make_optimizer(*config.kind, group.options), factor});
    }
    return {make_optimizer(*config.kind, config.others), std::move(groups)};
}

}  // namespace penstock::trainer
