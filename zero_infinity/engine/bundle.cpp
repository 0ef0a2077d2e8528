#include "zero_infinity/engine/bundle.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::engine {

void Bundle::set(std::string_view name, at::Tensor tensor) {
    const auto same =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == name; });
    if (same != entries_.end()) {
        same->second = std::move(tensor);
    } else {
        entries_.emplace_back(std::string(name), std::move(tensor));
    }
}

const at::Tensor& Bundle::at(std::string_view name) const {
    for (const auto& [key, tensor] : entries_)
        if (key == name) return tensor;
    std::string names;
    for (const auto& [key, tensor] : entries_) names += (names.empty() ? "" : ", ") + key;
    throw Error(ExitCode::internal, fmt::format("a unit asks for '{}' but its input holds: {}", name, names));
}

bool Bundle::has(std::string_view name) const noexcept {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& entry) { return entry.first == name; });
}

}  // namespace penstock::engine
