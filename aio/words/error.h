// The one exception of set-up and of everything a user can cause. What a transfer ended with is a value
// (aio/words/io_error.h); programmer errors are neither (aio/words/check.h).
#pragma once

#include <stdexcept>
#include <string>

namespace penstock {

// The program's exit codes, documented in trainer/README.md. Every Error knows which one it ends the process with.
enum class ExitCode : int {
    ok = 0,
    internal = 1,
    usage = 2,          // command line, configuration or input data
    does_not_fit = 3,   // memory budget or disk space, found before the start; or where activations fill the disk
    storage = 4,        // I/O error, damaged or foreign data
    out_of_memory = 5,  // found while running; the message says which tier
    non_finite = 6,     // loss or gradient is NaN or infinite
    peer_lost = 7,      // another rank of the run was lost, or failed and said why
    interrupted = 75,   // stopped by a signal after a committed step: run again to resume
};

// The message says what failed, where (file, key, offset), the likely cause and the remedy, in that order.
class Error : public std::runtime_error {
   public:
    Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
    ExitCode code() const noexcept { return code_; }

   private:
    ExitCode code_;
};

}  // namespace penstock
