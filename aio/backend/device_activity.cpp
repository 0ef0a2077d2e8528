#include "aio/backend/device_activity.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

namespace penstock::aio {

std::optional<std::uint64_t> sectors_written(std::uint64_t device) noexcept {
    std::array<char, 64> path{};
    std::snprintf(path.data(), path.size(), "/sys/dev/block/%u:%u/stat", major(device), minor(device));
    const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return std::nullopt;
    std::array<char, 512> text{};
    const ssize_t got = ::read(file, text.data(), text.size() - 1);
    ::close(file);
    unsigned long long sectors = 0;
    if (got <= 0 || std::sscanf(text.data(), "%*u %*u %*u %*u %*u %*u %llu", &sectors) != 1) return std::nullopt;
    return sectors;
}

}  // namespace penstock::aio
