// A backend that does the work itself, in the order of submission, within reap(): no thread, no ring, the same each
// time. Its time is virtual.
#pragma once

#include "aio/backend.h"

#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace penstock::fuzz {

class InlineBackend final : public Backend {
   public:
    bool submit(Attempt& attempt) override {
        if (held_.size() == depth()) return false;
        held_.push_back(&attempt);
        return true;
    }
    Attempt* reap(std::chrono::nanoseconds timeout) override {
        now_ += held_.empty() ? timeout : std::chrono::microseconds(1);
        for (Attempt* attempt : held_) attempt->result = perform(*attempt);
        return take_held();
    }
    void wake() noexcept override {}  // nobody waits
    Attempt* abandon() noexcept override {
        for (Attempt* attempt : held_) attempt->result = -ECANCELED;
        return take_held();
    }
    std::chrono::steady_clock::time_point now() const noexcept override { return now_; }
    std::size_t depth() const noexcept override { return 64; }
    const char* name() const noexcept override { return "inline"; }

   private:
    static std::int32_t perform(const Attempt& attempt) {
        const auto offset = static_cast<off_t>(attempt.offset_bytes);
        ssize_t result = 0;
        switch (attempt.kind) {
            case IoKind::read:
                result = ::pread(attempt.fd, attempt.data, attempt.bytes, offset);
                break;
            case IoKind::write:
                result = ::pwrite(attempt.fd, attempt.data, attempt.bytes, offset);
                break;
            case IoKind::flush:
                result = ::fdatasync(attempt.fd);
        }
        return static_cast<std::int32_t>(result < 0 ? -errno : result);
    }
    Attempt* take_held() noexcept {
        Attempt* list = nullptr;
        for (auto it = held_.rbegin(); it != held_.rend(); ++it) (*it)->next = std::exchange(list, *it);
        held_.clear();
        return list;
    }

    std::vector<Attempt*> held_;  // in the order of submission
    std::chrono::steady_clock::time_point now_{};
};

}  // namespace penstock::fuzz
