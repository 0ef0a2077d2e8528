#include "zero_infinity/layout/parameter_groups.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fnmatch.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace penstock::zero {

ParameterGroups::ParameterGroups(std::unique_ptr<Optimizer> all)
    : ParameterGroups(std::shared_ptr(std::move(all)), {}) {}

ParameterGroups::ParameterGroups(std::shared_ptr<const Optimizer> others, std::vector<ParameterGroup> groups)
    : groups_(std::move(groups)) {
    groups_.push_back({.pattern = "*", .optimizer = std::move(others)});
    for (const ParameterGroup& group : groups_) {
        PENSTOCK_CHECK(group.optimizer != nullptr, "no optimizer for '{}'", group.pattern);
        if (group.optimizer->moments() != moments())
            throw Error(ExitCode::usage,
                        fmt::format("the parameter group '{}' keeps {} moments and the others keep {}; all must keep "
                                    "the same number",
                                    group.pattern, group.optimizer->moments(), moments()));
        for (std::uint32_t moment = 0; moment < moments(); ++moment)
            if (group.optimizer->moment_kind(moment) != this->others().moment_kind(moment))
                throw Error(ExitCode::usage,
                            fmt::format("the parameter group '{}' keeps a moment of another kind than the others do",
                                        group.pattern));
        if (!(group.learning_rate_factor >= 0) || !std::isfinite(group.learning_rate_factor))
            throw Error(ExitCode::usage, fmt::format("the parameter group '{}' multiplies the learning rate by {}; "
                                                     "that must be finite and at least 0",
                                                     group.pattern, group.learning_rate_factor));
    }
}

namespace {

// Numbers as '*': the names of many alike units are one line, and a pattern.
std::string pattern_of(const std::string& name) {
    std::string pattern;
    for (const char each : name) {
        const bool digit = each >= '0' && each <= '9';
        if (!digit) pattern += each;
        if (digit && (pattern.empty() || pattern.back() != '*')) pattern += '*';
    }
    return pattern;
}

std::string trainable_names(std::span<const UnitLayout> units) {
    std::vector<std::string> names;
    for (const UnitLayout& unit : units) {
        for (const ParameterSpec& parameter : unit.spec().parameters) {
            std::string name = pattern_of(unit.spec().name + "." + parameter.name);
            if (parameter.training == Training::trainable && std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(std::move(name));
        }
    }
    constexpr std::size_t most = 100;
    const std::size_t left_out = names.size() - std::min(names.size(), most);
    names.resize(names.size() - left_out);
    return fmt::format("{}{}", fmt::join(names, ", "), left_out == 0 ? "" : fmt::format(" and {} more", left_out));
}

}  // namespace

const ParameterGroup& ParameterGroups::group_of(const std::string& unit, const std::string& parameter) const {
    return groups_[index_of(unit, parameter)];
}

std::size_t ParameterGroups::index_of(const std::string& unit, const std::string& parameter) const {
    const std::string name = unit + "." + parameter;
    std::size_t index = 0;
    const auto has_it = [&](const ParameterGroup& group) {
        return group.names.empty() ? ::fnmatch(group.pattern.c_str(), name.c_str(), 0) == 0
                                   : group.names.contains(name);
    };
    while (index + 1 < groups_.size() && !has_it(groups_[index])) ++index;
    return index;
}

void ParameterGroups::check_use(std::span<const UnitLayout> units) const {
    std::vector<bool> used(groups_.size());
    for (const UnitLayout& unit : units)
        for (const ParameterSpec& parameter : unit.spec().parameters)
            if (parameter.training == Training::trainable) used[index_of(unit.spec().name, parameter.name)] = true;
    for (std::size_t index = 0; index + 1 < groups_.size(); ++index)
        if (!used[index])
            throw Error(ExitCode::usage, fmt::format("the parameter group '{}' is without effect: no trainable "
                                                     "parameter's UNIT.PARAMETER matches it, or groups before it take "
                                                     "all that do; there are: {}",
                                                     groups_[index].pattern, trainable_names(units)));
}

std::vector<OptimizerPiece> optimizer_pieces(const UnitLayout& unit, const ParameterGroups& groups) {
    const std::uint64_t shard_end = unit.shard_first() + unit.shard_numel();
    std::vector<OptimizerPiece> pieces;
    const ParameterGroup* last = nullptr;
    // Each group's piece is cut off where the next group's first parameter begins.
    const auto end_last = [&](std::uint64_t end) {
        if (last == nullptr || end <= unit.shard_first()) return;
        pieces.push_back(
            {std::min(end, shard_end) - unit.shard_first(), last->optimizer.get(), last->learning_rate_factor});
    };
    for (std::size_t index = 0; index < unit.spec().parameters.size(); ++index) {
        const ParameterPlace& place = unit.place(index);
        if (place.training == Training::frozen || place.first >= shard_end) continue;
        const ParameterGroup& group = groups.group_of(unit.spec().name, unit.spec().parameters[index].name);
        if (&group != last) end_last(place.first);
        last = &group;
    }
    end_last(unit.trainable_numel());
    return pieces;
}

}  // namespace penstock::zero
