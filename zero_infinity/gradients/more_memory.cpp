#include "zero_infinity/gradients/more_memory.h"

#include "aio/words/error.h"
#include "pinned_pool/budget.h"
#include "zero_infinity/plan/ranks/node_room.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::zero {

std::byte* MoreMemory::take(std::uint64_t bytes, std::string_view unit) {
    const pool::MachineMemory machine = pool::MachineMemory::read();
    const std::uint64_t left = limit_.bytes - taken_;
    const std::uint64_t room = std::min(left, machine.available_bytes);
    if (bytes > room)
        throw Error(
            ExitCode::does_not_fit,
            fmt::format("the gradients of unit '{}' are to be whole beside those of the two units that "
                        "run.sum_order \"ranks_first\" has memory for, because they are read, or come in several "
                        "places of a backward: that takes {}, and there is {}; {}leave the gradients unread, or say "
                        "run.sum_order \"passes_first\", which has planned memory for those of all units",
                        unit, memory_text(bytes), memory_text(room),
                        left < machine.available_bytes ? fmt::format("raise {}, or ", limit_.budget) : ""));
    taken_ += bytes;
    return parts_.emplace_back(bytes, 1, pool::Registration::none).data();
}

void MoreMemory::orphan() noexcept {
    for (pool::Region& part : parts_) part.orphan();
}

}  // namespace penstock::zero
