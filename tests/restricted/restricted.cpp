// restricted [--no-io-uring ERRNO] [--deny CALL ERRNO] [--no-direct] [--user] [--memlock BYTES] [--] COMMAND...
//
// Runs the command on a machine that allows less: io_uring_setup, or the named call, fails with that errno, O_DIRECT is
// refused when a file is opened and afterwards, the user is nobody (65534), locked memory is limited. Exits with 77
// (skipped, for ctest) and one line where this machine cannot be restricted so.
#include "tests/restricted/deniable_calls.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using penstock::testing::deniable_calls;
using penstock::testing::DeniableCall;

constexpr int exit_skipped = 77;
constexpr int exit_usage = 2;
constexpr unsigned nobody = 65534;
constexpr unsigned no_error = 0;

struct Restrictions {
    unsigned uring_errno = no_error;  // 0: io_uring is allowed
    unsigned denied_call = 0;
    unsigned denied_errno = no_error;  // 0: none is denied
    bool no_direct = false;
    bool user = false;
    rlim_t memlock_bytes = RLIM_INFINITY;  // infinity: as it is
};

[[noreturn]] void skip(const std::string& why) {
    std::printf("skipped: %s\n", why.c_str());
    std::exit(exit_skipped);
}

[[noreturn]] void usage() {
    std::fprintf(stderr,
                 "usage: restricted [--no-io-uring ERRNO] [--deny CALL ERRNO] [--no-direct] [--user] [--memlock BYTES] "
                 "[--] COMMAND...\n");
    std::exit(exit_usage);
}

// ---------------------------------------------------------------- system calls

// The low half of argument `index`; flags of open and fcntl lie there. (Little-endian, as x86-64 and arm64 are.)
constexpr unsigned low_half_of_argument(unsigned index) {
    return static_cast<unsigned>(offsetof(seccomp_data, args) + index * sizeof(__u64));
}

class Filter {
   public:
    void refuse(unsigned call, unsigned errno_value) {
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value));
    }
    // Where the flags in argument `index` have one of these bits.
    void refuse_flags(unsigned call, unsigned index, unsigned flags, unsigned errno_value) {
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
        add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half_of_argument(index)));
        add(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value));
        load_number();
    }
    // fcntl(fd, F_SETFL, flags)
    void refuse_setting_flags(unsigned flags, unsigned errno_value) {
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fcntl, 0, 6));
        add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half_of_argument(1)));
        add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETFL, 0, 3));
        add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, low_half_of_argument(2)));
        add(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | errno_value));
        load_number();
    }
    void load_number() { add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))); }
    bool install() {
        add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        const sock_fprog all = {.len = static_cast<unsigned short>(program_.size()), .filter = program_.data()};
        return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
    }

   private:
    void add(sock_filter instruction) { program_.push_back(instruction); }
    std::vector<sock_filter> program_;
};

void restrict_calls(const Restrictions& restrictions) {
    Filter filter;
    filter.load_number();
    if (restrictions.uring_errno != no_error) filter.refuse(__NR_io_uring_setup, restrictions.uring_errno);
    if (restrictions.denied_errno != no_error) filter.refuse(restrictions.denied_call, restrictions.denied_errno);
    if (restrictions.no_direct) {
#ifdef __NR_open
        filter.refuse_flags(__NR_open, 1, O_DIRECT, EINVAL);
#endif
        filter.refuse_flags(__NR_openat, 2, O_DIRECT, EINVAL);
        filter.refuse_setting_flags(O_DIRECT, EINVAL);
        filter.refuse(__NR_openat2, ENOSYS);  // its flags are behind a pointer
    }
    if (!filter.install()) skip(std::string("a system call filter cannot be installed: ") + std::strerror(errno));
}

[[noreturn]] void fail(const std::string& why) {
    std::fprintf(stderr, "restricted: %s\n", why.c_str());
    std::exit(EXIT_FAILURE);
}

// A filter that lets through what it should not would make every run under it worthless.
void require_refusals(const Restrictions& restrictions) {
    if (restrictions.uring_errno != no_error) {
        const bool refused =
            ::syscall(__NR_io_uring_setup, 1, nullptr) < 0 && errno == static_cast<int>(restrictions.uring_errno);
        if (!refused) fail("the system call filter does not refuse io_uring");
    }
    if (restrictions.no_direct) {
        const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        const bool set = ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_DIRECT) == 0 || errno != EINVAL;
        const bool opened = ::open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC) >= 0 || errno != EINVAL;
        if (set || opened) fail("the system call filter does not refuse O_DIRECT");
        ::close(fd);
    }
}

// ---------------------------------------------------------------- the user

void become_nobody() {
    if (::geteuid() == nobody) return;
    if (::setgroups(0, nullptr) != 0 || ::setgid(nobody) != 0 || ::setuid(nobody) != 0) {
        skip(std::string("only root can become another user: ") + std::strerror(errno));
    }
}

void require_usable(const char* command) {
    if (::access(command, X_OK) != 0) skip(std::string("nobody cannot reach ") + command);
    std::error_code error;
    const std::filesystem::path temporary = std::filesystem::temp_directory_path(error);
    if (error || ::access(temporary.c_str(), W_OK | X_OK) != 0) {
        skip("nobody cannot write to the directory for temporary files, " + temporary.string());
    }
}

void limit_locked_memory(rlim_t bytes) {
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) skip(std::string("RLIMIT_MEMLOCK: ") + std::strerror(errno));
}

// ---------------------------------------------------------------- command line

unsigned errno_named(const std::string_view name) {
    constexpr std::array known{std::pair("EPERM", EPERM), std::pair("ENOSYS", ENOSYS), std::pair("EACCES", EACCES),
                               std::pair("ENOMEM", ENOMEM), std::pair("EINVAL", EINVAL)};
    for (const auto& [text, value] : known)
        if (name == text) return static_cast<unsigned>(value);
    usage();
}

// What the program and its libraries call, and a profile might deny alone.
unsigned call_named(const std::string_view name) {
    for (const DeniableCall& call : deniable_calls)
        if (name == call.name) return call.number;
    usage();
}

// Takes the options off the front.
Restrictions parse(char**& words) {
    Restrictions restrictions;
    for (; *words != nullptr && **words == '-'; ++words) {
        const std::string_view word = *words;
        const bool takes_value = word == "--no-io-uring" || word == "--memlock" || word == "--deny";
        if (takes_value && (words[1] == nullptr || words[2] == nullptr)) usage();
        if (word == "--") {
            ++words;
            break;
        }
        if (word == "--no-io-uring") {
            restrictions.uring_errno = errno_named(*++words);
        } else if (word == "--deny") {
            restrictions.denied_call = call_named(*++words);
            restrictions.denied_errno = errno_named(*++words);
        } else if (word == "--memlock") {
            restrictions.memlock_bytes = std::strtoull(*++words, nullptr, 10);
        } else if (word == "--no-direct") {
            restrictions.no_direct = true;
        } else if (word == "--user") {
            restrictions.user = true;
        } else {
            usage();
        }
    }
    if (*words == nullptr) usage();
    return restrictions;
}

}  // namespace

int main(int /*count*/, char** words) {
    ++words;
    const Restrictions restrictions = parse(words);
    if (restrictions.memlock_bytes != RLIM_INFINITY) limit_locked_memory(restrictions.memlock_bytes);
    if (restrictions.user) become_nobody();
    restrict_calls(restrictions);
    require_refusals(restrictions);
    require_usable(*words);
    std::fflush(stdout);
    ::execv(*words, words);
    skip(std::string("cannot run ") + *words + ": " + std::strerror(errno));
}
