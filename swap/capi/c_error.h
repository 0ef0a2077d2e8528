// From what C++ throws and returns to the status and the text of the C interface.
#pragma once

#include "swap/capi/penstock.h"
#include "swap/store/tensor_store.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::store {

// A call that the C interface refuses before anything has happened.
class Refusal : public std::runtime_error {
   public:
    Refusal(penstock_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    penstock_status status() const noexcept { return status_; }

   private:
    penstock_status status_;
};

// What the caller gave is wrong: require(count > 0, "{} directories", count).
template <typename... Arguments>
void require(bool condition, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
    if (!condition) throw Refusal(PENSTOCK_USAGE, fmt::format(text, std::forward<Arguments>(arguments)...));
}

template <typename T>
T& required(T* given, const char* name) {
    require(given != nullptr, "{} is NULL", name);
    return *given;
}

// Of an enumeration that a C caller may have filled with any number: as such it must not even be looked at in C++.
template <typename Enumeration>
int number_of(const Enumeration& given) noexcept {
    int number = 0;
    static_assert(sizeof number == sizeof given);
    std::memcpy(&number, &given, sizeof number);
    return number;
}

penstock_status status_of(StoreError::Kind kind) noexcept;

// Cuts what is too long. `error` may be null. Returns `status`.
penstock_status tell(penstock_error* error, penstock_status status, std::string_view message) noexcept;
// The same for the exception that is being handled.
penstock_status tell_exception(penstock_error* error) noexcept;

// Runs the body of a C function: it throws, or returns a status that is no error.
template <typename Body>
penstock_status guarded(penstock_error* error, Body&& body) noexcept {
    try {
        return tell(error, body(), {});
    } catch (...) {
        return tell_exception(error);
    }
}

}  // namespace penstock::store
