#include "zero_infinity/order/window_plan.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "pinned_pool/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace penstock::zero {
namespace {

constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

bool is_among(std::span<const std::uint32_t> units, std::uint32_t unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
}

std::string names_of(const std::vector<UnitBytes>& units, std::span<const std::uint32_t> named) {
    std::string text;
    for (const std::uint32_t unit : named) {
        if (units[unit].bytes == 0) continue;
        text += fmt::format("{}'{}' {} bytes", text.empty() ? "" : " + ", units[unit].name, units[unit].bytes);
    }
    return text;
}

// Bytes of all units that the visits name, each once.
std::uint64_t bytes_together(const std::vector<UnitBytes>& units, std::span<const Visit> visits) {
    std::vector<bool> counted(units.size());
    std::uint64_t bytes = 0;
    for (const Visit& visit : visits)
        for (const std::uint32_t unit : visit.units) {
            if (!counted[unit]) bytes += pool::whole_granules(units[unit].bytes);
            counted[unit] = true;
        }
    return bytes;
}

}  // namespace

// Room for a fetch: from `offset_bytes`, when content_[first, last) is given up.
struct WindowPlan::Gap {
    std::size_t first = 0;
    std::size_t last = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t space_bytes = 0;
    std::uint64_t next_use = never;  // of what is given up, the nearest
    std::uint64_t given_up_bytes = 0;

    // What is used last goes first; then what costs least; then the tightest place.
    bool better_than(const Gap& other) const noexcept {
        if (next_use != other.next_use) return next_use > other.next_use;
        if (given_up_bytes != other.given_up_bytes) return given_up_bytes < other.given_up_bytes;
        return space_bytes < other.space_bytes;
    }
};

WindowPlan::WindowPlan(std::vector<UnitBytes> units, std::uint64_t window_bytes, std::uint32_t depth)
    : units_(std::move(units)), window_bytes_(window_bytes), depth_(depth) {
    PENSTOCK_CHECK(window_bytes % pool::granule_bytes == 0, "a window of {} bytes", window_bytes);
    content_.reserve(units_.size());
    fetches_.reserve(units_.size());
}

std::span<const Fetch> WindowPlan::visit(const Visit& visit, std::span<const Visit> ahead,
                                         std::span<const std::uint32_t> held) {
    for (const std::uint32_t unit : visit.units) {
        PENSTOCK_CHECK(unit < units_.size(), "unit {} of {}", unit, units_.size());
        PENSTOCK_CHECK(std::count(visit.units.begin(), visit.units.end(), unit) == 1, "'{}' twice in a visit",
                       units_[unit].name);
    }
    for (const std::uint32_t unit : held)
        PENSTOCK_CHECK(is_among(visit.units, unit) && (has(unit) || units_[unit].bytes == 0),
                       "unit {} is held, but not visited or not there", unit);
    fetches_.clear();
    const auto before = content_;
    set_next_uses(visit, ahead);
    if (!fetch_awaited(visit, held)) {
        content_ = before;
        throw Error(ExitCode::does_not_fit,
                    fmt::format("The window for weights, {} bytes, has no room for {}{}. Give the weights more memory, "
                                "or keep them in host memory",
                                window_bytes_, names_of(units_, visit.units),
                                held.empty() ? "" : fmt::format(" where {} stay in place", names_of(units_, held))));
    }
    for (std::size_t distance = 0; distance < std::min<std::size_t>(depth_, ahead.size()); ++distance) {
        const auto& wanted = ahead[distance].units;
        // One that finds no room holds back those behind it: they would take what it waits for.
        if (!std::all_of(wanted.begin(), wanted.end(), [&](std::uint32_t unit) { return fetch(unit, distance + 1); }))
            break;
    }
    return fetches_;
}

void WindowPlan::end_visit() {
    for (Held& held : content_) held.next_use = never;
}

void WindowPlan::forget() {
    for (const Held& held : content_) PENSTOCK_CHECK(held.next_use != 0, "'{}' is in use", units_[held.unit].name);
    content_.clear();
}

void WindowPlan::forget(std::uint32_t unit) {
    std::erase_if(content_, [&](const Held& held) { return held.unit == unit; });
}

std::optional<WindowPlan::Place> WindowPlan::place(std::uint32_t unit) const {
    for (const Held& held : content_)
        if (held.unit == unit) return Place{held.offset_bytes, held.fetch};
    return std::nullopt;
}

bool WindowPlan::has(std::uint32_t unit) const noexcept {
    return std::any_of(content_.begin(), content_.end(), [&](const Held& held) { return held.unit == unit; });
}

