#include "aio/direct_probe.h"

#include "aio/words/io_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>

namespace penstock::aio {

namespace {

constexpr std::uint32_t small_block_bytes = 512;
constexpr std::uint32_t large_block_bytes = 4096;

DirectSupport refuse(int fd, DirectCalls& calls, std::string reason) {
    calls.set_direct(fd, false);
    return {.direct = false, .alignment = {1, 1}, .reason = std::move(reason)};
}

bool sound(const Alignment& alignment) {
    return std::has_single_bit(alignment.memory_bytes) && std::has_single_bit(alignment.offset_bytes);
}

// Only a full read proves the small block: at the end of a file some file systems return before they look at alignment.
DirectSupport probe(int fd, DirectCalls& calls) {
    if (calls.try_read(fd, small_block_bytes) == small_block_bytes) {
        return {.direct = true, .alignment = {small_block_bytes, small_block_bytes}, .reason = {}};
    }
    const std::int64_t result = calls.try_read(fd, large_block_bytes);
    if (result == -EINVAL || result == -EOPNOTSUPP) {
        return refuse(fd, calls, "a direct read was tried and failed: " + errno_text(static_cast<int>(-result)));
    }
    // Another error (EIO) says nothing about alignment and will be met, and told, by whoever reads.
    return {.direct = true, .alignment = {large_block_bytes, large_block_bytes}, .reason = {}};
}

}  // namespace

DirectSupport enable_direct(int fd, DirectCalls& calls) {
    if (const int error = calls.set_direct(fd, true); error != 0) {
        return refuse(fd, calls, "the file system refuses O_DIRECT: " + errno_text(error));
    }
    const DirectAnswer answer = calls.ask(fd);
    switch (answer.kind) {
        case DirectAnswer::Kind::refused:
            return refuse(fd, calls, "the kernel reports no direct I/O for this file");
        case DirectAnswer::Kind::given:
            if (sound(answer.alignment)) return {.direct = true, .alignment = answer.alignment, .reason = {}};
            break;
        case DirectAnswer::Kind::unknown:
            break;
    }
    return probe(fd, calls);
}

int KernelDirectCalls::set_direct(int fd, bool on) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0) return errno;
    return ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0 ? 0 : errno;
}

DirectAnswer KernelDirectCalls::ask([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN  // kernel headers before 6.1 have neither the name nor the fields
    struct statx answer = {};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &answer) != 0) return {};
    if ((answer.stx_mask & STATX_DIOALIGN) == 0) return {};
    if (answer.stx_dio_mem_align == 0 || answer.stx_dio_offset_align == 0) return {DirectAnswer::Kind::refused, {}};
    return {DirectAnswer::Kind::given, {answer.stx_dio_mem_align, answer.stx_dio_offset_align}};
#else
    return {};
#endif
}

std::int64_t KernelDirectCalls::try_read(int fd, std::size_t bytes) {
    if (bytes > large_block_bytes) return -EINVAL;
    alignas(2 * large_block_bytes) std::array<std::byte, 2 * large_block_bytes> memory;
    // The array is aligned to 8192, so this address is aligned to `bytes` and not to twice that.
    const ssize_t result = ::pread(fd, memory.data() + bytes, bytes, 0);
    return result < 0 ? -errno : result;
}

}  // namespace penstock::aio
