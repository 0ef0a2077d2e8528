#include "swap/directory/store_look.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string_view>
#include <utility>

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

struct HeldLock {
    LockText text;
    bool held = false;
};

[[noreturn]] void fail(const std::string& path) {
    throw Error(ExitCode::storage,
                fmt::format("{}/{}: it cannot be read: {}; check the permissions and the device, then try again.", path,
                            StoreDirectory::lock_name, aio::errno_text(errno)));
}

std::optional<HeldLock> look_at_lock(int directory_fd, const std::string& path) {
    const Descriptor file(
        ::openat(directory_fd, StoreDirectory::lock_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) return std::nullopt;
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) fail(path);
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    std::array<char, lock_file_bytes> text{};
    const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
    if (got < 0) fail(path);
    auto lock = parse_lock_file({text.data(), static_cast<std::size_t>(got)});
    if (!lock) return std::nullopt;
    return HeldLock{.text = std::move(*lock), .held = is_locked(status)};
}

}  // namespace

// Four copies are read one after the other while a training may write them; that none is whole in any of three looks is
// no coincidence.
std::optional<StoreLook> look_at_store(int directory_fd, std::string path) {
    auto lock = look_at_lock(directory_fd, path);
    if (!lock) return std::nullopt;
    StoreLook look{.path = std::move(path), .lock = std::move(lock->text), .in_use = lock->held, .recovery = {}};
    for (int tries = 0; tries < 3 && !look.recovery.newest; ++tries) {
        look.recovery = recover(directory_fd, look.lock.uuid);
        if (!look.in_use) break;
    }
    return look;
}

std::string describe_holder(const LockText& lock) {
    const char* process = lock.pid == ::getpid() ? "this process, " : "process ";
    return fmt::format("{}{} on {} since {}, job '{}'", process, lock.pid, lock.host, lock.since, lock.job);
}

}  // namespace penstock::store
