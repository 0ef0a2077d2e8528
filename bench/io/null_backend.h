// Devices that move nothing: what is left is the cost of everything above them.
#pragma once

#include "aio/backend.h"
#include "aio/backend/backend_limits.h"
#include "aio/backend/wake_event.h"

#include <poll.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace penstock::bench {

// Every attempt succeeds, at the next reap(); or one after the other, at the rate of a device. Memory that is read into
// stays as it is.
class NullBackend final : public aio::Backend {
   public:
    using Time = std::chrono::steady_clock::time_point;

    explicit NullBackend(double bytes_per_second = 0) : bytes_per_second_(bytes_per_second) {}  // 0: takes no time

    bool submit(aio::Attempt& attempt) override {
        attempt.result = static_cast<std::int32_t>(attempt.bytes);
        if (bytes_per_second_ > 0) {
            const std::chrono::duration<double> takes(attempt.bytes / bytes_per_second_);
            free_at_ = std::max(free_at_, now()) + std::chrono::duration_cast<std::chrono::nanoseconds>(takes);
            at_work_.push_back({&attempt, free_at_});
        } else {
            finish(attempt);
        }
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        take_ended();
        if (finished_ == nullptr && timeout > std::chrono::nanoseconds(0)) {
            if (!at_work_.empty()) timeout = std::min(timeout, at_work_.front().ends - now());
            sleep(timeout);
            take_ended();
        }
        return std::exchange(finished_, nullptr);
    }
    void wake() noexcept override { woken_.signal(); }
    aio::Attempt* abandon() noexcept override { return nullptr; }
    Time now() const noexcept override { return std::chrono::steady_clock::now(); }
    std::size_t depth() const noexcept override { return 64; }
    const char* name() const noexcept override { return "null"; }

   private:
    struct AtWork {
        aio::Attempt* attempt = nullptr;
        Time ends;
    };

    void finish(aio::Attempt& attempt) noexcept { attempt.next = std::exchange(finished_, &attempt); }
    void take_ended() noexcept {
        if (at_work_.empty()) return;
        for (const Time at = now(); !at_work_.empty() && at_work_.front().ends <= at; at_work_.pop_front())
            finish(*at_work_.front().attempt);
    }
    void sleep(std::chrono::nanoseconds timeout) noexcept {
        const auto limit = aio::bounded_timespec<timespec>(timeout);
        pollfd event = {.fd = woken_.fd(), .events = POLLIN, .revents = 0};
        if (::ppoll(&event, 1, &limit, nullptr) > 0) woken_.take();
    }

    double bytes_per_second_;
    Time free_at_;  // once what it has is done
    std::deque<AtWork> at_work_;
    aio::Attempt* finished_ = nullptr;
    aio::WakeEvent woken_;
};

}  // namespace penstock::bench
