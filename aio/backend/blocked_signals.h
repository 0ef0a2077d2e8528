// Threads of a library: signals belong to those of the program.
#pragma once

#include <signal.h>

namespace penstock::aio {

// While it lives, threads are born with all signals blocked; what the kernel sends to one itself (SIGXFSZ) is never
// delivered.
class BlockedSignals {
   public:
    BlockedSignals() noexcept {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

   private:
    sigset_t before_;
};

}  // namespace penstock::aio
