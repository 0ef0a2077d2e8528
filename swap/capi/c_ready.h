// The one descriptor by which an event loop learns that a store has something to do.
#pragma once

#include "aio/backend/wake_event.h"
#include "swap/directory/descriptor.h"

namespace penstock::store {

// An epoll of three: results that wait (an eventfd), the backend's own descriptor, and a timer for what no completion
// announces: an attempt that pauses before it is repeated, and the deadline. No thread. One thread uses it. Throws
// Error (storage) when there is no descriptor left.
class ReadyDescriptor {
   public:
    // `backend_fd`: Backend::ready_fd(). Without one (-1) the timer stands in for it and ticks more often.
    explicit ReadyDescriptor(int backend_fd);

    int fd() const noexcept { return epoll_.get(); }
    // Says how things are when a call on the store ends: whether results wait, and whether operations are in flight.
    void update(bool results, bool in_flight) noexcept;
    // The backend has nothing more to say: what it signals nobody takes any more.
    void drop_backend() noexcept;

   private:
    void watch(int fd);

    int backend_fd_;  // -1: it does not signal
    bool results_ = false;
    aio::WakeEvent event_;
    Descriptor timer_;
    Descriptor epoll_;
};

}  // namespace penstock::store
