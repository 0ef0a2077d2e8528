// A page of memory whose first use waits until the test lets it go on: a system call that copies into it is stuck in
// the kernel, as on a device that does not answer.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace penstock::aio {

class StuckMemory {
   public:
    static constexpr std::size_t bytes = 4096;

    StuckMemory()
        : fd_(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))),
          data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        uffdio_api api = {.api = UFFD_API, .features = 0, .ioctls = 0};
        uffdio_register memory = {.range = range(), .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
        works_ = fd_ >= 0 && ::ioctl(fd_, UFFDIO_API, &api) == 0 && ::ioctl(fd_, UFFDIO_REGISTER, &memory) == 0;
    }
    ~StuckMemory() {
        if (fd_ >= 0) ::close(fd_);
        ::munmap(data_, bytes);
    }
    StuckMemory(const StuckMemory&) = delete;
    StuckMemory& operator=(const StuckMemory&) = delete;

    bool works() const { return works_; }  // not for a plain user on most machines
    std::byte* data() const { return static_cast<std::byte*>(data_); }
    void wait_until_somebody_is_stuck() const {
        pollfd event = {.fd = fd_, .events = POLLIN, .revents = 0};
        while (::poll(&event, 1, -1) < 0 && errno == EINTR) {
        }
    }
    void let_go() const {
        uffdio_zeropage zero = {.range = range(), .mode = 0, .zeropage = 0};
        ::ioctl(fd_, UFFDIO_ZEROPAGE, &zero);
    }

   private:
    uffdio_range range() const { return {.start = reinterpret_cast<std::uintptr_t>(data_), .len = bytes}; }

    int fd_;
    void* data_;
    bool works_ = false;
};

}  // namespace penstock::aio
