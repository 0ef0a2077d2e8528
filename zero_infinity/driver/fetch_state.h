// The life of one fetch, from when it is begun until nobody needs its memory any more.
//
//   for compute, in host memory    reading → done
//   … on a device                  reading → to_copy → copying → done
//   for an update                  reading → offered → updating → written_behind → done
//   … that compute reads then      reading → offered → updating → passing_on → written_behind → done
//   in place, on a device          copying_back → offered → …
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

// Its place is where compute reads it: in the window. On a device with memory of its own it has host memory besides,
// in the passage, unless the unit is resident there. It has both until it is done.
enum class FetchState : std::uint8_t {
    reading,       // from NVMe, to host memory
    copying_back,  // from its place on the device, to host memory
    to_copy,       // host memory has it; the copy to its place is next
    copying,       // from host memory to its place, for compute
    // From here on the weights are in host memory, for an update.
    offered,         // compute may take them; until then they may be given up
    updating,        // compute has them: they are written as its tiles are put back
    passing_on,      // updated, and copied to their place: compute reads them there
    written_behind,  // updated; the store still reads them
    done,            // nobody needs its memory
};
constexpr auto words_of(FetchState) noexcept {
    return std::array{Word{FetchState::reading, "reading"},
                      Word{FetchState::copying_back, "copying back"},
                      Word{FetchState::to_copy, "to copy"},
                      Word{FetchState::copying, "copying"},
                      Word{FetchState::offered, "offered"},
                      Word{FetchState::updating, "updating"},
                      Word{FetchState::passing_on, "passing on"},
                      Word{FetchState::written_behind, "written behind"},
                      Word{FetchState::done, "done"}};
}

constexpr bool for_update(FetchState state) noexcept {
    return state >= FetchState::offered;
}
// An operation that was begun is at its memory, by itself.
constexpr bool moves(FetchState state) noexcept {
    return state == FetchState::reading || state == FetchState::copying_back || state == FetchState::copying ||
           state == FetchState::passing_on;
}

constexpr bool may_follow(FetchState from, FetchState to) noexcept {
    switch (from) {
        case FetchState::reading:  // done: compute reads host memory, or the read has failed
            return to == FetchState::to_copy || to == FetchState::offered || to == FetchState::done;
        case FetchState::copying_back:
            return to == FetchState::offered || to == FetchState::done;
        case FetchState::to_copy:
            return to == FetchState::copying;
        case FetchState::copying:
            return to == FetchState::done;
        case FetchState::offered:
            return to == FetchState::updating || to == FetchState::done;
        case FetchState::updating:
            return to == FetchState::passing_on || to == FetchState::written_behind;
        case FetchState::passing_on:
            return to == FetchState::written_behind;
        case FetchState::written_behind:
            return to == FetchState::done;
        case FetchState::done:
            return false;
    }
    return false;
}

}  // namespace penstock::zero
