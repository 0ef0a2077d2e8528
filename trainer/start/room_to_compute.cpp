#include "trainer/start/room_to_compute.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "trainer/cli/memory_limits.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace penstock::trainer {
namespace {

// Kernels that oneDNN makes, their scratch memory, torch's own: a step of the smallest model was seen to take 24.
constexpr std::uint64_t libraries_bytes = 40ULL << 20;

// Empty: there is none.
std::string limits() {
    std::string text;
    for (const MemoryLimit& limit : memory_limits())
        text += fmt::format("{}the limit on {}, {}", text.empty() ? "" : ", or ", limit.name, bytes_text(limit.bytes));
    return text;
}

bool is_there(std::uint64_t bytes) {
    void* const room =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return errno != ENOMEM;
    ::munmap(room, bytes);
    return true;
}

}  // namespace

void check_room_to_compute(std::uint64_t activation_bytes) {
    const std::string bounded = limits();
    const std::uint64_t needed = libraries_bytes + activation_bytes;
    if (bounded.empty() || is_there(needed)) return;
    throw Error(ExitCode::out_of_memory,
                fmt::format("compute needs {} beside memory.host_budget, and the process finds no such room: raise {}",
                            bytes_text(needed), bounded));
}

}  // namespace penstock::trainer
