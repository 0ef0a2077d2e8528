// What went wrong with a transfer: a value that it carries.
#pragma once

#include "aio/words/shared_text.h"

#include <cstdint>
#include <string>

namespace penstock::aio {

enum class IoKind : std::uint8_t { read, write, flush };
const char* to_string(IoKind kind) noexcept;

// "No space left on device (ENOSPC)"
std::string errno_text(int errno_value);

// What went wrong with one transfer. Copying it allocates nothing. `errno_value` is 0 when the device moved nothing and
// named no reason: an unexpected end of file when reading.
struct IoError {
    IoKind kind = IoKind::read;
    SharedText path;
    std::uint64_t offset_bytes = 0;  // of the first byte that was not transferred
    std::uint64_t bytes = 0;         // that were still to go in the chunk that failed (0 for a flush)
    int errno_value = 0;
    int tries = 0;  // attempts at that place

    // One line: "write /data/penstock.data at offset 4096, 1048576 bytes: No space left on device (ENOSPC), 1 try"
    std::string message() const;
};

}  // namespace penstock::aio
