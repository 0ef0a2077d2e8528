#include "zero_infinity/plan/plan.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace penstock::zero {
namespace {

struct Fetches {
    std::vector<Fetch> all;
    std::vector<std::vector<std::uint32_t>> of_visit;
};

void check_visits(const std::vector<GroupSpec>& groups, const std::vector<Visit>& visits) {
    constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
    PENSTOCK_CHECK(visits.size() < never, "{} visits", visits.size());
    std::vector<std::uint32_t> seen_in(groups.size(), never);
    for (std::uint32_t visit = 0; visit < visits.size(); ++visit) {
        for (const std::uint32_t group : visits[visit].groups) {
            PENSTOCK_CHECK(group < groups.size(), "visit {} names group {} of {}", visit, group, groups.size());
            PENSTOCK_CHECK(seen_in[group] != visit, "visit {} names '{}' twice", visit, groups[group].name);
            seen_in[group] = visit;
        }
    }
}

// Lifetimes without places: a group that is held is kept when its next fetch could start by the time it would be
// dropped, that is when compute has come to last_visit + 1. Keeping it never holds more memory at any moment than
// fetching it again.
Fetches fetches_without_places(const std::vector<GroupSpec>& groups, const std::vector<Visit>& visits,
                               std::uint32_t depth) {
    constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    Fetches result;
    result.of_visit.resize(visits.size());
    std::vector<std::uint32_t> latest(groups.size(), none);
    for (std::uint32_t visit = 0; visit < visits.size(); ++visit) {
        const std::uint32_t allowed_from = visit > depth ? visit - depth : 0;
        for (const std::uint32_t group : visits[visit].groups) {
            if (groups[group].bytes == 0) continue;
            std::uint32_t& fetch = latest[group];
            if (fetch != none && allowed_from <= result.all[fetch].last_visit + 1) {
                result.all[fetch].last_visit = visit;
            } else {
                fetch = static_cast<std::uint32_t>(result.all.size());
                result.all.push_back({group, visit, visit, allowed_from, 0, groups[group].bytes});
            }
            result.of_visit[visit].push_back(fetch);
        }
    }
    return result;
}

// A fetch holds its place from the moment compute has come to allowed_from until it has left last_visit.
std::vector<Stay> stays(std::span<const Fetch> fetches) {
    std::vector<Stay> result;
    result.reserve(fetches.size());
    for (const Fetch& fetch : fetches) result.push_back({fetch.allowed_from, fetch.last_visit, fetch.bytes});
    return result;
}

std::string describe(const std::vector<GroupSpec>& groups, const Visit& visit) {
    std::string text;
    for (const std::uint32_t group : visit.groups) {
        if (groups[group].bytes == 0) continue;
        text += fmt::format("{}'{}' {} bytes", text.empty() ? "" : " + ", groups[group].name, groups[group].bytes);
    }
    return text;
}

std::uint64_t bytes_of(const std::vector<GroupSpec>& groups, const Visit& visit) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t group : visit.groups) bytes += groups[group].bytes;
    return bytes;
}

[[noreturn]] void throw_does_not_fit(const WeightSchedule& least, std::uint64_t window_bytes) {
    const auto visits = least.visits();
    const auto most = std::max_element(visits.begin(), visits.end(), [&](const Visit& a, const Visit& b) {
        return bytes_of(least.groups(), a) < bytes_of(least.groups(), b);
    });
    throw Error(
        ExitCode::does_not_fit,
        fmt::format(
            "The window for weights, {} bytes, is too small: visit {} ({}) needs most, and without any prefetch "
            "the pass needs {} bytes: {} bytes are missing. Give the weights more memory, or cut the largest "
            "unit into smaller ones.",
            window_bytes, most - visits.begin(), describe(least.groups(), *most), least.window_bytes(),
            least.window_bytes() - window_bytes));
}

}  // namespace

WeightSchedule::WeightSchedule(std::vector<GroupSpec> groups, std::vector<Visit> visits, std::uint32_t depth)
    : groups_(std::move(groups)), visits_(std::move(visits)), depth_(depth) {
    check_visits(groups_, visits_);
    Fetches fetches = fetches_without_places(groups_, visits_, depth_);
    fetches_ = std::move(fetches.all);
    fetches_of_ = std::move(fetches.of_visit);
    const Placement placement = place(stays(fetches_));
    for (std::size_t i = 0; i < fetches_.size(); ++i) fetches_[i].offset_bytes = placement.offsets_bytes[i];
    window_bytes_ = placement.window_bytes;
}

