#include "aio/words/check.h"

#include <cstdio>
#include <cstdlib>

namespace penstock {

void check_failed(std::string_view condition, std::string_view detail, const char* file, int line) {
    std::fprintf(stderr, "%s:%d: check failed: %.*s: %.*s\n", file, line, static_cast<int>(condition.size()),
                 condition.data(), static_cast<int>(detail.size()), detail.data());
    std::fflush(stderr);
    std::abort();
}

}  // namespace penstock
