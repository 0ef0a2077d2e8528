#include "bench/harness/child.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "bench/harness/interruption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace penstock::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Pipe {
   public:
    Pipe() {
        if (::pipe2(ends_.data(), O_CLOEXEC) != 0)
            throw Error(ExitCode::internal, fmt::format("no pipe: {}", aio::errno_text(errno)));
    }
    ~Pipe() {
        close_writer();
        ::close(ends_[0]);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    int reader() const { return ends_[0]; }
    int writer() const { return ends_[1]; }
    void close_writer() {
        if (const int fd = std::exchange(ends_[1], -1); fd >= 0) ::close(fd);
    }

   private:
    std::array<int, 2> ends_{};
};

// Kills what still runs when this ends.
class Process {
   public:
    Process(const std::vector<std::string>& arguments, int output, int errors) {
        std::vector<char*> raw;
        for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
        raw.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attributes;
        sigset_t none;
        sigemptyset(&none);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
        posix_spawnattr_init(&attributes);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);  // ours are blocked: interruption.h
        posix_spawnattr_setsigmask(&attributes, &none);
        error_ = ::posix_spawnp(&pid_, raw[0], &actions, &attributes, raw.data(), environ);
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
    }
    ~Process() {
        if (!runs_ || error_ != 0) return;
        // fio ends the jobs that it forked when it is asked to, not when it is killed.
        ::kill(pid_, SIGTERM);
        for (int tries = 0; tries < 200; ++tries) {
            if (::waitpid(pid_, nullptr, WNOHANG) != 0) return;
            ::usleep(10'000);
        }
        ::kill(pid_, SIGKILL);
        wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    int error() const { return error_; }
    int wait() {
        int status = 0;
        while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        runs_ = false;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

   private:
    pid_t pid_ = 0;
    int error_ = 0;
    bool runs_ = true;
};

// Appends what is there; false at the end.
bool drain(int fd, std::string& text) {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
}

}  // namespace

ChildOutcome run_child(const std::vector<std::string>& arguments, std::chrono::milliseconds deadline,
                       Interruption& stop) {
    Pipe output, errors;
    ChildOutcome outcome;
    Process process(arguments, output.writer(), errors.writer());
    if (process.error() == ENOENT) return {.exit_status = 127, .output = {}, .errors = "not found"};
    if (process.error() != 0) {
        throw Error(ExitCode::internal,
                    fmt::format("{} cannot be started: {}", arguments[0], aio::errno_text(process.error())));
    }
    output.close_writer();
    errors.close_writer();
    std::array<pollfd, 3> waits = {
        {{output.reader(), POLLIN, 0}, {errors.reader(), POLLIN, 0}, {stop.fd(), POLLIN, 0}}};
    const auto end = Clock::now() + deadline;
    while (waits[0].fd >= 0 || waits[1].fd >= 0) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) {
            throw Error(ExitCode::storage, fmt::format("{} has not ended within {} s; is the device stuck?",
                                                       arguments[0], deadline.count() / 1000));
        }
        ::poll(waits.data(), waits.size(), static_cast<int>(std::min<long>(left, 1000)));
        stop.check();
        if (waits[0].revents != 0 && !drain(output.reader(), outcome.output)) waits[0].fd = -1;
        if (waits[1].revents != 0 && !drain(errors.reader(), outcome.errors)) waits[1].fd = -1;
    }
    outcome.exit_status = process.wait();
    return outcome;
}

}  // namespace penstock::bench
