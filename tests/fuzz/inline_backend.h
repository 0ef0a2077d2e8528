// A backend that does the work itself, in the order of submission, within reap(): no thread, no ring, the same each
// time. Its time is virtual.
#pragma once

#include "aio/backend/attempt_list.h"
#include "aio/backend/perform.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace penstock::fuzz {

// What a hostile layout says lies behind the end of this device. In a file of zeros as long as it says, reading would
// not end before petabytes.
inline constexpr std::uint64_t device_bytes = 256U << 20;

class InlineBackend final : public aio::Backend {
   public:
    bool submit(aio::Attempt& attempt) override {
        if (count_ == depth()) return false;
        held_.push(attempt);
        ++count_;
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        now_ += held_.empty() ? timeout : std::chrono::microseconds(1);
        count_ = 0;
        aio::Attempt* const all = held_.take_all();
        for (aio::Attempt* attempt = all; attempt != nullptr; attempt = attempt->next)
            attempt->result = is_there(*attempt) ? perform(*attempt) : -EIO;
        return all;
    }
    void wake() noexcept override {}  // nobody waits
    aio::Attempt* abandon() noexcept override {
        count_ = 0;
        aio::Attempt* const all = held_.take_all();
        for (aio::Attempt* attempt = all; attempt != nullptr; attempt = attempt->next) attempt->result = -ECANCELED;
        return all;
    }
    std::chrono::steady_clock::time_point now() const noexcept override { return now_; }
    std::size_t depth() const noexcept override { return 64; }
    const char* name() const noexcept override { return "inline"; }

   private:
    static bool is_there(const aio::Attempt& attempt) noexcept {
        return attempt.bytes <= device_bytes && attempt.offset_bytes <= device_bytes - attempt.bytes;
    }

    aio::AttemptList held_;
    std::size_t count_ = 0;
    std::chrono::steady_clock::time_point now_{};
};

}  // namespace penstock::fuzz
