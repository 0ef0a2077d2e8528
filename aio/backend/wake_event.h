// What a backend's owner is woken by while it sleeps in the kernel: an eventfd, because a condition variable could not
// be signalled from a signal handler.
#pragma once

namespace penstock::aio {

// Readable from signal() until take(). Throws Error (storage) when there is no descriptor left.
class WakeEvent {
   public:
    WakeEvent();
    ~WakeEvent();
    WakeEvent(const WakeEvent&) = delete;
    WakeEvent& operator=(const WakeEvent&) = delete;

    void signal() noexcept;  // any thread; async-signal-safe
    void take() noexcept;    // does not block
    int fd() const noexcept { return fd_; }

   private:
    int fd_;
};

}  // namespace penstock::aio
