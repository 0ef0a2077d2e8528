// What stands before main(), because libraries below ask for it before that.
//
// A working directory that is there, and room for their own memory: without either, constructors of LibTorch's
// libraries end the process with words of their own, or with none. What they lack is said here instead.
//
// For the verbs that compute, variables of the environment:
//
// Threads of arithmetic that wait soon leave their core to others. LibTorch computes with libgomp, whose threads spin
// for 300,000 turns at the end of every parallel loop. Where somebody else needs the core, another program or a thread
// of this one, that makes a training several times slower. Not to spin at all costs two wake-ups per loop, which a
// small model feels on an idle machine. So they spin about as long as a wake-up takes: never much worse than the better
// of the two.
//
// Memory that was freed is kept. LibTorch allocates every tensor anew. glibc gives blocks of some MiB back to the
// kernel at once, and takes them again page by page: 140,000 faults in a step of 302 M parameters on two cores, a tenth
// of its time. Kept, and in huge pages where the kernel has them, it is 1,300 faults, and no more memory at the peak.
//
// Both are asked of the environment, once, before main(). What stands here runs after the libraries are mapped and
// before their constructors: it starts the program again with these variables. That costs about a hundredth of a
// second; from main() LibTorch would be set up twice. Nothing has run yet, so descriptors, signals and arguments are as
// they were.
//
// What the user has chosen stays; when all is chosen nothing is done, which is also what ends the repetition; nor for
// verbs that do not compute. Whatever goes wrong leaves the program as it was started.
#include "aio/words/error.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <string_view>

namespace {

constexpr std::size_t environment_max = 4096;  // variables; no memory is allocated this early

struct Choice {
    char* ours;
    std::array<std::string_view, 2> theirs;  // by prefix: a user with one of these has chosen
};

char spinning[] = "GOMP_SPINCOUNT=10000";  // bench/spin.sh measures it
// Bytes: the arena grows by 64 MiB, blocks up to 1 GiB are taken from it, and nothing goes back.
char memory[] =
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"
    "glibc.malloc.trim_threshold=1099511627776:glibc.malloc.top_pad=67108864";

constexpr std::array<Choice, 2> choices = {{
    {spinning, {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}},  // OpenMP also knows OMP_WAIT_POLICY_ALL
    {memory, {"GLIBC_TUNABLES", "MALLOC_"}},
}};

bool computes(std::string_view verb) {
    return verb == "train" || verb == "plan";
}

bool is_made_by(const Choice& choice, std::string_view variable) {
    return variable.starts_with(choice.theirs[0]) || variable.starts_with(choice.theirs[1]);
}

[[noreturn]] void end(std::string_view words, penstock::ExitCode code) {
    [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, words.data(), words.size());
    ::_exit(static_cast<int>(code));
}

void check_working_directory() {
    std::array<char, PATH_MAX> path;
    if (::syscall(SYS_getcwd, path.data(), path.size()) >= 0) return;
    if (errno == ENOENT)
        end("penstock: error: the working directory is gone: change to one that is there (cd), then try again\n",
            penstock::ExitCode::usage);
    end("penstock: error: the system does not say which the working directory is (getcwd): change to another one (cd), "
        "or allow the call in the container's seccomp profile\n",
        penstock::ExitCode::usage);
}

// Constructors were seen to end the process with 64 MiB, and not with 96.
void check_room() {
    constexpr std::size_t needed = 96U << 20;
    void* const room =
        ::mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room != MAP_FAILED) {
        ::munmap(room, needed);
        return;
    }
    if (errno != ENOMEM) return;
    end("penstock: error: out of memory on the host: not even 96 MiB can be had to begin with; raise the limit on data "
        "segments (ulimit -d) or on address space (ulimit -v)\n",
        penstock::ExitCode::out_of_memory);
}

void start_again_with_our_choices(int count, char** arguments, char** environment) {
    if (count < 2 || !computes(arguments[1])) return;
    // No interpreter: it was given the program as an argument (ld.so penstock train), and would lose it.
    if (::getauxval(AT_BASE) == 0 || ::getauxval(AT_EXECFN) == 0) return;
    std::array<char*, environment_max + choices.size() + 1> with_choices;
    std::array<bool, choices.size()> chosen{};
    std::size_t used = 0;
    for (; environment[used] != nullptr; ++used) {
        if (used == environment_max) return;
        with_choices[used] = environment[used];
        for (std::size_t each = 0; each < choices.size(); ++each)
            chosen[each] = chosen[each] || is_made_by(choices[each], environment[used]);
    }
    if (chosen[0] && chosen[1]) return;
    for (std::size_t each = 0; each < choices.size(); ++each)
        if (!chosen[each]) with_choices[used++] = choices[each].ours;
    with_choices[used] = nullptr;
    // The very path of the first start: the same name in ps, and no need of /proc.
    ::execve(reinterpret_cast<const char*>(::getauxval(AT_EXECFN)), arguments, with_choices.data());
}

// The dynamic linker calls what this section lists, of the program alone, before any constructor.
using Early = void (*)(int, char**, char**);
void before_all(int count, char** arguments, char** environment) {
    check_working_directory();
    check_room();
    start_again_with_our_choices(count, arguments, environment);
}
[[gnu::section(".preinit_array"), gnu::used]] const Early early = before_all;

}  // namespace
