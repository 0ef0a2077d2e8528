// The loop around work of many operations: progress, and a device that does not answer.
#pragma once

#include "aio/io.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace penstock::store {

// Called on the caller's thread while something long goes on. What it throws ends that work, once nothing of it is in
// flight, and reaches the caller.
using WorkProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

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
    // What is said after the name of the operation that does not come back.
    virtual const char* stuck_remedy() const noexcept;
};

// Polls the Io until the work has finished. Throws what `progress` throws, and Error (storage) when the device is stuck
// (Io::advance): then the work is abandoned and never destroyed (`work` is null).
void finish_work(aio::Io& io, std::unique_ptr<LongWork>& work, const WorkProgress& progress);

// The same of work that is begun by start(); gives it back for its result.
template <typename Work>
std::unique_ptr<Work> start_and_finish(aio::Io& io, std::unique_ptr<Work> work, const WorkProgress& progress) {
    Work* const own = work.get();
    own->start();
    std::unique_ptr<LongWork> any = std::move(work);
    finish_work(io, any, progress);
    static_cast<void>(any.release());
    return std::unique_ptr<Work>(own);
}

// Polls the Io until ended() says so; not from a completion. Throws Error (storage) when a device is stuck: abandon()
// is called before, as it is before whatever else is thrown, for what the device may still be at.
void advance_until(aio::Io& io, const std::function<bool()>& ended, const std::function<void()>& abandon);

inline constexpr const char* stuck_store_remedy = "check the device (dmesg). What was committed is safe.";

}  // namespace penstock::store
