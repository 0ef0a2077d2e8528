#include "aio/backend/uring_refusal.h"

#include "aio/backend/backend_limits.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>

namespace penstock::aio {

namespace {

const char* likely_cause(int errno_value) {
    switch (errno_value) {
        case ENOSYS:
            return "the kernel has no io_uring or a container's seccomp profile hides it";
        case EPERM:
        case EACCES:
            return "a container's seccomp profile or the sysctl kernel.io_uring_disabled forbids it";
        case ENOMEM:
            return "the limit on locked memory (ulimit -l) is too small for this kernel, or it has no memory left";
        case EMFILE:
        case ENFILE:
            return "the limit on open files (ulimit -n) is reached";
        default:
            return "the kernel refuses it";
    }
}

}  // namespace

void refuse_uring(const char* call, int errno_value) {
    refuse_backend(call, errno_value, likely_cause(errno_value));
}

std::string refusal_of_memory(int errno_value, std::uint64_t bytes) {
    std::string cause = "the kernel refuses this memory";
    if (errno_value == ENOMEM) {
        rlimit limit{};
        ::getrlimit(RLIMIT_MEMLOCK, &limit);
        cause = fmt::format("{} KiB do not fit in the limit on locked memory, {} KiB (ulimit -l), or in memory",
                            bytes >> 10, limit.rlim_cur >> 10);
    }
    return fmt::format("io_uring_register_buffers: {}; {}", errno_text(errno_value), cause);
}

std::string refusal_of_files(int errno_value, std::size_t count) {
    const char* cause = "the kernel refuses one of them";
    if (errno_value == EMFILE) cause = "more than the limit on open files (ulimit -n)";
    return fmt::format("io_uring_register_files of {}: {}; {}", count, errno_text(errno_value), cause);
}

}  // namespace penstock::aio