void WindowPlan::set_next_uses(const Visit& visit, std::span<const Visit> ahead) {
    std::vector<std::uint64_t> next(units_.size(), never);
    for (std::size_t index = ahead.size(); index-- > 0;)
        for (const std::uint32_t unit : ahead[index].units) next[unit] = index + 1;
    for (const std::uint32_t unit : visit.units) next[unit] = 0;
    for (Held& held : content_) held.next_use = next[held.unit];
}

// Runs of free space and of units that are used later than `needed_in` visits from now.
std::optional<WindowPlan::Gap> WindowPlan::cheapest_gap(std::uint64_t bytes, std::uint64_t needed_in) const {
    std::optional<Gap> best;
    for (std::size_t first = 0; first <= content_.size(); ++first) {
        Gap gap{.first = first, .last = first};
        gap.offset_bytes = first == 0 ? 0 : content_[first - 1].offset_bytes + content_[first - 1].bytes;
        const auto space = [&] {
            return (gap.last == content_.size() ? window_bytes_ : content_[gap.last].offset_bytes) - gap.offset_bytes;
        };
        while (space() < bytes && gap.last < content_.size() && content_[gap.last].next_use > needed_in) {
            gap.next_use = std::min(gap.next_use, content_[gap.last].next_use);
            gap.given_up_bytes += content_[gap.last].bytes;
            ++gap.last;
        }
        gap.space_bytes = space();
        if (gap.space_bytes >= bytes && (!best || gap.better_than(*best))) best = gap;
    }
    return best;
}

// False: there is no room for it yet.
bool WindowPlan::fetch(std::uint32_t unit, std::uint64_t needed_in) {
    if (units_[unit].bytes == 0 || has(unit)) return true;
    const std::uint64_t bytes = pool::whole_granules(units_[unit].bytes);
    const std::optional<Gap> gap = cheapest_gap(bytes, needed_in);
    if (!gap) return false;
    const auto at = content_.erase(content_.begin() + static_cast<std::ptrdiff_t>(gap->first),
                                   content_.begin() + static_cast<std::ptrdiff_t>(gap->last));
    content_.insert(at, {unit, gap->offset_bytes, bytes, ++last_number_, needed_in});
    fetched_bytes_ += units_[unit].read_bytes;
    fetches_.push_back({last_number_, unit, gap->offset_bytes, units_[unit].bytes, needed_in == 0});
    return true;
}

// Largest first. Where that finds no room, with nothing in the window but what is held: others, the visit's own too,
// may lie in the way.
bool WindowPlan::fetch_awaited(const Visit& visit, std::span<const std::uint32_t> held) {
    std::vector<std::uint32_t> wanted = visit.units;
    std::stable_sort(wanted.begin(), wanted.end(),
                     [&](std::uint32_t left, std::uint32_t right) { return units_[left].bytes > units_[right].bytes; });
    const auto fetch_all = [&] {
        return std::all_of(wanted.begin(), wanted.end(), [&](std::uint32_t unit) { return fetch(unit, 0); });
    };
    const auto before = std::tuple(content_, last_number_, fetched_bytes_);
    const auto go_back = [&] {
        std::tie(content_, last_number_, fetched_bytes_) = before;
        fetches_.clear();
    };
    if (fetch_all()) return true;
    go_back();
    std::erase_if(content_, [&](const Held& each) { return !is_among(held, each.unit); });
    if (fetch_all()) return true;
    go_back();
    return false;
}

