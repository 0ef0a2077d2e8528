#include "swap/directory/store_directory.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/host_name.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/lock_holder.h"
#include "swap/directory/recovery.h"
#include "swap/directory/snapshot_list.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <vector>

namespace penstock::store {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what) {
    throw Error(ExitCode::storage, fmt::format("{}: {}.", path, what));
}

[[noreturn]] void fail_errno(const std::string& path, std::string_view action, int errno_value) {
    const char* remedy = "check the path and the device";
    if (errno_value == EROFS)
        remedy = "the file system is mounted read-only; mount it writable or choose another directory";
    if (errno_value == EACCES || errno_value == EPERM)
        remedy = "make the directory readable and writable for this user";
    if (errno_value == ENOENT || errno_value == ENOTDIR) remedy = "create its parent directory or correct the path";
    if (errno_value == ENOSPC || errno_value == EDQUOT) remedy = "free some space or choose another directory";
    if (errno_value == ELOOP) remedy = "it is a symbolic link, and those are not followed there; remove it";
    if (errno_value == EFBIG) remedy = "raise the limit on file sizes (ulimit -f)";
    const bool full = errno_value == ENOSPC || errno_value == EDQUOT;
    throw Error(full ? ExitCode::does_not_fit : ExitCode::storage,
                fmt::format("{}: {}: {}; {}.", path, action, aio::errno_text(errno_value), remedy));
}

// The name of a new directory must survive a power cut like what is in it.
void sync_parent(int directory_fd, const std::string& path) {
    const Descriptor parent(::openat(directory_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!parent || ::fsync(parent.get()) != 0) fail_errno(path, "its parent directory cannot be synchronised", errno);
}

// Whether it was not there.
bool make_directory(const std::string& path) {
    if (::mkdir(path.c_str(), 0700) == 0) return true;
    if (errno != EEXIST) fail_errno(path, "the store directory cannot be created", errno);
    return false;
}

Descriptor open_directory(const std::string& path) {
    Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) fail_errno(path, "the store directory cannot be opened", errno);
    return directory;
}

// A file in the directory that is neither our lock nor may stand beside it; empty when there is none.
std::string find_file(int directory_fd, const std::string& path) {
    std::vector<std::string> names;
    if (const int error = list_names(directory_fd, names))
        fail_errno(path, "the store directory cannot be listed", error);
    const auto found = std::find_if(names.begin(), names.end(), [](const std::string& name) {
        return name != StoreDirectory::lock_name && !may_stand_beside(name);
    });
    return found == names.end() ? std::string() : *found;
}

// Where a manifest is whole, all that the lock knew but the job can be had again; of a further directory it is in the
// first. Returns where nothing is a store's.
void refuse_lost_lock(int directory_fd, const std::string& path, std::string_view state, const Remedies& remedies) {
    const auto is_there = [&](const char* name) { return has_name(directory_fd, path, name); };
    const bool manifests = std::any_of(manifest_file_names.begin(), manifest_file_names.end(), is_there);
    if (!manifests && !is_there(data_file_name)) return;
    if (!manifests && !is_there(snapshot_folder_name))  // "data" may be anybody's
        fail(path, fmt::format("the file '{}' {}, and there is a file '{}'. Where this is a further directory of a "
                               "store, {}; else choose an empty or a new directory (nothing was changed)",
                               StoreDirectory::lock_name, state, data_file_name, remedies.of_lock(path)));
    const bool whole = !stores_of_manifests(directory_fd).empty();
    fail(path, fmt::format("the store's file '{}' {}, and {}. Nothing was changed. {}", StoreDirectory::lock_name,
                           state, whole ? "its manifests are there" : "no manifest is whole",
                           whole ? remedies.of_lock(path) : remedies.of_loss(path)));
}

std::string read_text(int fd, const std::string& path) {
    std::array<char, lock_file_bytes> text{};
    const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
    if (got < 0) fail_errno(path + "/" + StoreDirectory::lock_name, "the lock cannot be read", errno);
    return {text.data(), static_cast<std::size_t>(got)};
}

[[noreturn]] void refuse_held(const std::string& path, int lock_fd) {
    const std::vector<LockHolder> holders = holders_of(lock_fd);
    const bool ours =
        std::any_of(holders.begin(), holders.end(), [](const auto& one) { return one.pid == ::getpid(); });
    fail(path, fmt::format("the store directory is in use by {}; {}",
                           describe_holders(holders, parse_lock_file(read_text(lock_fd, path))),
                           ours ? "it is given twice, under two names perhaps, or was opened before and not closed"
                                : "wait until it ends or stop it, or choose another directory"));
}

