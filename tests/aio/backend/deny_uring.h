// Denies system calls to the calling thread and to the threads it starts from then on, as a container's seccomp
// profile does. It cannot be undone: call it on a thread made for the purpose. Of mmap that of files alone is denied,
// io_uring's rings among them: a sanitizer takes memory for itself at any time.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace penstock::aio {

inline bool deny_calls(std::initializer_list<unsigned> numbers, int errno_value) {
    constexpr auto fd_of_mmap = offsetof(seccomp_data, args) + 4 * sizeof(std::uint64_t);
    constexpr auto no_file = 0xffffffffU;
    std::vector<sock_filter> program;
    for (const unsigned number : numbers) {
        const bool of_files = number == __NR_mmap;
        const std::uint8_t behind = of_files ? 3 : 1;
        program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, behind));
        if (of_files) {
            program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, fd_of_mmap));
            program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no_file, 1, 0));
        }
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(errno_value)));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter = {.len = static_cast<unsigned short>(program.size()), .filter = program.data()};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

inline bool deny_uring(int errno_value) {
    return deny_calls({__NR_io_uring_setup}, errno_value);
}

}  // namespace penstock::aio
