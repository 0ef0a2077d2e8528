// Attempts in a row, first in, first out, linked through Attempt::next.
#pragma once

#include "aio/backend.h"

#include <utility>

namespace penstock::aio {

// A backend's, and on the backend's thread or under its lock. Owns nothing, allocates nothing.
class AttemptList {
   public:
    bool empty() const noexcept { return head_ == nullptr; }
    void push(Attempt& attempt) noexcept {
        attempt.next = nullptr;
        (head_ == nullptr ? head_ : tail_->next) = &attempt;
        tail_ = &attempt;
    }
    // Same, of one that has ended.
    void push(Attempt& attempt, std::int32_t result) noexcept {
        attempt.result = result;
        push(attempt);
    }
    Attempt& pop() noexcept {  // REQUIRES: not empty
        Attempt& attempt = *head_;
        head_ = std::exchange(attempt.next, nullptr);
        return attempt;
    }
    // The first, with all others behind it (null when there is none); what Backend::reap() returns. Leaves it empty.
    Attempt* take_all() noexcept { return std::exchange(head_, nullptr); }

   private:
    Attempt* head_ = nullptr;
    Attempt* tail_ = nullptr;  // meaningless when empty
};

}  // namespace penstock::aio
