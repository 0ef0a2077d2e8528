// A backend without a kernel: the test sees every attempt and says when and how it ends.
#pragma once

#include "aio/backend.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock {

class ManualBackend final : public Backend {
   public:
    explicit ManualBackend(std::size_t depth) : depth_(depth) {}

    std::vector<Attempt*> in_flight;  // in the order of submission
    int reaps = 0;

    void complete(Attempt* attempt, std::int32_t result) {
        in_flight.erase(std::find(in_flight.begin(), in_flight.end(), attempt));
        attempt->result = result;
        attempt->next = finished_;
        finished_ = attempt;
    }
    void complete_first(std::int32_t result) { complete(in_flight.front(), result); }
    void complete_all() {
        while (!in_flight.empty()) complete_first(static_cast<std::int32_t>(in_flight.front()->bytes));
    }
    // When set, whatever is in flight ends in full at the next reap.
    bool automatic = false;

    bool submit(Attempt& attempt) override {
        if (in_flight.size() == depth_) return false;
        in_flight.push_back(&attempt);
        return true;
    }
    Attempt* reap(std::chrono::nanoseconds /*timeout*/) override {
        ++reaps;
        if (automatic) complete_all();
        return std::exchange(finished_, nullptr);
    }
    void wake() noexcept override {}
    std::size_t depth() const noexcept override { return depth_; }
    const char* name() const noexcept override { return "manual"; }

   private:
    std::size_t depth_;
    Attempt* finished_ = nullptr;
};

}  // namespace penstock
