#include "swap/capi/c_error.h"

#include "aio/words/error.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace penstock::store {
namespace {

penstock_status status_of(ExitCode code) noexcept {
    switch (code) {
        case ExitCode::usage:
            return PENSTOCK_USAGE;
        case ExitCode::does_not_fit:
            return PENSTOCK_DOES_NOT_FIT;
        case ExitCode::storage:
            return PENSTOCK_STORAGE;
        case ExitCode::out_of_memory:
            return PENSTOCK_OUT_OF_MEMORY;
        case ExitCode::non_finite:
            return PENSTOCK_NON_FINITE;
        case ExitCode::peer_lost:
            return PENSTOCK_PEER_LOST;
        default:
            return PENSTOCK_INTERNAL;
    }
}

}  // namespace

penstock_status status_of(StoreError::Kind kind) noexcept {
    switch (kind) {
        case StoreError::Kind::damaged:
            return PENSTOCK_DAMAGED;
        case StoreError::Kind::poisoned:
            return PENSTOCK_POISONED;
        case StoreError::Kind::memory:
            return PENSTOCK_USAGE;
        default:
            return PENSTOCK_STORAGE;
    }
}

penstock_status tell(penstock_error* error, penstock_status status, std::string_view message) noexcept {
    if (error == nullptr) return status;
    constexpr std::string_view cut = "...";
    constexpr std::size_t room = sizeof error->message - 1;
    const std::size_t length = message.size() <= room ? message.size() : room - cut.size();
    error->status = status;
    std::copy_n(message.data(), length, error->message);
    error->message[length] = '\0';
    if (length < message.size()) std::memcpy(error->message + length, cut.data(), cut.size() + 1);
    return status;
}

penstock_status tell_exception(penstock_error* error) noexcept {
    try {
        throw;
    } catch (const Refusal& refusal) {
        return tell(error, refusal.status(), refusal.what());
    } catch (const Error& failure) {
        return tell(error, status_of(failure.code()), failure.what());
    } catch (const std::bad_alloc&) {
        return tell(error, PENSTOCK_OUT_OF_MEMORY, "host memory is exhausted");
    } catch (const std::exception& failure) {
        return tell(error, PENSTOCK_INTERNAL, failure.what());
    } catch (...) {
        return tell(error, PENSTOCK_INTERNAL, "an exception of an unknown type");
    }
}

}  // namespace penstock::store
