#include "zero_infinity/engine/reached.h"

#include "aio/words/error.h"

#include <fmt/ranges.h>

namespace penstock::engine {

void Reached::check(std::uint32_t unit, const std::set<std::string>& wanted, bool passed_on) const {
    const Unit& module = *model_->units()[unit];
    const std::string parameters = fmt::format("{}", fmt::join(missing(module), "', '"));
    if (!parameters.empty())
        throw Error(ExitCode::usage,
                    fmt::format("no gradient comes to unit '{}', parameters '{}': the loss does not depend on them, or "
                                "a unit behind detaches it from them. Use them, freeze them, or declare them with "
                                "Unused::allowed where a step may do without",
                                module.name(), parameters));
    if (wanted.empty() || passed_on) return;
    for (std::uint32_t before = 0; before < unit; ++before)
        if (!missing(*model_->units()[before]).empty())
            throw Error(ExitCode::usage,
                        fmt::format("unit '{}' passes no gradient on to its input '{}': what it returns does not "
                                    "depend on that, or was detached from it, and the units before would not be "
                                    "trained. Freeze them, or use the input in what is returned",
                                    module.name(), fmt::join(wanted, "', '")));
}

// Those of its own that a gradient should have come to.
std::vector<std::string> Reached::missing(const Unit& unit) const {
    std::vector<std::string> names;
    for (const auto& parameter : unit.parameters())
        if (parameter->spec().training == zero::Training::trainable && parameter->spec().unused == Unused::refused &&
            !parameters_.contains(parameter.get()))
            names.push_back(parameter->spec().name);
    return names;
}

}  // namespace penstock::engine
