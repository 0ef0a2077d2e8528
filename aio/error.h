// Errors of two kinds: IoError is a value that a completed transfer carries; Error is the one exception of set-up and
// of everything a user can cause. Programmer errors are neither: see aio/check.h.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace penstock {

// The program's exit codes, documented in README.md. Every Error knows which one it ends the process with.
enum class ExitCode : int {
    ok = 0,
    internal = 1,
    usage = 2,          // command line, configuration or input data
    does_not_fit = 3,   // memory budget or disk space, found before the start
    storage = 4,        // I/O error, damaged or foreign data
    out_of_memory = 5,  // found while running; the message says which tier
    non_finite = 6,     // loss or gradient is NaN or infinite
    peer_lost = 7,
    interrupted = 75,  // stopped by a signal after a committed step: run again to resume
};

// The message says what failed, where (file, key, offset), the likely cause and the remedy, in that order.
class Error : public std::runtime_error {
   public:
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    ExitCode code() const noexcept { return code_; }

   private:
    ExitCode code_;
};

enum class IoKind : std::uint8_t { read, write, flush };
const char* to_string(IoKind kind) noexcept;

// "No space left on device (ENOSPC)"
std::string errno_text(int errno_value);

// What went wrong with one transfer. `errno_value` is 0 when the device moved nothing and named no reason: an
// unexpected end of file when reading.
struct IoError {
    IoKind kind = IoKind::read;
    std::string path;
    std::uint64_t offset_bytes = 0;  // of the first byte that was not transferred
    std::uint64_t bytes = 0;         // that were still to go in the chunk that failed (0 for a flush)
    int errno_value = 0;
    int tries = 0;  // attempts at that place

    // One line: "write /data/penstock.data at offset 4096, 1048576 bytes: No space left on device (ENOSPC), 1 try"
    std::string message() const;
};

}  // namespace penstock
