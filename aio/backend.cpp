#include "aio/backend.h"

#include <fmt/format.h>

namespace penstock::aio {

std::string Backend::register_memory(std::span<const std::span<std::byte>> ranges) {
    return ranges.empty() ? std::string() : fmt::format("{} cannot register memory", name());
}

std::string Backend::register_files(std::span<const RegisteredFile> files) {
    return files.empty() ? std::string() : fmt::format("{} cannot register files", name());
}

std::optional<std::uint64_t> Backend::sectors_written(std::uint64_t) const noexcept {
    return std::nullopt;
}

}  // namespace penstock::aio
