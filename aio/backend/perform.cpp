#include "aio/backend/perform.h"

#include "aio/words/io_error.h"

#include <unistd.h>

#include <cerrno>

namespace penstock::aio {

std::int32_t perform(const Attempt& attempt) noexcept {
    const auto offset = static_cast<off_t>(attempt.offset_bytes);
    ssize_t result = 0;
    switch (attempt.kind) {
        case IoKind::read:
            result = ::pread(attempt.fd, attempt.data, attempt.bytes, offset);
            break;
        case IoKind::write:
            result = ::pwrite(attempt.fd, attempt.data, attempt.bytes, offset);
            break;
        case IoKind::flush:
            result = ::fdatasync(attempt.fd);
            break;
    }
    return static_cast<std::int32_t>(result < 0 ? -errno : result);
}

}  // namespace penstock::aio
