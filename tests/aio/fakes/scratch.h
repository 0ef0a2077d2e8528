// What a test of files needs and throws away: a directory of its own (temporary_directory.h), aligned memory, seeded
// bytes.
#pragma once

#include "tests/temporary_directory.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>

namespace penstock::aio {

// For tests that need files but no disk: a file system in memory where there is one, where a flush costs nothing.
inline std::filesystem::path quick_temporary_path() {
    const std::filesystem::path memory = "/dev/shm";
    return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

// Aligned for every direct file.
class ScratchMemory {
   public:
    explicit ScratchMemory(std::size_t bytes) : data_(allocate(bytes)), bytes_(bytes) {}
    std::byte* data() const { return data_.get(); }
    std::span<std::byte> span() const { return {data_.get(), bytes_}; }

   private:
    struct Free {
        void operator()(std::byte* data) const { std::free(data); }
    };
    static std::byte* allocate(std::size_t bytes) {
        void* data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (data == nullptr) throw std::bad_alloc();
        return static_cast<std::byte*>(data);
    }
    std::unique_ptr<std::byte, Free> data_;
    std::size_t bytes_;
};

inline void fill_random(std::span<std::byte> memory, std::uint64_t seed) {
    std::minstd_rand random(static_cast<std::uint32_t>(seed * 2654435761U + 1));
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random() >> 8);
}

}  // namespace penstock::aio
