// Whether one open file can be read and written past the page cache, and at which alignment.
#pragma once

#include "aio/file.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock::aio {

// What the kernel says when asked (statx, STATX_DIOALIGN, Linux 6.1 and later).
struct DirectAnswer {
    enum class Kind : std::uint8_t { unknown, refused, given };
    Kind kind = Kind::unknown;
    Alignment alignment;  // when given
};

// The three calls that decide; a seam, so that tests can play file systems that are not at hand.
class DirectCalls {
   public:
    virtual ~DirectCalls() = default;
    virtual int set_direct(int fd, bool on) = 0;  // 0 or errno
    virtual DirectAnswer ask(int fd) = 0;
    // Reads at offset 0 into memory that is aligned to `bytes` and to no more: bytes read or -errno.
    virtual std::int64_t try_read(int fd, std::size_t bytes) = 0;
};

class KernelDirectCalls final : public DirectCalls {
   public:
    int set_direct(int fd, bool on) override;
    DirectAnswer ask(int fd) override;
    std::int64_t try_read(int fd, std::size_t bytes) override;
};

struct DirectSupport {
    bool direct = false;
    Alignment alignment{1, 1};
    std::string reason;  // when not direct: a phrase that follows "because"
};

// Leaves O_DIRECT set on `fd` exactly when the answer is direct.
DirectSupport enable_direct(int fd, DirectCalls& calls);

}  // namespace penstock::aio
