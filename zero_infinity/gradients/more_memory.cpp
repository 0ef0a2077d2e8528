#include "zero_infinity/gradients/more_memory.h"

#include "aio/words/error.h"
#include "pinned_pool/budget.h"

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>

namespace penstock::zero {
namespace {

std::string megabytes(std::uint64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void MoreMemory::Unmap::operator()(std::byte* first) const noexcept {
    ::munmap(first, bytes);
}

std::byte* MoreMemory::take(std::uint64_t bytes, std::string_view unit) {
    const pool::MachineMemory machine = pool::MachineMemory::read();
    const std::uint64_t left = limit_.bytes - taken_;
    void* const memory = bytes > std::min(left, machine.available_bytes)
                             ? MAP_FAILED
                             : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        throw Error(
            ExitCode::does_not_fit,
            fmt::format("the gradients of unit '{}' are to be whole beside those of the two units that "
                        "run.sum_order \"ranks_first\" has memory for, because they are read, or come in several "
                        "places of a backward: that takes {}, and there is {}; {}leave the gradients unread, or say "
                        "run.sum_order \"passes_first\", which has planned memory for those of all units",
                        unit, megabytes(bytes), megabytes(std::min(left, machine.available_bytes)),
                        left < machine.available_bytes ? fmt::format("raise {}, or ", limit_.budget) : ""));
    parts_.push_back({static_cast<std::byte*>(memory), Unmap{bytes}});
    taken_ += bytes;
    return parts_.back().get();
}

void MoreMemory::orphan() noexcept {
    for (auto& part : parts_) static_cast<void>(part.release());
}

}  // namespace penstock::zero
