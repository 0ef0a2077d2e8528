#include "tests/swap/kills/kill_process.h"

#include "aio/words/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <utility>

namespace penstock::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto never = Clock::time_point::max();

class Pipe {
   public:
    Pipe() { PENSTOCK_CHECK(::pipe2(ends_.data(), O_CLOEXEC) == 0, "pipe2"); }
    ~Pipe() {
        close(0);
        close(1);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    int read_end() const { return ends_[0]; }
    void close(std::size_t end) {
        if (ends_[end] >= 0) ::close(std::exchange(ends_[end], -1));
    }
    void write(std::span<const std::byte> bytes) const {
        while (!bytes.empty()) {
            const ssize_t written = ::write(ends_[1], bytes.data(), bytes.size());
            if (written < 0) ::_exit(2);  // the other side is gone
            bytes = bytes.subspan(static_cast<std::size_t>(written));
        }
    }

   private:
    std::array<int, 2> ends_{};
};

class TellingPipe final : public KillListener {
   public:
    explicit TellingPipe(const Pipe& pipe) : pipe_(pipe) {}
    void hear(std::span<const Told> messages) override { pipe_.write(std::as_bytes(messages)); }

   private:
    const Pipe& pipe_;
};

// What the child does. The rest of this process is the parent's copy and is never run.
[[noreturn]] void live(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model,
                       std::uint64_t life, const KillOrder& order, Pipe& told, Pipe& complained) {
    told.close(0);  // so that this process ends with its parent, at the next message
    complained.close(0);
    TellingPipe listener(told);
    std::string complaint;
    try {
        StoreProcess process(paths, plan);
        std::unique_ptr<aio::Backend> backend = process.take_backend();
        KillListener* ear = &listener;
        if (order.point) {
            auto killer = std::make_unique<KillBackend>(std::move(backend), *order.point, listener);
            ear = killer.get();
            backend = std::move(killer);
        }
        aio::Io io(std::move(backend), {});
        complaint = KillLife(plan, model, life, *ear).run(io, process.directories(), order.commits);
    } catch (const std::exception& error) {
        complaint = error.what();
    }
    complained.write(std::as_bytes(std::span(complaint)));
    ::_exit(complaint.empty() ? 0 : 1);
}

// Reads until the other side is closed; at `deadline`, kills `victim`.
std::string read_all(int fd, pid_t victim, Clock::time_point deadline) {
    std::string text;
    std::array<char, 1U << 16> buffer{};
    while (true) {
        if (deadline != never) {
            const auto left = std::max(deadline - Clock::now(), Clock::duration(0));
            const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
            const timespec timeout{.tv_sec = seconds.count(),
                                   .tv_nsec = std::chrono::nanoseconds(left - seconds).count()};
            pollfd polled{.fd = fd, .events = POLLIN, .revents = 0};
            if (left.count() == 0 || ::ppoll(&polled, 1, &timeout, nullptr) == 0) {
                ::kill(victim, SIGKILL);
                deadline = never;
                continue;
            }
        }
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return text;
        text.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

// A message that was cut off by the kill is dropped.
std::vector<Told> messages_of(const std::string& text) {
    std::vector<Told> messages(text.size() / sizeof(Told));
    if (!messages.empty()) std::memcpy(messages.data(), text.data(), messages.size() * sizeof(Told));
    return messages;
}

}  // namespace

StoreProcess::StoreProcess(const std::vector<std::string>& paths, const KillPlan& plan) {
    for (const std::string& path : paths) owned_.emplace_back(path, "kill");
    for (store::StoreDirectory& directory : owned_) pointers_.push_back(&directory);
    backend_ = open_backend(pointers_.front()->lock_fd(), {}, plan.backend).backend;
}

std::unique_ptr<aio::Backend> StoreProcess::take_backend() {
    return std::move(backend_);
}

KilledLife run_life(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model,
                    std::uint64_t life, const KillOrder& order) {
    Pipe told;
    Pipe complained;
    const auto start = Clock::now();
    const pid_t pid = ::fork();
    PENSTOCK_CHECK(pid >= 0, "fork");
    if (pid == 0) live(paths, plan, model, life, order, told, complained);
    told.close(1);
    complained.close(1);
    KilledLife result;
    const auto deadline = order.after ? start + *order.after : never;
    result.messages = messages_of(read_all(told.read_end(), pid, deadline));
    result.complaint = read_all(complained.read_end(), pid, never);
    int status = 0;
    PENSTOCK_CHECK(::waitpid(pid, &status, 0) == pid, "waitpid");
    result.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (!result.killed && status != 0 && result.complaint.empty())
        result.complaint = fmt::format("the process ended with status {:#x}", status);
    return result;
}

Found look(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model) {
    StoreProcess process(paths, plan);
    aio::Io io(process.take_backend(), {});
    Found found = examine(io, process.directories(), plan, model);
    found.store.reset();  // before the Io
    return found;
}

}  // namespace penstock::testing
