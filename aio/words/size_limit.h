// The limit on the length of files (RLIMIT_FSIZE, `ulimit -f`).
#pragma once

#include <signal.h>

#include <cstdint>

namespace penstock::aio {

// That a file of this process may have; the largest number where there is no limit.
std::uint64_t longest_file_bytes() noexcept;

// The kernel answers a write or a reservation behind the limit with EFBIG and with SIGXFSZ to the thread, which ends a
// program that does not expect it. While this lives none comes to the thread, and none is left for later. One system
// call where there is no limit; one that is lowered within it is seen by the next. Any thread; lives on the stack.
class NoSizeSignal {
   public:
    NoSizeSignal() noexcept;
    ~NoSizeSignal();
    NoSizeSignal(const NoSizeSignal&) = delete;
    NoSizeSignal& operator=(const NoSizeSignal&) = delete;

   private:
    bool blocks_ = false;
    bool was_pending_ = false;  // it is the program's own
    sigset_t signal_;
    sigset_t before_;
};

}  // namespace penstock::aio
