// A directory of a test's own, removed with its contents when the test ends, however it ends.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace penstock {

// Below `parent`; without one below the current directory, which under ctest is the build folder and on a disk where
// /tmp may be memory, or below the system's for temporary files where this user may not write to the current one.
//
// A process that is killed, aborts or is the child of a death test cannot remove its own. So each directory is locked
// while its owner lives, and whoever makes or removes one also removes those beside it that nobody holds any more.
class TemporaryDirectory {
   public:
    TemporaryDirectory() : TemporaryDirectory(usual_parent()) {}
    explicit TemporaryDirectory(const std::filesystem::path& parent) : parent_(std::filesystem::absolute(parent)) {
        remove_abandoned();
        while (!make()) {
        }
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
        ::close(lock_);
        remove_abandoned();
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    const std::string& path() const noexcept { return path_; }  // absolute
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    std::string file(const std::string& name) const { return *this / name; }

   private:
    static constexpr const char* prefix = "penstock-test-";

    static std::filesystem::path usual_parent() {
        const std::filesystem::path here = std::filesystem::current_path();
        return ::access(here.c_str(), W_OK | X_OK) == 0 ? here : std::filesystem::temp_directory_path();
    }

    // False: somebody took it for abandoned before it was locked.
    bool make() {
        path_ = (parent_ / prefix).string() + "XXXXXX";
        if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no temporary directory: " + path_);
        lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status = {};
        if (lock_ >= 0 && ::flock(lock_, LOCK_EX) == 0 && ::fstat(lock_, &status) == 0 && status.st_nlink > 0)
            return true;
        ::close(lock_);
        return false;
    }

    // This user's, as far as they can be removed.
    void remove_abandoned() const noexcept {
        std::error_code error;
        std::filesystem::directory_iterator entry(parent_, error);
        for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
            if (!entry->path().filename().string().starts_with(prefix)) continue;
            const int fd = ::open(entry->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            struct stat status = {};
            std::error_code ignored;
            if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_uid == ::geteuid() &&
                ::flock(fd, LOCK_EX | LOCK_NB) == 0)
                std::filesystem::remove_all(entry->path(), ignored);
            if (fd >= 0) ::close(fd);
        }
    }

    std::filesystem::path parent_;
    std::string path_;
    int lock_ = -1;
};

}  // namespace penstock