namespace {

// Makes all visits; false when one, or what is to be fetched ahead of it, finds no room.
bool all_find_room(WindowPlan& plan, std::span<const Visit> visits) {
    const auto there = [&](std::uint32_t unit) { return plan.units()[unit].bytes == 0 || plan.place(unit); };
    for (std::size_t index = 0; index < visits.size(); ++index) {
        const std::span<const Visit> ahead = visits.subspan(index + 1);
        plan.visit(visits[index], ahead);
        for (const Visit& wanted : ahead.first(std::min<std::size_t>(plan.depth(), ahead.size())))
            if (!std::all_of(wanted.units.begin(), wanted.units.end(), there)) return false;
    }
    return true;
}

// The most bytes that a visit and the `depth` visits after it need at once.
std::uint64_t floor_bytes(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes,
                          std::uint32_t depth) {
    std::uint64_t floor = 0;
    for (const std::span<const Visit> visits : passes) {
        for (std::size_t index = 0; index < visits.size(); ++index) {
            const std::size_t reach = std::min<std::size_t>(std::size_t{depth} + 1, visits.size() - index);
            floor = std::max(floor, bytes_together(units, visits.subspan(index, reach)));
        }
    }
    return floor;
}

[[noreturn]] void refuse(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes,
                         std::uint64_t least_bytes, std::uint64_t window_bytes) {
    const Visit* most = nullptr;
    std::size_t place = 0;
    const auto bytes = [&](const Visit& visit) { return bytes_together(units, {&visit, 1}); };
    for (const PassVisits& visits : passes)
        for (std::size_t index = 0; index < visits.size(); ++index)
            if (most == nullptr || bytes(visits[index]) > bytes(*most)) most = &visits[place = index];
    throw Error(
        ExitCode::does_not_fit,
        fmt::format("The window for weights, {} bytes, is too small: visit {} ({}) needs most, and without any "
                    "prefetch the pass needs {} bytes: {} bytes are missing. Give the weights more memory, or "
                    "cut the largest unit into smaller ones.",
                    window_bytes, place, names_of(units, most->units), least_bytes, least_bytes - window_bytes));
}

std::uint64_t bytes_of_all(const std::vector<UnitBytes>& units) {
    std::uint64_t bytes = 0;
    for (const UnitBytes& unit : units) bytes += pool::whole_granules(unit.bytes);
    return bytes;
}

// Nothing when a visit, or what is to be fetched ahead of it, finds no room.
std::optional<WindowUse> use_of(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes,
                                std::uint32_t depth, std::uint64_t window_bytes) {
    WindowUse use{.window_bytes = window_bytes, .depth = depth};
    for (const PassVisits& visits : passes) {
        WindowPlan plan(units, window_bytes, depth);
        plan.visit({}, visits);
        if (!all_find_room(plan, visits)) return std::nullopt;
        if (&visits != passes.data()) continue;
        use.fetched_bytes = plan.fetched_bytes();
        plan.end_visit();
        plan.visit({}, visits);
        static_cast<void>(all_find_room(plan, visits));
        use.again_bytes = plan.fetched_bytes() - use.fetched_bytes;
    }
    return use;
}

// In steps of a 32nd: a window for all units at once always does. Beyond the limit whatever comes next.
WindowUse least_window_within(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes,
                              std::uint32_t depth, std::uint64_t limit_bytes) {
    const std::uint64_t floor = floor_bytes(units, passes, depth);
    const std::uint64_t most = bytes_of_all(units);
    const std::uint64_t step = std::max<std::uint64_t>(pool::granule_bytes, pool::whole_granules(floor / 32));
    for (std::uint64_t bytes = floor;; bytes = std::min(most, bytes + step)) {
        if (bytes > limit_bytes) return {.window_bytes = bytes, .depth = depth};
        if (const auto use = use_of(units, passes, depth, bytes)) return *use;
        PENSTOCK_CHECK(bytes < most, "{} bytes are not enough for all units at once", bytes);
    }
}

}  // namespace

WindowUse least_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, std::uint32_t depth) {
    return least_window_within(units, passes, depth, std::numeric_limits<std::uint64_t>::max());
}

WindowUse fitting_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, std::uint32_t depth,
                         std::uint64_t window_bytes) {
    // A depth beyond the number of visits changes nothing, and the floor grows with the depth.
    std::size_t longest = 0;
    for (const PassVisits& visits : passes) longest = std::max(longest, visits.size());
    std::uint32_t shallow = 0;
    std::uint32_t deep = std::min(depth, static_cast<std::uint32_t>(longest));
    while (shallow < deep) {
        const std::uint32_t middle = shallow + (deep - shallow + 1) / 2;
        if (floor_bytes(units, passes, middle) <= window_bytes)
            shallow = middle;
        else
            deep = middle - 1;
    }
    for (std::uint32_t tried = shallow; tried > 0; --tried)
        if (const WindowUse use = least_window_within(units, passes, tried, window_bytes);
            use.window_bytes <= window_bytes)
            return use;
    const WindowUse least = least_window(units, passes, 0);
    if (least.window_bytes > window_bytes) refuse(units, passes, least.window_bytes, window_bytes);
    return least;
}

WindowUse widened_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, const WindowUse& use,
                         std::uint64_t window_bytes) {
    const std::uint64_t granules = window_bytes / pool::granule_bytes * pool::granule_bytes;
    const std::uint64_t wide = std::min(bytes_of_all(units), granules);
    return wide <= use.window_bytes ? use : use_of(units, passes, use.depth, wide).value_or(use);
}

}  // namespace penstock::zero
