#include "swap/directory/held_files.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace penstock::store {

HeldFiles::HeldFiles(const StoreDirectory& directory, std::span<const char* const> names,
                     std::chrono::nanoseconds patience, const WaitNotice& notice) {
    const auto until = std::chrono::steady_clock::now() + patience;
    files_.reserve(names.size());
    for (const char* name : names) {
        struct stat status {};
        // What is not there, or no file, is told by who looks at it.
        if (::fstatat(directory.fd(), name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
        const aio::File& file =
            files_.emplace_back(directory.fd(), name, directory.path() + "/" + name,
                                aio::FileOptions{.mode = aio::FileMode::read_write, .caching = aio::Caching::buffered});
        holds_.emplace_back(file, Sharing::exclusive, until - std::chrono::steady_clock::now(), notice);
    }
}

}  // namespace penstock::store
