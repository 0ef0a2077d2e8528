#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>

namespace penstock::pool {

// Addresses that nobody may look at: the arena must not.
class Addresses {
   public:
    explicit Addresses(std::size_t bytes)
        : data_(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)), bytes_(bytes) {}
    ~Addresses() { ::munmap(data_, bytes_); }
    Addresses(const Addresses&) = delete;
    Addresses& operator=(const Addresses&) = delete;
    std::byte* data() const { return static_cast<std::byte*>(data_); }
    std::span<std::byte> span() const { return {data(), bytes_}; }

   private:
    void* data_;
    std::size_t bytes_;
};

}  // namespace penstock::pool
