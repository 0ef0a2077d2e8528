// A view of a shared backend in which a run is the same each time: attempts come back in the order of submission, and
// time is virtual. Building and closing a ring takes longer than a run, so many runs share one.
#pragma once

#include "aio/backend.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace penstock::aio {

// Hands what was submitted to the shared backend at the next reap(), all at once, and returns when all of it is back,
// whatever the timeout: in virtual time that takes a microsecond. With nothing submitted, reap() passes the timeout
// without sleeping. So nothing is with the kernel outside reap(), and pauses cost no time.
class RepeatableBackend final : public Backend {
   public:
    // `shared` outlives this.
    RepeatableBackend(Backend& shared, std::size_t depth) : shared_(shared), depth_(depth) { held_.reserve(depth); }

    bool submit(Attempt& attempt) override {
        if (held_.size() == depth_) return false;
        held_.push_back(&attempt);
        return true;
    }
    Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (held_.empty()) {
            now_ += std::max(timeout, std::chrono::nanoseconds(0));
            return nullptr;
        }
        for (Attempt* attempt : held_) shared_.submit(*attempt);
        std::size_t back = 0;
        while (back < held_.size()) {
            for (const Attempt* one = shared_.reap(std::chrono::seconds(1)); one != nullptr; one = one->next) ++back;
        }
        now_ += std::chrono::microseconds(1);
        return take_held();
    }
    void wake() noexcept override {}  // nobody waits
    Attempt* abandon() noexcept override {
        for (Attempt* attempt : held_) attempt->result = -ECANCELED;
        return take_held();
    }
    std::chrono::steady_clock::time_point now() const noexcept override { return now_; }
    std::string register_memory(std::span<const std::span<std::byte>> ranges) override {
        return shared_.register_memory(ranges);
    }
    std::string register_files(std::span<const RegisteredFile> files) override { return shared_.register_files(files); }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return shared_.name(); }

   private:
    Attempt* take_held() noexcept {
        Attempt* list = nullptr;
        for (auto it = held_.rbegin(); it != held_.rend(); ++it) (*it)->next = std::exchange(list, *it);
        held_.clear();
        return list;
    }

    Backend& shared_;
    std::size_t depth_;
    std::chrono::steady_clock::time_point now_{};
    std::vector<Attempt*> held_;  // in the order of submission
};

}  // namespace penstock::aio
