#include "swap/directory/lock_holder.h"

#include "aio/words/host_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string_view>

namespace penstock::store {
namespace {

bool has_ended(pid_t pid) {
    return ::kill(pid, 0) != 0 && errno == ESRCH;
}

// " ('penstock')", or nothing where the kernel does not say.
std::string name_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    const auto shown = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; };
    return !name.empty() && std::all_of(name.begin(), name.end(), shown) ? fmt::format(" ('{}')", name) : "";
}

std::string describe(const LockHolder& holder, const std::optional<LockText>& lock) {
    const bool signed_it = lock && lock->pid == holder.pid && lock->host == aio::host_name();
    if (has_ended(holder.pid))
        return fmt::format("what process {}, which has ended, left running (it has the file open)", holder.pid);
    if (holder.exclusive && signed_it) return describe_holder(*lock);
    const char* process = holder.pid == ::getpid() ? "this process, " : "process ";
    return fmt::format("{}{}{}{}", process, holder.pid, name_of(holder.pid),
                       holder.exclusive ? "" : ", which reads it");
}

// Somebody holds it all the same.
std::string describe_unseen(const std::optional<LockText>& lock) {
    if (lock && lock->pid != 0 && (lock->host != aio::host_name() || !has_ended(static_cast<pid_t>(lock->pid))))
        return "a process that cannot be seen from here; the last that wrote there was " + describe_holder(*lock);
    return "a process that cannot be seen from here (of another container or host)";
}

}  // namespace

// Lines are "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF": major and minor in hexadecimal, the inode in decimal.
// One that waits for another has "->" behind its number.
std::vector<LockHolder> holders_of(int lock_fd) {
    struct stat file {};
    if (::fstat(lock_fd, &file) != 0) return {};
    const std::string place = fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
    std::vector<LockHolder> holders;
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        std::istringstream words(line);
        std::string number, kind, mode, access, where;
        LockHolder holder;
        if (!(words >> number >> kind >> mode >> access >> holder.pid >> where)) continue;
        if (kind != "FLOCK" || where != place) continue;
        holder.exclusive = access == "WRITE";
        if (std::find(holders.begin(), holders.end(), holder) == holders.end()) holders.push_back(holder);
    }
    return holders;
}

std::string describe_holder(const LockText& lock) {
    const char* process = lock.pid == ::getpid() ? "this process, " : "process ";
    return fmt::format("{}{} on {} since {}, job '{}'", process, lock.pid, lock.host, lock.since, lock.job);
}

std::string describe_holders(const std::vector<LockHolder>& holders, const std::optional<LockText>& lock) {
    if (holders.empty()) return describe_unseen(lock);
    std::vector<std::string> words;
    for (const LockHolder& holder : holders) words.push_back(describe(holder, lock));
    return fmt::format("{}", fmt::join(words, " and "));
}

}  // namespace penstock::store
