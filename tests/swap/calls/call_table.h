// The calls of the store's libraries to the system that are made to fail, and with what.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>

namespace penstock::testing {

inline constexpr int half_of_it = -1;  // no error: a count that is half of what was asked for

struct WatchedCall {
    const char* name;
    std::array<int, 11> errors;  // that the kernel may give to a caller without fault; zeros behind them
    bool only_once = false;      // failing for ever it is no error, but a machine that stands still
};

inline constexpr std::array watched_calls{
    // Names and descriptors.
    WatchedCall{"open", {EMFILE, EIO, ENFILE, ENOMEM, EACCES, EINTR, ENOSPC, EDQUOT, ESTALE, EROFS}},
    WatchedCall{"openat", {EMFILE, EIO, ENFILE, ENOMEM, EACCES, EINTR, ENOSPC, EDQUOT, ESTALE, EROFS}},
    WatchedCall{"close", {EIO, EINTR, ENOSPC, EDQUOT}},
    WatchedCall{"access", {EIO, EACCES, ENOMEM, ESTALE}},
    WatchedCall{"stat", {EIO, EACCES, ENOMEM, ESTALE}},
    WatchedCall{"lstat", {EIO, EACCES, ENOMEM, ESTALE}},
    WatchedCall{"fstat", {EIO, ENOMEM, ESTALE}},
    WatchedCall{"fstatat", {EIO, EACCES, ENOMEM, ESTALE}},
    WatchedCall{"statx", {EIO, ENOSYS, EINVAL, ENOMEM}},
    WatchedCall{"fstatvfs", {EIO, ENOSYS, ENOMEM, ESTALE}},
    WatchedCall{"fcntl", {EINVAL, EPERM}},
    WatchedCall{"flock", {ENOLCK, EINTR, EWOULDBLOCK, EIO, ENOMEM, EOPNOTSUPP}},
    WatchedCall{"mkdir", {ENOSPC, EIO, EDQUOT, EACCES, EROFS, ENOMEM, EMLINK}},
    WatchedCall{"unlinkat", {EIO, EACCES, EROFS, EBUSY, ENOMEM, ENOSPC, EDQUOT}},
    WatchedCall{"unlink", {EIO, EACCES, EROFS, EBUSY, ENOMEM, ENOSPC, EDQUOT}},
    WatchedCall{"rmdir", {EIO, EACCES, EROFS, EBUSY, ENOTEMPTY, ENOSPC, EDQUOT}},
    WatchedCall{"rename", {EIO, ENOSPC, EDQUOT, EACCES, EROFS, ENOMEM}},
    WatchedCall{"renameat", {EIO, ENOSPC, EDQUOT, EACCES, EROFS, ENOMEM}},
    WatchedCall{"fdopendir", {ENOMEM, EMFILE}},
    WatchedCall{"readdir", {EIO, ENOMEM, ESTALE}},
    WatchedCall{"closedir", {EIO}},
    // Bytes.
    WatchedCall{"pread", {EIO, half_of_it, EINTR, EAGAIN, ENOMEM, ESTALE}},
    WatchedCall{"pwrite", {EIO, ENOSPC, half_of_it, EDQUOT, EFBIG, EINTR, EAGAIN, EROFS, ENOMEM}},
    WatchedCall{"read", {EIO, EINTR, ESTALE}},  // of files: an eventfd's is let through, here and below
    WatchedCall{"write", {EIO, ENOSPC, EDQUOT, EINTR, EFBIG}},
    WatchedCall{"fsync", {EIO, ENOSPC, EDQUOT, EINTR, EROFS}},
    WatchedCall{"fdatasync", {EIO, ENOSPC, EDQUOT, EINTR, EROFS}},
    WatchedCall{"ftruncate", {EIO, ENOSPC, EDQUOT, EFBIG, EINTR, EACCES, EROFS}},
    // Blocks are shared, or asked about; which memory is in huge pages is asked by it, too.
    WatchedCall{"ioctl", {EIO, ENOSPC, EOPNOTSUPP, EXDEV, EINVAL, ENOTTY, EPERM, ETXTBSY, EDQUOT, EINTR, ENOMEM}},
    WatchedCall{"fallocate", {EIO, ENOSPC, EOPNOTSUPP, EDQUOT, EFBIG, EINTR}},
    // Memory, threads, signals between them.
    WatchedCall{"mmap", {ENOMEM, EAGAIN}},
    WatchedCall{"mprotect", {ENOMEM}},
    WatchedCall{"madvise", {EAGAIN, ENOMEM, EINVAL}},
    WatchedCall{"pthread_create", {EAGAIN}},
    WatchedCall{"eventfd", {EMFILE, ENFILE, ENOMEM}},
    WatchedCall{"epoll_create1", {EMFILE, ENFILE, ENOMEM}},
    WatchedCall{"epoll_ctl", {ENOSPC, ENOMEM}},
    WatchedCall{"timerfd_create", {EMFILE, ENFILE, ENOMEM}},
    WatchedCall{"ppoll", {EINTR, ENOMEM}, true},
    WatchedCall{"getrandom", {ENOSYS, EINTR, EAGAIN}},
    WatchedCall{"gethostname", {ENAMETOOLONG}},
    // Rings.
    WatchedCall{"io_uring_queue_init", {EMFILE, ENOMEM, ENOSYS, EPERM, ENFILE}},
    WatchedCall{"io_uring_register_probe", {ENOMEM, EPERM}},
    WatchedCall{"io_uring_submit", {EAGAIN, EBUSY, EINTR, ENOMEM}, true},
    WatchedCall{"io_uring_submit_and_wait_timeout", {EAGAIN, EBUSY, EINTR, ENOMEM, ETIME}, true},
    WatchedCall{"io_uring_register_buffers", {ENOMEM, EINTR, EOPNOTSUPP}},
    WatchedCall{"io_uring_register_files", {ENOMEM, EMFILE, EINTR}},
    WatchedCall{"io_setup", {EAGAIN, ENOMEM, ENOSYS, EPERM}},
    WatchedCall{"io_submit", {EAGAIN, EIO}, true},
    WatchedCall{"io_getevents", {EINTR}, true},
};

constexpr std::size_t call_count = watched_calls.size();

consteval std::size_t call_of(std::string_view name) {
    for (std::size_t i = 0; i < call_count; ++i) {
        if (watched_calls[i].name == name) return i;
    }
    throw "there is no such call in the table";
}

// What the libraries import besides, and why it is not made to fail. A star stands for the rest of a name.
struct UnwatchedCall {
    std::string_view names;  // separated by spaces
    const char* why;
};

inline constexpr std::array unwatched_calls{
    UnwatchedCall{
        "_Z* _GLOBAL_OFFSET_TABLE_ _Unwind_Resume __cxa_* __gxx_personality_v0 __dso_handle __dynamic_cast "
        "__libc_single_threaded __popcountdi2 __udivti3 __stack_chk_fail __tls_get_addr __clang_call_terminate "
        "__cpu_model",
        "the language: what of it opens files (streams) reads /proc, /sys and profiles only, and finds "
        "nothing there when that fails"},
    UnwatchedCall{
        "__errno_location abort fflush fprintf stderr snprintf free memchr memcmp memcpy memmove memset strcmp "
        "nanosleep __isoc99_sscanf strlen strtod strtoll strtoull localeconv strerror_r gmtime_r "
        "__snprintf_chk "
        "__fprintf_chk __memcpy_chk bcmp",
        "no system call, or that of a failed check()"},
    UnwatchedCall{"aligned_alloc malloc", "the heap: bad_alloc, as of new"},
    UnwatchedCall{"XXH3_*", "arithmetic; its state is of the heap"},
    UnwatchedCall{"getpid geteuid getrlimit sysconf time clock_gettime sigfillset sigemptyset sigaddset "
                  "sigismember sigpending sigtimedwait pthread_sigmask pthread_mutex_lock "
                  "pthread_mutex_unlock pthread_once",
                  "cannot fail as they are called"},
    UnwatchedCall{"munmap io_destroy io_uring_queue_exit io_uring_unregister_* io_uring_free_probe",
                  "gives back: nobody could do anything about a failure"},
    UnwatchedCall{"kill", "asks with signal 0 whether a process is there; any failure but ESRCH says that it is"},
    UnwatchedCall{"timerfd_settime", "of a descriptor that is ours it cannot fail"},
    UnwatchedCall{"io_uring_peek_batch_cqe", "reads memory"},
    UnwatchedCall{"cuda*", "registers memory with a device, which stores do not ask for"},
};

}  // namespace penstock::testing
