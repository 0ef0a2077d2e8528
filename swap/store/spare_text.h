// Words for an error where nothing may throw: without memory for them, fewer.
#pragma once

#include "swap/store/tensor_store.h"

#include <new>
#include <optional>
#include <string>
#include <utility>

namespace penstock::store {

// `build` returns the text. What is said instead fits into a string that allocates nothing (libstdc++: 15 bytes).
template <typename Build>
std::string text_or_less(Build&& build) noexcept {
    try {
        return std::forward<Build>(build)();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    }
}

inline std::optional<StoreError> copied(const std::optional<StoreError>& error) noexcept {
    if (!error) return std::nullopt;
    return StoreError{.kind = error->kind, .message = text_or_less([&] { return error->message; })};
}

}  // namespace penstock::store
