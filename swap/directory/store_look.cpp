#include "swap/directory/store_look.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace penstock::store {
namespace {

struct HeldLock {
    LockText text;
    std::vector<LockHolder> holders;
};

[[noreturn]] void fail(const std::string& path) {
    throw Error(ExitCode::storage,
                fmt::format("{}/{}: it cannot be read: {}; check the permissions and the device, then try again.", path,
                            StoreDirectory::lock_name, aio::errno_text(errno)));
}

struct LockFile {
    Descriptor file;
    std::string text;
};

// Nothing: it is not there, or no regular file.
std::optional<LockFile> read_lock(int directory_fd, const std::string& path) {
    Descriptor file(::openat(directory_fd, StoreDirectory::lock_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file && (errno == ENOENT || errno == ELOOP || errno == ENXIO)) return std::nullopt;
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) fail(path);
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    std::array<char, lock_file_bytes> text{};
    const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
    if (got < 0) fail(path);
    return LockFile{.file = std::move(file), .text = {text.data(), static_cast<std::size_t>(got)}};
}

std::optional<HeldLock> look_at_lock(int directory_fd, const std::string& path) {
    const std::optional<LockFile> read = read_lock(directory_fd, path);
    if (!read) return std::nullopt;
    auto lock = parse_lock_file(read->text);
    if (!lock) return std::nullopt;
    return HeldLock{.text = std::move(*lock), .holders = holders_of(read->file.get())};
}

}  // namespace

// Four copies are read one after the other while a training may write them; that none is whole in any of three looks is
// no coincidence.
std::optional<StoreLook> look_at_store(int directory_fd, std::string path) {
    auto lock = look_at_lock(directory_fd, path);
    if (!lock) return std::nullopt;
    StoreLook look{
        .path = std::move(path), .lock = std::move(lock->text), .holders = std::move(lock->holders), .recovery = {}};
    look.in_use = std::any_of(look.holders.begin(), look.holders.end(), [](const auto& one) { return one.exclusive; });
    for (int tries = 0; tries < 3 && !look.recovery.newest; ++tries) {
        look.recovery = recover(directory_fd, look.lock.uuid);
        if (!look.in_use) break;
    }
    return look;
}

std::optional<StoreLook> look_at_store(const std::string& path) {
    const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory ? look_at_store(directory.get(), path) : std::nullopt;
}

bool has_commits(const std::string& path) {
    const auto look = look_at_store(path);
    return look && !look->recovery.never_committed();
}

bool has_no_store(int directory_fd) {
    std::vector<std::string> names;
    if (list_names(directory_fd, names) != 0) return false;
    const bool lock = std::erase(names, StoreDirectory::lock_name) > 0;
    if (!std::all_of(names.begin(), names.end(), may_stand_beside)) return false;
    if (!lock) return true;
    const std::optional<LockFile> read = read_lock(directory_fd, ".");
    if (!read) return false;
    const std::optional<LockText> text = parse_lock_file(read->text);
    return text ? !text->role || text->role->device == 0 : is_unfinished_lock(read->text);
}

}  // namespace penstock::store
