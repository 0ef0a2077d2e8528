#include "zero_infinity/order/visit_order.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

void VisitOrder::expect(Pass pass, std::vector<Visit> visits) {
    if (!within_ || pass != pass_) {
        expected_[index(pass)] = std::move(visits);
        return;
    }
    current_ = std::move(visits);
    place_ = {};
}

void VisitOrder::begin(Pass pass) {
    end();
    pass_ = pass;
    current_ = std::move(expected_[index(pass)]);
    made_.clear();
    place_ = {};
    within_ = true;
}

bool VisitOrder::is_at(std::size_t place, const Visit& visit) const noexcept {
    return place < current_.size() && current_[place] == visit;
}

void VisitOrder::visit(const Visit& visit) {
    made_.push_back(visit);
    ++counts_.visits;
    last_place_ = place_;
    if (is_at(place_.next, visit)) {
        ++counts_.expected;
        place_ = {place_.next + 1, std::nullopt, true};
        return;
    }
    place_.as_expected = false;
    const std::size_t before = place_.before.value_or(place_.next);
    if (is_at(before, visit)) {  // the last visit was put in between
        place_ = {before + 1, std::nullopt, false};
        return;
    }
    const auto from = current_.begin() + static_cast<std::ptrdiff_t>(std::min(before, current_.size()));
    auto found = std::find(from, current_.end(), visit);
    if (found == current_.end()) {
        found = std::find(current_.begin(), from, visit);
        if (found == from) return;  // what was expected may still come
    }
    place_ = {static_cast<std::size_t>(found - current_.begin()) + 1, before, false};
}

void VisitOrder::take_back() {
    counts_.expected -= place_.as_expected ? 1 : 0;
    --counts_.visits;
    made_.pop_back();
    place_ = last_place_;
}

void VisitOrder::end() {
    if (!within_) return;
    within_ = false;
    std::vector<Visit>& next = expected_[index(pass_)];
    if (made_.empty()) {
        next = std::move(current_);
        return;
    }
    next = std::exchange(made_, {});
    if (!place_.as_expected) return;
    next.insert(next.end(), current_.begin() + static_cast<std::ptrdiff_t>(place_.next), current_.end());
}

std::span<const Visit> VisitOrder::ahead() const noexcept {
    return within_ ? std::span<const Visit>(current_).subspan(place_.next) : std::span<const Visit>();
}

}  // namespace penstock::zero
