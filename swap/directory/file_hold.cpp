#include "swap/directory/file_hold.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace penstock::store {
namespace {

// What a killed process had under way takes some milliseconds on a device that works.
constexpr std::chrono::milliseconds noticed_after{500};

std::string notice_of(const aio::File& file, std::chrono::nanoseconds patience) {
    return fmt::format("waiting until what an earlier user had under way in {} has landed, at most {} s", file.path(),
                       std::chrono::ceil<std::chrono::seconds>(patience).count());
}

}  // namespace

FileHold::FileHold(const aio::File& file, Sharing sharing, std::chrono::nanoseconds patience,
                   const WaitNotice& notice) {
    bool told = !notice;
    const int operation = (sharing == Sharing::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
    const auto start = std::chrono::steady_clock::now();
    std::chrono::nanoseconds pause = std::chrono::milliseconds(1);
    while (::flock(file.fd(), operation) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) {
            throw Error(ExitCode::storage, fmt::format("{} cannot be locked: {}; check the file system.", file.path(),
                                                       aio::errno_text(errno)));
        }
        const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
        if (waited >= patience) {
            throw Error(ExitCode::storage,
                        fmt::format("{}: what an earlier user had under way there has not ended for {} s, or something "
                                    "that it started has the file open; nothing was changed. Check the device (dmesg), "
                                    "or what runs, then try again.",
                                    file.path(), std::chrono::duration_cast<std::chrono::seconds>(waited).count()));
        }
        if (!told && waited >= noticed_after) {
            told = true;
            notice(notice_of(file, patience));
        }
        std::this_thread::sleep_for(std::min(pause, patience - waited));
        pause = std::min<std::chrono::nanoseconds>(2 * pause, std::chrono::milliseconds(100));
    }
    fd_ = file.fd();
}

FileHold::~FileHold() {
    if (fd_ >= 0) ::flock(fd_, LOCK_UN);
}

}  // namespace penstock::store
