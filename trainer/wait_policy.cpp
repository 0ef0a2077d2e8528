// Threads of arithmetic that wait soon leave their core to others.
//
// LibTorch computes with libgomp, whose threads spin for 300,000 turns at the end of every parallel loop.
// Where somebody else needs the core, another program or a thread of this one, that makes a training several times
// slower. Not to spin at all costs two wake-ups per loop, which a small model feels on an idle machine. So they spin
// about as long as a wake-up takes: never much worse than the better of the two.
//
// libgomp asks the environment, once, in its constructor; main() is too late. What stands here runs after the
// libraries are mapped and before their constructors: it starts the program again with one more variable. That costs
// about a hundredth of a second; from main() LibTorch would be set up twice. Nothing has run yet, so descriptors,
// signals and arguments are as they were.
//
// Nothing is done when the user has chosen, which is also what ends the repetition, nor for another verb than `train`,
// which alone computes. Whatever goes wrong leaves the program as it was started.
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace {

// By prefix: OpenMP also knows OMP_WAIT_POLICY_ALL. The second is libgomp's own, a number of turns.
constexpr std::array<std::string_view, 2> choices = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
constexpr std::size_t environment_max = 4096;  // variables; no memory is allocated this early

char our_choice[] = "GOMP_SPINCOUNT=10000";  // bench/spin.sh measures it

bool chosen(std::string_view variable) {
    return variable.starts_with(choices[0]) || variable.starts_with(choices[1]);
}

void start_again_with_our_choice(int count, char** arguments, char** environment) {
    if (count < 2 || std::string_view(arguments[1]) != "train") return;
    // No interpreter: it was given the program as an argument (ld.so penstock train), and would lose it.
    if (::getauxval(AT_BASE) == 0 || ::getauxval(AT_EXECFN) == 0) return;
    std::array<char*, environment_max + 2> with_choice;
    std::size_t used = 0;
    for (; environment[used] != nullptr; ++used) {
        if (used == environment_max || chosen(environment[used])) return;
        with_choice[used] = environment[used];
    }
    with_choice[used++] = our_choice;
    with_choice[used] = nullptr;
    // The very path of the first start: the same name in ps, and no need of /proc.
    ::execve(reinterpret_cast<const char*>(::getauxval(AT_EXECFN)), arguments, with_choice.data());
}

// The dynamic linker calls what this section lists, of the program alone, before any constructor.
using Early = void (*)(int, char**, char**);
[[gnu::section(".preinit_array"), gnu::used]] const Early early = start_again_with_our_choice;

}  // namespace
