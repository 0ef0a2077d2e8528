// The loop around work of many operations: progress, and a device that does not answer.
#pragma once

#include "aio/io.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace penstock::store {

// Work that goes on by itself while its Io is polled.
class LongWork {
   public:
    LongWork() noexcept = default;
    LongWork(const LongWork&) = delete;
    LongWork& operator=(const LongWork&) = delete;
    virtual ~LongWork() = default;

    virtual bool finished() const noexcept = 0;  // nothing of it is in flight
    virtual void stop() noexcept = 0;            // begins nothing new
    virtual void abandon() noexcept = 0;         // of what it works on: the device may still use the memory
    virtual std::uint64_t done_bytes() const noexcept = 0;
    virtual std::uint64_t total_bytes() const noexcept = 0;
};

using WorkProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// Polls the Io until the work has finished. What `progress` throws stops the work and is thrown when nothing is in
// flight any more. Throws Error (storage) when no byte was done for `deadline`: then the work is abandoned and never
// destroyed (`work` is null).
void finish_work(aio::Io& io, std::unique_ptr<LongWork>& work, const WorkProgress& progress,
                 std::chrono::nanoseconds deadline);

// The same of work that is begun by start(); gives it back for its result.
template <typename Work>
std::unique_ptr<Work> start_and_finish(aio::Io& io, std::unique_ptr<Work> work, const WorkProgress& progress,
                                       std::chrono::nanoseconds deadline) {
    Work* const own = work.get();
    own->start();
    std::unique_ptr<LongWork> any = std::move(work);
    finish_work(io, any, progress, deadline);
    static_cast<void>(any.release());
    return std::unique_ptr<Work>(own);
}

// Error (storage) that names the operation that has waited longest.
[[noreturn]] void throw_stuck(const aio::Io& io);

}  // namespace penstock::store
