// One range of bytes between a file and memory, however many system calls it takes. What a short transfer, EAGAIN,
// EINTR or zero bytes mean is decided in transfer.cpp and nowhere else.
#pragma once

#include "aio/backend.h"
#include "aio/error.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock {

class File;

// Which transfer goes first when the bytes in flight are bounded: an earlier class is served before a later one.
enum class Urgency : std::uint8_t { demand, prefetch, write_back, scrub };
inline constexpr std::size_t urgency_count = 4;

// What is to be done. For reads and writes `data`, `offset_bytes` and `bytes` obey the file's alignment and bytes > 0;
// a flush (fdatasync) has none of them and covers every write that was completed before it was started.
struct TransferRequest {
    IoKind kind = IoKind::read;
    const File* file = nullptr;
    std::byte* data = nullptr;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
    Urgency urgency = Urgency::demand;
};

// Caller-owned and intrusive: starting one allocates nothing. The caller derives from it, keeps it and the memory alive
// until done() was called, and may start it again from within done(). The destructor checks that it is idle.
class Transfer {
   public:
    Transfer() noexcept = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer();

    bool idle() const noexcept { return state_ == State::idle; }
    const TransferRequest& request() const noexcept { return request_; }
    // The outcome, valid from done() until the next start. All bytes were moved when there is no error.
    const std::optional<IoError>& error() const noexcept { return error_; }

   protected:
    // Called exactly once per start, on the thread that owns the Io, from poll() or wait(); never from start(). May
    // start any idle transfer, this one too, and may destroy this one; may not poll or wait. (An Io that is destroyed
    // before the transfer is done does not call it: see Io.)
    virtual void done() noexcept = 0;

   private:
    friend class Io;
    enum class State : std::uint8_t {
        idle,     // the caller's
        queued,   // no byte was issued yet
        active,   // some chunks were issued; the rest, if any, waits at the head of its queue
        drained,  // all chunks are back, done() is due
    };
    void transition(State to) noexcept;
    bool wholly_issued() const noexcept { return issued_bytes_ == request_.bytes; }

    State state_ = State::idle;
    TransferRequest request_;
    std::optional<IoError> error_;
    std::uint64_t issued_bytes_ = 0;  // handed to chunks so far
    std::uint32_t chunks_in_flight_ = 0;
    Transfer* next_ = nullptr;  // in a queue of the Io
};

}  // namespace penstock
