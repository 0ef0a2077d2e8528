// A move-only owner of a file descriptor that is no data file: a directory, a lock.
#pragma once

#include <unistd.h>

#include <utility>

namespace penstock::store {

class Descriptor {
   public:
    Descriptor() noexcept = default;
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }

   private:
    int fd_ = -1;
};

}  // namespace penstock::store