// Opens and locks. The file may have been replaced between the two calls: then it is another one's lock that we hold.
Descriptor lock_directory(int directory_fd, const std::string& path, Sharing sharing, int create,
                          const Remedies& remedies) {
    const std::string lock_path = path + "/" + StoreDirectory::lock_name;
    for (int tries = 0; tries < 10; ++tries) {
        const int access = sharing == Sharing::shared ? O_RDONLY : O_RDWR;
        Descriptor lock(::openat(directory_fd, StoreDirectory::lock_name,
                                 access | create | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
        const int error = lock ? 0 : errno;
        if (error == ENOENT) {
            refuse_lost_lock(directory_fd, path, "is lost", remedies);
            fail(path, "the directory is no store's: it has no lock; check the path");
        }
        if (error == ELOOP) refuse_lost_lock(directory_fd, path, "is a link", remedies);
        if (error == EISDIR) refuse_lost_lock(directory_fd, path, "is a directory", remedies);
        if (error != 0) fail_errno(lock_path, "the lock cannot be opened", error);
        struct stat held {};
        struct stat named {};
        if (::fstat(lock.get(), &held) != 0) fail_errno(lock_path, "the lock cannot be examined", errno);
        if (!S_ISREG(held.st_mode)) {
            refuse_lost_lock(directory_fd, path, "is no regular file", remedies);
            fail(lock_path, "it is not a regular file; remove it");
        }
        if (::flock(lock.get(), (sharing == Sharing::shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) fail_errno(lock_path, "the lock cannot be taken", errno);
            refuse_held(path, lock.get());
        }
        const bool found = ::fstatat(directory_fd, StoreDirectory::lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0;
        if (!found && errno != ENOENT) fail_errno(lock_path, "the lock cannot be examined", errno);
        if (found && held.st_ino == named.st_ino) return lock;
    }
    fail(lock_path, "it is replaced again and again by somebody else; find out by whom, then try again");
}

void sign(LockText& lock) {
    lock.pid = ::getpid();
    lock.host = aio::host_name();
    lock.since = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace

void check_job(const std::string& job) {
    if (is_possible_job(job)) return;
    throw Error(ExitCode::usage,
                fmt::format("the job's name of {} bytes is impossible: 1 to {} printable characters are allowed",
                            job.size(), max_job_bytes));
}

StoreUuid draw_uuid(const std::string& path) {
    StoreUuid uuid;
    if (::getrandom(uuid.data(), uuid.size(), 0) != static_cast<ssize_t>(uuid.size())) {
        fail_errno(path, "no random identity can be drawn", errno);
    }
    uuid[6] = (uuid[6] & std::byte{0x0f}) | std::byte{0x40};  // RFC 4122, version 4
    uuid[8] = (uuid[8] & std::byte{0x3f}) | std::byte{0x80};
    return uuid;
}

void refuse_lock_of_another(int directory_fd, const std::string& path, const StoreUuid& lock,
                            const Remedies& remedies) {
    const std::vector<StoreUuid> stores = stores_of_manifests(directory_fd);
    if (stores.size() != 1 || stores.front() == lock) return;
    fail(path,
         fmt::format("the file '{}' is of store {}, and the manifests beside it are of store {}. Nothing was "
                     "changed. {}",
                     StoreDirectory::lock_name, to_string(lock), to_string(stores.front()), remedies.of_lock(path)));
}

StoreDirectory::StoreDirectory(const std::string& path, const std::string& job, const Remedies& remedies)
    : path_(path) {
    check_job(job);
    try {
        made_directory_ = make_directory(path);
        directory_ = open_directory(path);
        if (made_directory_) sync_parent(directory_.get(), path);
        if (!has_name(directory_.get(), path, lock_name))
            refuse_if_foreign(remedies);  // before the lock would be the first of our files there
        lock_ = lock_directory(directory_.get(), path, sharing_, O_CREAT, remedies);
        take(job, remedies);
    } catch (...) {
        withdraw();
        throw;
    }
}

StoreDirectory::StoreDirectory(const std::string& path, Sharing sharing, const Remedies& remedies)
    : path_(path), sharing_(sharing) {
    directory_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory_) fail_errno(path, "the store directory cannot be opened", errno);
    lock_ = lock_directory(directory_.get(), path, sharing, 0, remedies);
    const std::string text = read_text(lock_.get(), path);
    std::optional<LockText> found = parse_lock_file(text);
    if (!found) {
        refuse_lost_lock(directory_.get(), path_, "is damaged", remedies);
        if (is_unfinished_lock(text))
            fail(path_, "the directory is no store's: a start ended before its lock was written; check the path");
        fail(path_ + "/" + lock_name, "it is no lock of a store; check the path");
    }
    lock_text_ = std::move(*found);
    if (sharing == Sharing::shared) return;
    sign(lock_text_);
    write_lock();
}

StoreDirectory::~StoreDirectory() {
    if (lock_) ::flock(lock_.get(), LOCK_UN);
}

// Whoever waits for the lock meanwhile sees that its file has lost its name.
void StoreDirectory::withdraw() noexcept {
    if (made_lock_ && !role()) ::unlinkat(directory_.get(), lock_name, 0);
    if (made_directory_) ::rmdir(path_.c_str());  // which refuses what is not empty
}

StoreDirectory StoreDirectory::find(const std::string& path, Sharing sharing, const Remedies& remedies) {
    return {path, sharing, remedies};
}

// With the lock held: finds out whose the directory is, and signs.
void StoreDirectory::take(const std::string& job, const Remedies& remedies) {
    const std::string text = read_text(lock_.get(), path_);
    std::optional<LockText> found = parse_lock_file(text);
    if (found && found->job != job) {
        refuse_lock_of_another(directory_.get(), path_, found->uuid, remedies);
        fail(path_,
             fmt::format(
                 "the store directory belongs to job '{}', not to '{}'; choose another directory, or the job's name "
                 "if it is the same work",
                 found->job, job));
    }
    if (found) {
        lock_text_ = std::move(*found);
    } else {
        if (text.find_first_not_of('\0') != std::string::npos)
            refuse_lost_lock(directory_.get(), path_, "is damaged", remedies);
        if (!is_unfinished_lock(text))
            fail(path_ + "/" + lock_name, "it is no lock of a store; choose another directory");
        refuse_if_foreign(remedies);
        made_lock_ = true;
        lock_text_ = LockText{.job = job, .uuid = draw_uuid(path_), .role = {}, .pid = 0, .host = {}, .since = {}};
    }
    sign(lock_text_);
    write_lock();
    if (!found) sync();
}

void StoreDirectory::refuse_if_foreign(const Remedies& remedies) const {
    const std::string name = find_file(directory_.get(), path_);
    if (name.empty()) return;
    refuse_lost_lock(directory_.get(), path_, "is lost", remedies);
    fail(path_,
         fmt::format(
             "the directory holds files that are not a store's, e.g. '{}'; choose an empty or a new directory (nothing "
             "was changed)",
             name));
}

// Always the same length in place, so that no moment exists in which it is empty or cut. Durable before anything relies
// on it.
void StoreDirectory::write_lock() {
    const aio::NoSizeSignal quiet;
    const std::string text = lock_file(lock_text_);
    const ssize_t put = ::pwrite(lock_.get(), text.data(), text.size(), 0);
    const int error = put < 0 ? errno : ENOSPC;
    if (put != static_cast<ssize_t>(text.size()))
        fail_errno(path_ + "/" + lock_name, "the lock cannot be written", error);
    if (::fdatasync(lock_.get()) != 0) fail_errno(path_ + "/" + lock_name, "the lock cannot be made durable", errno);
}

DirectoryLook StoreDirectory::look() const {
    if (role() && role()->device > 0) return {.content = DirectoryContent::committed, .manifests = {}};
    const bool data = has_name(fd(), path_, data_file_name);
    const bool first = has_name(fd(), path_, manifest_file_names[0]);
    const bool second = has_name(fd(), path_, manifest_file_names[1]);
    if (!data && !first && !second) return {};
    // Manifests are made before data: they were there, and are missing now.
    if (data && !(first && second)) return {.content = DirectoryContent::committed, .manifests = {}};
    DirectoryLook look{.content = DirectoryContent::committed, .manifests = recover(*this)};
    if (look.manifests.never_committed()) look.content = DirectoryContent::unfinished;
    return look;
}

void StoreDirectory::assign(const DeviceRole& role) {
    PENSTOCK_CHECK(!shared(), "{} is only read", path_);
    lock_text_.role = role;
    write_lock();
}

void StoreDirectory::sync() const {
    if (::fsync(directory_.get()) != 0) fail_errno(path_, "the store directory cannot be made durable", errno);
}

}  // namespace penstock::store
