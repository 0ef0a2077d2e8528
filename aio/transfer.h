// One range of bytes between a file and memory, however many system calls it takes. What a short transfer, EAGAIN,
// EINTR or zero bytes mean is decided in judge.cpp and nowhere else.
#pragma once

#include "aio/backend.h"
#include "aio/words/io_error.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock::aio {

class File;

// Which transfer goes first when the bytes in flight are bounded: an earlier class is served before a later one
// (aio/admission.h).
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
    // None: demand for a read, write_back for a write. Reads are demand, prefetch or scrub; writes are demand,
    // write_back or scrub. A flush has none: it is issued before anything that is queued on its device.
    std::optional<Urgency> urgency;
};

// Caller-owned and intrusive: starting one allocates nothing. The caller derives from it, keeps it and the memory alive
// until done() was called, and may start it again from within done(). The destructor checks that it is idle or
// orphaned.
class Transfer {
   public:
    Transfer() noexcept = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    virtual ~Transfer();

    // May be started; its memory is the caller's again.
    bool idle() const noexcept { return state_ == State::idle; }
    // The Io ended while a stuck device still had this transfer. It may be destroyed, and so may its File; its memory
    // may be written to until the process has ended, so the caller keeps that for ever (Lease::orphan).
    bool orphaned() const noexcept { return state_ == State::orphaned; }
    const TransferRequest& request() const noexcept { return request_; }
    // The outcome, valid from done() until the next start. All bytes were moved when there is no error.
    const std::optional<IoError>& error() const noexcept { return error_; }

   protected:
    // Called exactly once per start (post or loan), on the thread that owns the Io, from poll() or wait(); never from
    // start(). May start any idle transfer, this one too, and may destroy this one; may not poll or wait. (An Io that
    // is destroyed before the transfer is done does not call it: see Io.)
    virtual void done() noexcept = 0;

   private:
    friend class Io;
    friend class TransferQueue;
    enum class State : std::uint8_t {
        idle,      // the caller's
        queued,    // no byte was issued yet
        active,    // some chunks were issued; the rest, if any, waits in its queue
        drained,   // all chunks are back: done() is due
        orphaned,  // a stuck device has it for ever
        lent,      // another thread's, until Io::give_back()
    };
    void transition(State to) noexcept;
    void fail(int errno_value) noexcept;  // the whole of it
    bool wholly_issued() const noexcept { return state_ == State::active && issued_bytes_ == request_.bytes; }
    // Some of it, or all, waits in a queue.
    bool waits() const noexcept {
        return state_ == State::queued || (state_ == State::active && !wholly_issued() && !error_);
    }

    State state_ = State::idle;
    TransferRequest request_;
    std::optional<IoError> error_;
    std::uint64_t issued_bytes_ = 0;  // handed to chunks so far
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point issued_;  // its first byte
    std::uint32_t chunks_in_flight_ = 0;
    Transfer* next_ = nullptr;  // in a queue of the Io
};

}  // namespace penstock::aio
