// A device that stops for a while now and then, or for ever from some attempt on, or fails once.
#pragma once

#include "tests/aio/fakes/forwarding_backend.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace penstock::testing {

struct Moods {
    int stops_percent = 0;                          // of attempts: it and all after it wait ...
    std::chrono::microseconds stop{0};              // ... this long
    std::optional<std::uint64_t> silent_from = {};  // this attempt and all after it never come back
    std::optional<std::uint64_t> fails_at = {};     // this attempt of its kind ends with EIO, and no other
    aio::IoKind fails = aio::IoKind::read;
};

class MoodyBackend final : public ForwardingBackend {
   public:
    MoodyBackend(std::unique_ptr<aio::Backend> inner, const Moods& moods, std::uint64_t seed)
        : ForwardingBackend(std::move(inner)), moods_(moods), random_(seed) {}

    bool submit(aio::Attempt& attempt) override {
        if (held_.size() == depth()) return false;
        const std::uint64_t number = attempts_++;
        if (number == moods_.silent_from) resumes_ = std::chrono::steady_clock::time_point::max();
        if (!stopped() && static_cast<int>(random_() % 100) < moods_.stops_percent) resumes_ = now() + moods_.stop;
        if (attempt.kind == moods_.fails && of_kind_++ == moods_.fails_at) {
            attempt.result = -EIO;
            attempt.next = nullptr;
            failed_ = &attempt;
            return true;
        }
        if (!stopped() && held_.empty()) return inner_->submit(attempt);
        held_.push_back(&attempt);
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (failed_ != nullptr) return std::exchange(failed_, nullptr);
        while (!stopped() && !held_.empty() && inner_->submit(*held_.front())) held_.erase(held_.begin());
        const bool soon = !held_.empty() && resumes_ != std::chrono::steady_clock::time_point::max();
        return inner_->reap(soon ? std::min<std::chrono::nanoseconds>(timeout, moods_.stop) : timeout);
    }
    // What is held never reached the kernel.
    aio::Attempt* abandon() noexcept override {
        aio::Attempt* list = inner_->abandon();
        for (aio::Attempt* attempt : std::exchange(held_, {})) {
            attempt->result = -ECANCELED;
            attempt->next = std::exchange(list, attempt);
        }
        if (failed_ != nullptr) failed_->next = std::exchange(list, failed_);
        failed_ = nullptr;
        return list;
    }
    const char* name() const noexcept override { return "moody"; }

   private:
    bool stopped() const { return now() < resumes_; }

    Moods moods_;
    std::mt19937_64 random_;
    std::uint64_t attempts_ = 0;
    std::uint64_t of_kind_ = 0;       // of the kind that fails once
    aio::Attempt* failed_ = nullptr;  // until it is reaped
    std::chrono::steady_clock::time_point resumes_{};
    std::vector<aio::Attempt*> held_;  // in the order of submission
};

}  // namespace penstock::testing
