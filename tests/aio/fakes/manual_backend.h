// A backend without a kernel: the test sees every attempt and says when and how it ends. Its time is virtual: it stands
// still but for `advance` and for a reap that has nothing to return, which takes its whole timeout.
#pragma once

#include "aio/backend.h"
#include "aio/words/check.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::aio {

class ManualBackend final : public Backend {
   public:
    explicit ManualBackend(std::size_t depth) : depth_(depth) {}
    ~ManualBackend() override { PENSTOCK_CHECK(in_flight.empty(), "{} attempts are in flight", in_flight.size()); }

    std::vector<Attempt*> in_flight;  // in the order of submission
    int reaps = 0;
    std::size_t held_back = 0;  // submitted since the last reap: no kernel has seen them

    void complete(Attempt* attempt, std::int32_t result) {
        in_flight.erase(std::find(in_flight.begin(), in_flight.end(), attempt));
        finish(*attempt, result);
    }
    void complete_first(std::int32_t result) { complete(in_flight.front(), result); }
    void complete_all() {
        while (!in_flight.empty()) complete_first(static_cast<std::int32_t>(in_flight.front()->bytes));
    }
    std::optional<std::uint64_t> written;  // sectors, by the device: none is counted
    // When set, whatever is in flight ends in full at the next reap.
    bool automatic = false;
    // What abandon() finds in flight: the kernel has it, or, when false, never began it and gives it back.
    bool begun = true;

    void advance(std::chrono::nanoseconds time) { now_ += time; }

    std::optional<std::uint64_t> sectors_written(std::uint64_t) const noexcept override { return written; }
    bool submit(Attempt& attempt) override {
        if (in_flight.size() == depth_) return false;
        in_flight.push_back(&attempt);
        ++held_back;
        return true;
    }
    Attempt* reap(std::chrono::nanoseconds timeout) override {
        ++reaps;
        held_back = 0;
        if (automatic) complete_all();
        if (finished_ == nullptr && !std::exchange(woken_, false)) advance(timeout);
        return std::exchange(finished_, nullptr);
    }
    void wake() noexcept override { woken_ = true; }
    Attempt* abandon() noexcept override {
        Attempt* list = nullptr;
        while (!begun && !in_flight.empty()) {
            Attempt* attempt = in_flight.back();
            in_flight.pop_back();
            attempt->result = -ECANCELED;
            attempt->next = std::exchange(list, attempt);
        }
        return list;
    }
    std::chrono::steady_clock::time_point now() const noexcept override { return now_; }
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return "manual"; }

   private:
    void finish(Attempt& attempt, std::int32_t result) {
        attempt.result = result;
        attempt.next = finished_;
        finished_ = &attempt;
    }

    std::size_t depth_;
    Attempt* finished_ = nullptr;
    bool woken_ = false;
    std::chrono::steady_clock::time_point now_{std::chrono::hours(1)};
};

}  // namespace penstock::aio
