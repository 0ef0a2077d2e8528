#include "swap/directory/directory_names.h"

#include "aio/profile.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/snapshot_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

namespace penstock::store {

int list_names(int directory_fd, std::vector<std::string>& names) {
    const int copy = ::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);  // with a position of its own
    if (copy < 0) return errno;
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(copy), ::closedir);
    if (!listing) {
        const int error = errno;
        ::close(copy);
        return error;
    }
    names.clear();
    for (;;) {
        errno = 0;
        const dirent* entry = ::readdir(listing.get());
        if (entry == nullptr) break;
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return errno;
    std::sort(names.begin(), names.end());
    return 0;
}

bool may_stand_beside(std::string_view name) noexcept {
    return name == aio::profile_name || name == snapshot_folder_name || name == spill_file_name || name == "lost+found";
}

bool has_name(int directory_fd, const std::string& directory_path, const char* name) {
    struct stat status {};
    if (::fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0) return true;
    if (errno == ENOENT) return false;
    throw Error(ExitCode::storage, fmt::format("{}/{}: it cannot be found out whether it is there: {}; nothing was "
                                               "changed. Check the path and the device, then try again.",
                                               directory_path, name, aio::errno_text(errno)));
}

}  // namespace penstock::store
