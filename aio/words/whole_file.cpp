#include "aio/words/whole_file.h"

#include "aio/words/size_limit.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace penstock::aio {

int write_whole(int fd, std::string_view text) noexcept {
    const NoSizeSignal quiet;
    while (!text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return ::fsync(fd) == 0 ? 0 : errno;
}

int sync_name(const std::string& path) {
    const std::string directory = std::filesystem::path(path).parent_path().string();
    const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int error = fd < 0 || ::fsync(fd) != 0 ? errno : 0;
    if (fd >= 0) ::close(fd);
    return error;
}

int give_name(const std::string& aside, const std::string& path) {
    return std::rename(aside.c_str(), path.c_str()) == 0 ? sync_name(path) : errno;
}

}  // namespace penstock::aio
