// Words of penstock.h, and what they are to the layers below. A program may give any number: each throws Refusal
// (usage) for one that is no word.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "swap/capi/penstock.h"
#include "swap/store/tensor_store.h"

#include <chrono>
#include <cstdint>
#include <optional>

namespace penstock::store {

std::optional<aio::BackendKind> backend_of(const penstock_backend& backend);  // none: the best that works
aio::Caching caching_of(const penstock_caching& caching);
VerifyScope scope_of(const penstock_verify& verify);
// None for 0, the library's own; a day at most, as of Io.
std::optional<std::chrono::milliseconds> deadline_of(std::uint64_t deadline_ms);

}  // namespace penstock::store
