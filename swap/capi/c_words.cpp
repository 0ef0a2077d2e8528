#include "swap/capi/c_words.h"

#include "swap/capi/c_error.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::store {
namespace {

constexpr std::chrono::milliseconds longest_deadline = std::chrono::hours(24);

Refusal no_such(const char* what, int number) {
    return {PENSTOCK_USAGE, fmt::format("there is no {} {}", what, number)};
}

}  // namespace

std::optional<aio::BackendKind> backend_of(const penstock_backend& backend) {
    switch (number_of(backend)) {
        case PENSTOCK_BACKEND_BEST:
            return std::nullopt;
        case PENSTOCK_BACKEND_IO_URING:
            return aio::BackendKind::io_uring;
        case PENSTOCK_BACKEND_LIBAIO:
            return aio::BackendKind::libaio;
        case PENSTOCK_BACKEND_THREADS:
            return aio::BackendKind::threads;
        default:
            throw no_such("backend", number_of(backend));
    }
}

aio::Caching caching_of(const penstock_caching& caching) {
    switch (number_of(caching)) {
        case PENSTOCK_DIRECT:
            return aio::Caching::direct;
        case PENSTOCK_PAGE_CACHE:
            return aio::Caching::buffered;
        default:
            throw no_such("caching", number_of(caching));
    }
}

VerifyScope scope_of(const penstock_verify& verify) {
    switch (number_of(verify)) {
        case PENSTOCK_VERIFY_NONE:
            return VerifyScope::none;
        case PENSTOCK_VERIFY_SAMPLE:
            return VerifyScope::sample;
        case PENSTOCK_VERIFY_ALL:
            return VerifyScope::all;
        default:
            throw no_such("verify", number_of(verify));
    }
}

std::optional<std::chrono::milliseconds> deadline_of(std::uint64_t deadline_ms) {
    if (deadline_ms == 0) return std::nullopt;
    const auto longest = static_cast<std::uint64_t>(longest_deadline.count());
    return std::chrono::milliseconds(std::min(deadline_ms, longest));
}

}  // namespace penstock::store
