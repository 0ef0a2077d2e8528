#include "tests/fuzz/last_words.h"

#include "aio/words/check.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <utility>

namespace penstock::fuzz {
namespace {

constexpr std::array fatal{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
std::atomic<const std::string*> spoken{nullptr};

// The action is the default one again, so that the signal goes on to end the process.
extern "C" void speak(int signal) {
    if (const std::string* words = spoken.exchange(nullptr))
        static_cast<void>(!::write(STDERR_FILENO, words->data(), words->size()));
    ::raise(signal);
}

void set_actions(void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : fatal) ::sigaction(signal, &action, nullptr);
}

}  // namespace

LastWords::LastWords(std::string words) : words_(std::move(words) + "\n") {
    PENSTOCK_CHECK(spoken.load() == nullptr, "two last words");
    spoken = &words_;
    set_actions(&speak);
}

LastWords::~LastWords() {
    set_actions(SIG_DFL);
    spoken = nullptr;
}

}  // namespace penstock::fuzz
