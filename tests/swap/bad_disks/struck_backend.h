// A backend whose every attempt may be struck: answered without the device, held for a while, or held until the test
// lets it go. Over a backend in virtual time (tests/aio/fakes/repeatable_backend.h), so that a slow device costs none.
#pragma once

#include "tests/aio/fakes/forwarding_backend.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace penstock::testing {

class StruckBackend final : public ForwardingBackend {
   public:
    struct Strike {
        std::optional<std::int32_t> result;  // answered so
        std::chrono::nanoseconds delay{0};   // else begun that much later; `forever`: when it is let go
    };
    static constexpr std::chrono::nanoseconds forever = std::chrono::nanoseconds::max();
    // Nothing: the attempt goes its way.
    using Decide = std::function<std::optional<Strike>(aio::Attempt&)>;

    using ForwardingBackend::ForwardingBackend;

    // From the next attempt on; empty: a sound device.
    void strike_by(Decide decide) { decide_ = std::move(decide); }
    void let_go() {
        for (Held& held : held_) held.due = now();
    }

    bool submit(aio::Attempt& attempt) override {
        const std::optional<Strike> strike = decide_ ? decide_(attempt) : std::nullopt;
        if (!strike) return inner_->submit(attempt);
        if (strike->result) {
            attempt.result = *strike->result;
            answered_.push_back(&attempt);
        } else {
            held_.push_back({&attempt, strike->delay == forever ? never : now() + strike->delay});
        }
        return true;
    }
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override {
        for (const Held& held : held_) {
            if (held.due <= now())
                inner_->submit(*held.attempt);
            else if (held.due != never)
                timeout = std::min(timeout, held.due - now());
        }
        std::erase_if(held_, [time = now()](const Held& held) { return held.due <= time; });
        aio::Attempt* list = inner_->reap(answered_.empty() ? timeout : std::chrono::nanoseconds(0));
        for (aio::Attempt* attempt : std::exchange(answered_, {})) attempt->next = std::exchange(list, attempt);
        return list;
    }
    aio::Attempt* abandon() noexcept override {
        aio::Attempt* list = inner_->abandon();
        for (const Held& held : std::exchange(held_, {})) {
            held.attempt->result = -ECANCELED;
            held.attempt->next = std::exchange(list, held.attempt);
        }
        return list;
    }
    const char* name() const noexcept override { return "struck"; }

   private:
    static constexpr auto never = std::chrono::steady_clock::time_point::max();
    struct Held {
        aio::Attempt* attempt;
        std::chrono::steady_clock::time_point due;
    };

    Decide decide_;
    std::vector<aio::Attempt*> answered_;
    std::vector<Held> held_;
};

}  // namespace penstock::testing
