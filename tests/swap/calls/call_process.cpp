#include "tests/swap/calls/call_process.h"

#include "aio/words/check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>

namespace penstock::testing {
namespace {

constexpr std::chrono::minutes child_deadline{2};

[[noreturn]] void live(int to, const std::function<std::string()>& body) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    int status = 0;
    try {
        std::string words = body();
        for (std::size_t at = 0; at < words.size();) {
            const ssize_t put = ::write(to, words.data() + at, words.size() - at);
            if (put <= 0) ::_exit(2);
            at += static_cast<std::size_t>(put);
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "a child ends: %s\n", error.what());
        status = 1;
    }
    ::_exit(status);
}

}  // namespace

ChildEnd in_child(const std::function<std::string()>& body) {
    std::array<int, 2> pipe{};
    PENSTOCK_CHECK(::pipe2(pipe.data(), O_CLOEXEC) == 0, "pipe2");
    const pid_t child = ::fork();
    PENSTOCK_CHECK(child >= 0, "fork");
    if (child == 0) live(pipe[1], body);
    ::close(pipe[1]);
    ChildEnd end;
    const auto until = std::chrono::steady_clock::now() + child_deadline;
    for (std::array<char, 4096> part{};;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        pollfd polled{.fd = pipe[0], .events = POLLIN, .revents = 0};
        if (left.count() <= 0 || ::poll(&polled, 1, static_cast<int>(left.count())) == 0) {
            end.hung = true;
            ::kill(child, SIGKILL);
            break;
        }
        const ssize_t got = ::read(pipe[0], part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        end.said.append(part.data(), static_cast<std::size_t>(got));
    }
    ::close(pipe[0]);
    PENSTOCK_CHECK(::waitpid(child, &end.status, 0) == child, "waitpid");
    return end;
}

}  // namespace penstock::testing
