// Which visits compute is expected to make: what the client said, or what it did in its last pass of that kind. Pure.
//
// Most models visit their units in the same order in every pass, so the second pass is prefetched exactly whoever wrote
// the model. Where a pass goes another way, the expectation is taken up again at the next visit that fits: layers that
// are skipped, visits put in between, and a pass over some units again (a token more) cost no more than themselves.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/order/window_plan.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

enum class Pass : std::uint8_t { training, inference };
constexpr auto words_of(Pass) noexcept {
    return std::array{Word{Pass::training, "training"}, Word{Pass::inference, "inference"}};
}

// What came of the expectations, in visits.
struct OrderCounts {
    std::uint64_t visits = 0;
    std::uint64_t expected = 0;  // were the next ones
};

class VisitOrder {
   public:
    // The visits of the next passes of that kind; within a pass of that kind, what this one makes from here on.
    void expect(Pass pass, std::vector<Visit> visits);
    void begin(Pass pass);
    void visit(const Visit& visit);  // compute goes there
    void take_back();                // it did not: the last visit was not made. REQUIRES: visit() was the last call
    // What was made is what the next pass of this kind is expected to make; where a pass ended early, on its way
    // through what was expected of it, also the rest of that.
    void end();

    std::span<const Visit> made() const noexcept { return made_; }  // in this pass so far
    std::span<const Visit> expected(Pass pass) const noexcept { return expected_[index(pass)]; }
    std::span<const Visit> ahead() const noexcept;  // the visits after the last one; valid until the next call
    const OrderCounts& counts() const noexcept { return counts_; }

   private:
    static std::size_t index(Pass pass) noexcept { return pass == Pass::training ? 0 : 1; }
    bool is_at(std::size_t place, const Visit& visit) const noexcept;

    std::array<std::vector<Visit>, 2> expected_;
    std::vector<Visit> current_;  // expected of this pass
    std::vector<Visit> made_;     // in this pass
    struct Place {
        std::size_t next = 0;  // of current_
        // Where the last visit was not the next one, but is met elsewhere: what was next before. The visit after it
        // tells whether the pass goes on from there, or one was put in between.
        std::optional<std::size_t> before;
        bool as_expected = false;  // the last visit
    };
    Place place_;
    Place last_place_;  // before the last visit
    bool within_ = false;
    Pass pass_ = Pass::training;
    OrderCounts counts_;
};

}  // namespace penstock::zero
