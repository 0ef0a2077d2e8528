// A part of a test in a process of its own, which says something before it ends or is killed.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::testing {

struct ChildEnd {
    bool hung = false;  // it was killed at its deadline
    int status = 0;     // of waitpid(); 0: it came to the end of its body
    std::string said;
    std::string complaint;  // what its body threw
};

// The copy of this process by fork(): of its threads it has one. It is killed where it is still there in the end, and
// ends by itself where it has something to say and nobody is there.
class Child {
   public:
    using Clock = std::chrono::steady_clock;
    using Say = std::function<void(std::string_view)>;

    explicit Child(const std::function<void(const Say&)>& body);
    ~Child();
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    pid_t pid() const noexcept { return pid_; }
    // Waits until it has said as much; it is less where the process has ended.
    std::string hear(std::size_t bytes) const;
    void kill() const;
    // Waits until it ends or is killed at the deadline. `said`: what was not heard before.
    ChildEnd end(std::optional<Clock::time_point> deadline = {});

   private:
    using Pipe = std::array<int, 2>;

    Pipe said_{}, complained_{};
    pid_t pid_ = -1;
};

// What `body` returns is said.
ChildEnd in_child(const std::function<std::string()>& body, std::chrono::nanoseconds at_most = std::chrono::minutes(2));

}  // namespace penstock::testing
