// An attempt as one system call that blocks, for a backend that has no queue in the kernel.
#pragma once

#include "aio/backend.h"

#include <cstdint>

namespace penstock::aio {

// Bytes moved, or -errno. Any thread.
std::int32_t perform(const Attempt& attempt) noexcept;

}  // namespace penstock::aio
