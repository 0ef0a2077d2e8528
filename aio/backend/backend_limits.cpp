#include "aio/backend/backend_limits.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>

namespace penstock::aio {

std::size_t checked_depth(std::size_t depth) {
    PENSTOCK_CHECK(depth > 0 && depth <= max_backend_depth, "depth {} is not in 1..{}", depth, max_backend_depth);
    return depth;
}

void refuse_backend(const char* call, int errno_value, const std::string& cause) {
    throw Error(ExitCode::storage, fmt::format("{}: {}; {}", call, errno_text(errno_value), cause));
}

}  // namespace penstock::aio