WeightSchedule WeightSchedule::fitting(std::vector<GroupSpec> groups, std::vector<Visit> visits, std::uint32_t depth,
                                       std::uint64_t window_bytes) {
    check_visits(groups, visits);
    // A depth beyond the number of visits changes nothing.
    for (auto tried = std::min(depth, static_cast<std::uint32_t>(visits.size())); tried > 0; --tried) {
        // The floor is cheap and rules out most depths; the window of a deeper schedule may by luck be the smaller
        // one, so every depth is tried.
        if (floor_bytes(stays(fetches_without_places(groups, visits, tried).all)) > window_bytes) continue;
        WeightSchedule schedule(groups, visits, tried);
        if (schedule.window_bytes() <= window_bytes) return schedule;
    }
    WeightSchedule schedule(std::move(groups), std::move(visits), 0);
    if (schedule.window_bytes() > window_bytes) throw_does_not_fit(schedule, window_bytes);
    return schedule;
}

std::uint64_t WeightSchedule::fetched_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const Fetch& fetch : fetches_) bytes += fetch.bytes;
    return bytes;
}

std::uint64_t WeightSchedule::retained_bytes() const noexcept {
    std::uint64_t bytes = 0;
    for (const Visit& visit : visits_) bytes += bytes_of(groups_, visit);
    return bytes - fetched_bytes();
}

WeightPlan::WeightPlan(const WeightSchedule& schedule) : schedule_(&schedule) {
    states_.resize(schedule.fetches().size(), FetchState::waiting);
    dropped_.reserve(schedule.groups().size());
}

void WeightPlan::begin() {
    for (std::uint32_t fetch = 0; fetch < states_.size(); ++fetch) {
        PENSTOCK_CHECK(states_[fetch] != FetchState::fetching, "fetch {} is under way", fetch);
        states_[fetch] = FetchState::waiting;
    }
    dropped_.clear();
    cursor_ = 0;
    next_fetch_ = 0;
}

// In order: allowed_from never decreases from one fetch to the next, so the first waiting one decides.
const Fetch* WeightPlan::next() {
    const auto fetches = schedule_->fetches();
    if (next_fetch_ == fetches.size() || fetches[next_fetch_].allowed_from > cursor_) return nullptr;
    states_[next_fetch_] = FetchState::fetching;
    return &fetches[next_fetch_++];
}

void WeightPlan::arrived(const Fetch& fetch) {
    const auto fetches = schedule_->fetches();
    const std::less_equal<const Fetch*> not_after;
    PENSTOCK_CHECK(not_after(fetches.data(), &fetch) && !not_after(fetches.data() + fetches.size(), &fetch),
                   "not a fetch of this plan's schedule");
    const auto index = static_cast<std::size_t>(&fetch - fetches.data());
    PENSTOCK_CHECK(states_[index] == FetchState::fetching, "fetch {} is in state {}", index,
                   static_cast<int>(states_[index]));
    states_[index] = FetchState::present;
}

bool WeightPlan::ready(std::uint32_t visit) const {
    const auto fetches = schedule_->fetches_of(visit);
    return std::all_of(fetches.begin(), fetches.end(),
                       [this](std::uint32_t fetch) { return states_[fetch] == FetchState::present; });
}

const Fetch& WeightSchedule::holder(std::uint32_t visit, std::uint32_t group) const {
    for (const std::uint32_t fetch : fetches_of(visit)) {
        if (fetches_[fetch].group == group) return fetches_[fetch];
    }
    PENSTOCK_CHECK(false, "no fetch serves group {} in visit {}", group, visit);
}

std::span<const std::uint32_t> WeightPlan::used(std::uint32_t visit) {
    PENSTOCK_CHECK(!finished(), "the pass has ended");
    PENSTOCK_CHECK(visit == cursor_, "visit {} while compute is at {}", visit, cursor_);
    PENSTOCK_CHECK(ready(visit), "visit {} was used before its weights arrived", visit);
    dropped_.clear();
    for (const std::uint32_t fetch : schedule_->fetches_of(visit)) {
        if (schedule_->fetches()[fetch].last_visit != visit) continue;
        states_[fetch] = FetchState::dropped;
        dropped_.push_back(fetch);
    }
    ++cursor_;
    return dropped_;
}

bool WeightPlan::finished() const noexcept {
    return cursor_ == schedule_->visits().size();
}

}  // namespace penstock::zero
