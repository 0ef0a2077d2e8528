// Why a run of several ranks ends, before it is at its end: one cause for all of them, said by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::zero {

struct EndCause {
    std::uint32_t by = 0;    // the rank that says it
    std::uint32_t rank = 0;  // the one that it happened to
    std::string host;        // of `rank`; empty: nobody knows
    std::string what;        // "storage: /nvme/run/weights: no space left"

    std::string words() const;  // "rank 1 (worker-2): storage: /nvme/run/weights: no space left"
    bool operator==(const EndCause&) const = default;
};

// Where the first one stands on the board of a run.
inline constexpr const char* end_cause_key = "cause";
// As it stands there: "BY RANK HOST", then what, which is cut where it is too long and has no line ends.
std::string board_text(const EndCause& cause);
// Of any text: one that nobody here has written is the cause by itself.
EndCause end_cause_of(std::string_view board_text);

struct EndedStep {
    std::uint64_t step = 0;       // that was under way; counts from 1
    std::uint64_t committed = 0;  // the newest one that will be found again; 0: none
};
// For the log of any rank: "rank 3: step 412 ended because of rank 1 (worker-2): storage: …; the last committed step is
// 411".
std::string ended_line(std::uint32_t rank, const EndedStep& at, const EndCause& cause);

}  // namespace penstock::zero
