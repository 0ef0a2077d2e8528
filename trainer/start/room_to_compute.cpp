#include "trainer/start/room_to_compute.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <utility>

namespace penstock::trainer {
namespace {

// Kernels that oneDNN makes, their scratch memory, torch's own: a step of the smallest model was seen to take 24.
constexpr std::uint64_t libraries_bytes = 40ULL << 20;

// Empty: there is none.
std::string limits() {
    std::string text;
    for (const auto& [resource, name] :
         {std::pair(RLIMIT_DATA, "data segments (ulimit -d)"), std::pair(RLIMIT_AS, "address space (ulimit -v)")}) {
        rlimit limit{};
        if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
        text += fmt::format("{}the limit on {}, {}", text.empty() ? "" : ", or ", name, bytes_text(limit.rlim_cur));
    }
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
