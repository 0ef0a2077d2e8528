#include "tests/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>

namespace penstock::testing {
namespace {

[[noreturn]] void die(const char* call) {
    std::perror(call);
    std::abort();
}

void write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(fd, bytes.data(), bytes.size());
        if (written <= 0) ::_exit(2);
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
}

// The rest of this process is its parent's copy and is never run.
[[noreturn]] void live(int said, int complained, const std::function<void(const Child::Say&)>& body) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    try {
        body([said](std::string_view words) { write_all(said, words); });
    } catch (const std::exception& error) {
        write_all(complained, error.what());
        ::_exit(1);
    }
    ::_exit(0);
}

// Whether there is something to read, or nothing will be, before the deadline.
bool wait_for(int fd, Child::Clock::time_point deadline) {
    const auto left = std::max(deadline - Child::Clock::now(), Child::Clock::duration(0));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
    pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
    return left.count() > 0 && ::ppoll(&polled, 1, &timeout, nullptr) != 0;
}

// The next bytes, at most so many; none where the other side is closed.
std::string read_some(int fd, std::size_t most) {
    std::string bytes(std::min(most, std::size_t{1} << 16), '\0');
    ssize_t got = -1;
    do got = ::read(fd, bytes.data(), bytes.size());
    while (got < 0 && errno == EINTR);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
}

std::string read_all(int fd, std::size_t most = std::numeric_limits<std::size_t>::max()) {
    std::string text;
    for (std::string part; !(part = read_some(fd, most - text.size())).empty();) text += part;
    return text;
}

}  // namespace

Child::Child(const std::function<void(const Say&)>& body) {
    if (::pipe2(said_.data(), O_CLOEXEC) != 0 || ::pipe2(complained_.data(), O_CLOEXEC) != 0) die("pipe2");
    pid_ = ::fork();
    if (pid_ < 0) die("fork");
    for (const Pipe& pipe : {said_, complained_}) ::close(pipe[pid_ == 0 ? 0 : 1]);
    if (pid_ == 0) live(said_[1], complained_[1], body);
}

Child::~Child() {
    kill();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
    ::close(said_[0]);
    ::close(complained_[0]);
}

std::string Child::hear(std::size_t bytes) const {
    return read_all(said_[0], bytes);
}

void Child::kill() const {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
}

ChildEnd Child::end(std::optional<Clock::time_point> deadline) {
    ChildEnd end;
    for (bool more = true; more;) {
        if (deadline && !wait_for(said_[0], *deadline)) {
            kill();
            end.hung = true;
            deadline.reset();
        }
        const std::string part = read_some(said_[0], std::numeric_limits<std::size_t>::max());
        end.said += part;
        more = !part.empty();
    }
    end.complaint = read_all(complained_[0]);
    if (::waitpid(pid_, &end.status, 0) != pid_) die("waitpid");
    pid_ = -1;
    return end;
}

ChildEnd in_child(const std::function<std::string()>& body, std::chrono::nanoseconds at_most) {
    Child child([&](const Child::Say& say) { say(body()); });
    return child.end(Child::Clock::now() + at_most);
}

}  // namespace penstock::testing
