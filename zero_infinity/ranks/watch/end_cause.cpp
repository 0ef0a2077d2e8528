#include "zero_infinity/ranks/watch/end_cause.h"

#include "zero_infinity/ranks/board.h"
#include "zero_infinity/ranks/watch/board_line.h"

#include <fmt/format.h>

#include <charconv>

namespace penstock::zero {
namespace {

constexpr std::size_t most_host_bytes = 200, most_numbers_bytes = 24;

// Takes a number and the space behind it off the front.
bool take_number(std::string_view& text, std::uint32_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const auto taken = static_cast<std::size_t>(end - text.data());
    if (error != std::errc() || taken == text.size() || *end != ' ') return false;
    text.remove_prefix(taken + 1);
    return true;
}

}  // namespace

std::string EndCause::words() const {
    return host.empty() ? fmt::format("rank {}: {}", rank, what) : fmt::format("rank {} ({}): {}", rank, host, what);
}

std::string board_text(const EndCause& cause) {
    return fmt::format("{} {} {}\n{}", cause.by, cause.rank, board_line(cause.host, most_host_bytes),
                       board_line(cause.what, Board::most_value_bytes - most_host_bytes - most_numbers_bytes));
}

EndCause end_cause_of(std::string_view board_text) {
    EndCause cause;
    std::string_view rest = board_text;
    const std::size_t line = board_text.find('\n');
    if (line == std::string_view::npos || !take_number(rest, cause.by) || !take_number(rest, cause.rank))
        return {.by = 0, .rank = 0, .host = "", .what = std::string(board_text)};
    cause.host = rest.substr(0, rest.find('\n'));
    cause.what = board_text.substr(line + 1);
    return cause;
}

std::string ended_line(std::uint32_t rank, const EndedStep& at, const EndCause& cause) {
    const std::string committed =
        at.committed > 0 ? fmt::format("the last committed step is {}", at.committed) : "no step is committed";
    const std::string why = cause.rank != rank ? "because of " + cause.words()
                            : cause.by == rank
                                ? "by " + cause.what
                                : fmt::format("because rank {} says of this one: {}", cause.by, cause.what);
    return fmt::format("rank {}: step {} ended {}; {}", rank, at.step, why, committed);
}

}  // namespace penstock::zero
