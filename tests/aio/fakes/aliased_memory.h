// More memory than the machine has: one piece of it, seen again and again one after the other.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <system_error>

namespace penstock::aio {

class AliasedMemory {
   public:
    static constexpr std::size_t piece_bytes = 64U << 20;

    // Throws std::system_error.
    explicit AliasedMemory(std::size_t bytes) : bytes_((bytes + piece_bytes - 1) / piece_bytes * piece_bytes) {
        const int piece = ::memfd_create("aliased", MFD_CLOEXEC);
        require(piece >= 0 && ::ftruncate(piece, piece_bytes) == 0);
        void* all = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        require(all != MAP_FAILED);
        data_ = static_cast<std::byte*>(all);
        for (std::size_t at = 0; at < bytes_; at += piece_bytes) {
            require(::mmap(data_ + at, piece_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, piece, 0) !=
                    MAP_FAILED);
        }
        ::close(piece);
    }
    ~AliasedMemory() { ::munmap(data_, bytes_); }
    AliasedMemory(const AliasedMemory&) = delete;
    AliasedMemory& operator=(const AliasedMemory&) = delete;

    std::byte* data() const { return data_; }
    std::span<std::byte> piece() const { return {data_, piece_bytes}; }

   private:
    static void require(bool worked) {
        if (!worked) throw std::system_error(errno, std::generic_category(), "aliased memory");
    }

    std::size_t bytes_;
    std::byte* data_ = nullptr;
};

}  // namespace penstock::aio
