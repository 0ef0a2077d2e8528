#include "pinned_pool/budget.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace penstock::pool {

namespace {

// "16.0 MiB (16777216 bytes)": one to read, one to reckon with.
std::string amount(std::uint64_t bytes) {
    constexpr double unit = 1024.0;
    const auto value = static_cast<double>(bytes);
    if (bytes >= 1ULL << 30) return fmt::format("{:.2f} GiB ({} bytes)", value / (unit * unit * unit), bytes);
    if (bytes >= 1ULL << 20) return fmt::format("{:.1f} MiB ({} bytes)", value / (unit * unit), bytes);
    return fmt::format("{} bytes", bytes);
}

}  // namespace

void Budget::add(Use use) {
    PENSTOCK_CHECK(!use.name.empty(), "a use of {} bytes has no name", use.bytes);
    for (const Use& other : uses_) PENSTOCK_CHECK(other.name != use.name, "the use {} is there already", use.name);
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    PENSTOCK_CHECK(use.bytes <= most - granule_bytes && used_bytes() <= most - granule_bytes - use.bytes,
                   "the use {} of {} bytes exceeds what can be counted", use.name, use.bytes);
    use.bytes = whole_granules(use.bytes);
    uses_.push_back(std::move(use));
}

std::uint64_t Budget::used_bytes() const noexcept {
    std::uint64_t total = 0;
    for (const Use& use : uses_) total += use.bytes;
    return total;
}

void Budget::check(const MachineMemory& machine) const {
    const std::uint64_t used = used_bytes();
    const std::string lower = settings_to_lower();
    if (used > limit_bytes_) {
        throw Error(ExitCode::does_not_fit,
                    fmt::format("The memory budget does not fit: {} missing under {}.\n{}\nRaise {}{}{}.",
                                amount(used - limit_bytes_), setting_, table(), setting_,
                                lower.empty() ? "" : " or lower: ", lower));
    }
    if (used > machine.available_bytes) {
        throw Error(
            ExitCode::does_not_fit,
            fmt::format("The memory budget does not fit into this machine: it can give {} ({}), {} missing.\n{}\n"
                        "Free or allow more memory{}{}.",
                        amount(machine.available_bytes), machine.limited_by, amount(used - machine.available_bytes),
                        table(), lower.empty() ? "" : ", or lower: ", lower));
    }
}

// There is most to gain.
std::string Budget::settings_to_lower() const {
    std::vector<Use> uses = uses_;
    std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.bytes > b.bytes; });
    std::string text;
    for (const Use& use : uses) {
        if (use.setting.empty() || use.bytes == 0) continue;
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", use.setting, use.name);
    }
    return text;
}

std::string Budget::table() const {
    std::size_t width = std::string_view("limit").size();
    for (const Use& use : uses_) width = std::max(width, use.name.size());
    std::string text;
    for (const Use& use : uses_) {
        fmt::format_to(std::back_inserter(text), "  {:<{}}  {}{}{}\n", use.name, width, amount(use.bytes),
                       use.setting.empty() ? "" : "  ", use.setting);
    }
    fmt::format_to(std::back_inserter(text), "  {:<{}}  {}\n", "total", width, amount(used_bytes()));
    fmt::format_to(std::back_inserter(text), "  {:<{}}  {}  {}", "limit", width, amount(limit_bytes_), setting_);
    return text;
}

}  // namespace penstock::pool
