// SIGINT and SIGTERM as an exception, so that whatever a measurement made is removed again.
#pragma once

#include <functional>

namespace penstock::bench {

// Holds both signals back while it lives; one at a time. Threads and the owner's loops ask; programs that are started
// meanwhile get the signals as usual.
class Interruption {
   public:
    Interruption();
    ~Interruption();
    Interruption(const Interruption&) = delete;
    Interruption& operator=(const Interruption&) = delete;

    // Throws Error (interrupted) when a signal has come. A system call: not for each block.
    void check();
    std::function<void()> asking() {  // for who is not the bench's (zero::RigOptions)
        return [this] { check(); };
    }
    int fd() const noexcept { return fd_; }  // readable when a signal has come

   private:
    int fd_ = -1;
    bool came_ = false;
};

}  // namespace penstock::bench
