#include "tests/swap/directory/mounts.h"

#include "tests/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <exception>

namespace penstock::testing {
namespace {

bool put(const char* path, const std::string& text) {
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(fd);
    return whole;
}

bool enter_namespaces() {
    if (::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0)
        return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    const std::string user = fmt::format("0 {} 1", ::geteuid());
    const std::string group = fmt::format("0 {} 1", ::getegid());
    return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && put("/proc/self/setgroups", "deny") &&
           put("/proc/self/uid_map", user) && put("/proc/self/gid_map", group) &&
           ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// Its mounts go with it.
bool dies_with(pid_t parent) {
    return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == parent;
}

}  // namespace

MountOutcome run_with_mounts(const std::function<bool()>& prepare, const std::function<std::string()>& body) {
    const pid_t parent = ::getpid();
    const ChildEnd end = Child([&](const Child::Say& say) {
                             if (!enter_namespaces() || !dies_with(parent) || !prepare()) return;
                             say("+");
                             try {
                                 say(body());
                             } catch (const std::exception& error) {
                                 say(std::string("unexpected: ") + error.what());
                             }
                         }).end();
    if (end.status != 0) return {.allowed = true, .text = fmt::format("the child ended with status {}", end.status)};
    return end.said.empty() ? MountOutcome{} : MountOutcome{.allowed = true, .text = end.said.substr(1)};
}

bool mount_tmpfs(const std::string& path, std::uint64_t bytes) {
    return ::mount("tmpfs", path.c_str(), "tmpfs", 0, fmt::format("size={}", bytes).c_str()) == 0;
}

bool mount_read_only(const std::string& path) {
    return ::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
           ::mount(nullptr, path.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

}  // namespace penstock::testing
