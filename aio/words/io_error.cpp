#include "aio/words/io_error.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

// glibc has it from 2.32 on. What is built for an older one, the wheel, finds it where a newer one runs.
extern "C" [[gnu::weak]] const char* strerrorname_np(int) noexcept;

namespace penstock::aio {

const char* to_string(IoKind kind) noexcept {
    switch (kind) {
        case IoKind::read:
            return "read";
        case IoKind::write:
            return "write";
        case IoKind::flush:
            return "flush";
    }
    return "unknown operation";
}

std::string errno_text(int errno_value) {
    std::array<char, 128> room{};
    const char* const description = strerror_r(errno_value, room.data(), room.size());
    if (strerrorname_np == nullptr) return fmt::format("{} ({})", description, errno_value);
    const char* const name = strerrorname_np(errno_value);
    return name == nullptr ? description : fmt::format("{} ({})", description, name);
}

namespace {

std::string cause(const IoError& error) {
    if (error.errno_value == EFBIG)
        return errno_text(EFBIG) + ": the limit on file sizes (ulimit -f), or the file system's";
    if (error.errno_value != 0) return errno_text(error.errno_value);
    return error.kind == IoKind::read ? "unexpected end of file" : "the device moved no bytes and named no reason";
}

}  // namespace

std::string IoError::message() const {
    const std::string place = kind == IoKind::flush ? fmt::format("flush {}", path.text())
                                                    : fmt::format("{} {} at offset {}, {} bytes", to_string(kind),
                                                                  path.text(), offset_bytes, bytes);
    return fmt::format("{}: {}, {} {}", place, cause(*this), tries, tries == 1 ? "try" : "tries");
}

}  // namespace penstock::aio
