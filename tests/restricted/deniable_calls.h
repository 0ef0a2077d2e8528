// The system calls of a training (strace -c) that a profile might deny one by one, and how it ends without each.
#pragma once

#include <sys/syscall.h>

#include <array>
#include <cstdint>

namespace penstock::testing {

struct DeniableCall {
    const char* name;
    unsigned number;
    enum class End : std::uint8_t {
        trained,  // another call, or nothing, takes its place
        refused,  // one error, in words that name what it was for
        either,   // by its errno
    } end;
};

// Not among them: what the dynamic linker needs (openat, read, mmap, mprotect, close, newfstatat, pread64, execve), and
// what no library does without (futex, write, brk, exit_group).
inline constexpr std::array deniable_calls{
    DeniableCall{"io_uring_setup", __NR_io_uring_setup, DeniableCall::End::trained},
    DeniableCall{"io_uring_enter", __NR_io_uring_enter, DeniableCall::End::trained},
    DeniableCall{"io_uring_register", __NR_io_uring_register, DeniableCall::End::trained},
    DeniableCall{"io_setup", __NR_io_setup, DeniableCall::End::trained},
    DeniableCall{"io_submit", __NR_io_submit, DeniableCall::End::trained},
    DeniableCall{"io_getevents", __NR_io_getevents, DeniableCall::End::trained},
    DeniableCall{"io_destroy", __NR_io_destroy, DeniableCall::End::trained},
    DeniableCall{"pwrite64", __NR_pwrite64, DeniableCall::End::refused},
    DeniableCall{"fdatasync", __NR_fdatasync, DeniableCall::End::refused},
    DeniableCall{"fsync", __NR_fsync, DeniableCall::End::refused},
    DeniableCall{"fallocate", __NR_fallocate, DeniableCall::End::either},
    DeniableCall{"ftruncate", __NR_ftruncate, DeniableCall::End::refused},
    DeniableCall{"statx", __NR_statx, DeniableCall::End::trained},
    DeniableCall{"fstatfs", __NR_fstatfs, DeniableCall::End::refused},
    DeniableCall{"statfs", __NR_statfs, DeniableCall::End::trained},
    DeniableCall{"madvise", __NR_madvise, DeniableCall::End::trained},
    DeniableCall{"mlock", __NR_mlock, DeniableCall::End::trained},
    DeniableCall{"munmap", __NR_munmap, DeniableCall::End::trained},
    DeniableCall{"flock", __NR_flock, DeniableCall::End::refused},
    DeniableCall{"fcntl", __NR_fcntl, DeniableCall::End::refused},
    DeniableCall{"getdents64", __NR_getdents64, DeniableCall::End::refused},
    DeniableCall{"signalfd4", __NR_signalfd4, DeniableCall::End::refused},
    DeniableCall{"rt_sigprocmask", __NR_rt_sigprocmask, DeniableCall::End::refused},
    DeniableCall{"eventfd2", __NR_eventfd2, DeniableCall::End::refused},
    DeniableCall{"ppoll", __NR_ppoll, DeniableCall::End::trained},
    DeniableCall{"prlimit64", __NR_prlimit64, DeniableCall::End::trained},
    DeniableCall{"sched_getaffinity", __NR_sched_getaffinity, DeniableCall::End::trained},
    DeniableCall{"getrandom", __NR_getrandom, DeniableCall::End::either},
    DeniableCall{"uname", __NR_uname, DeniableCall::End::trained},
    DeniableCall{"ioctl", __NR_ioctl, DeniableCall::End::trained},
    DeniableCall{"lseek", __NR_lseek, DeniableCall::End::either},
    DeniableCall{"getcwd", __NR_getcwd, DeniableCall::End::refused},
    DeniableCall{"clone3", __NR_clone3, DeniableCall::End::either},
#ifdef __NR_poll  // arm64 has none of these
    DeniableCall{"poll", __NR_poll, DeniableCall::End::refused},
    DeniableCall{"stat", __NR_stat, DeniableCall::End::refused},
    DeniableCall{"lstat", __NR_lstat, DeniableCall::End::trained},
    DeniableCall{"rename", __NR_rename, DeniableCall::End::refused},
    DeniableCall{"unlink", __NR_unlink, DeniableCall::End::trained},
    DeniableCall{"mkdir", __NR_mkdir, DeniableCall::End::refused},
    DeniableCall{"readlink", __NR_readlink, DeniableCall::End::trained},
#endif
};

}  // namespace penstock::testing
