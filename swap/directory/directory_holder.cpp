#include "swap/directory/directory_holder.h"

#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

namespace penstock::store {
namespace {

// Lines are "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF": major and minor in hexadecimal, the inode in decimal.
bool is_locked(const struct stat& file) {
    const std::string place = fmt::format(" {:02x}:{:02x}:{} ", major(file.st_dev), minor(file.st_dev), file.st_ino);
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        const auto has = [&line](std::string_view word) { return line.find(word) != std::string::npos; };
        if (has(" FLOCK ") && has(" WRITE ") && has(place)) return true;
    }
    return false;
}

}  // namespace

DirectoryLook look_at(int directory_fd) {
    const Descriptor file(
        ::openat(directory_fd, StoreDirectory::lock_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
    std::array<char, lock_text_bytes> text{};
    const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
    DirectoryLook look;
    look.lock = parse_lock({text.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
    look.in_use = look.lock && is_locked(status);
    return look;
}

std::string describe_holder(const LockText& lock) {
    const char* process = lock.pid == ::getpid() ? "this process, " : "process ";
    return fmt::format("{}{} on {} since {}, job '{}'", process, lock.pid, lock.host, lock.since, lock.job);
}

}  // namespace penstock::store
