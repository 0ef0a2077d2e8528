#include "zero_infinity/trace/trace_file.h"

#include "aio/words/error.h"
#include "aio/words/whole_file.h"
#include "swap/directory/descriptor.h"
#include "swap/format/disk_place.h"
#include "zero_infinity/trace/trace_json.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::zero {
namespace {

constexpr std::size_t spans_per_thread = 200'000;  // of 64 bytes: 38 MB for all three

std::string reason(int error) {
    return std::generic_category().message(error);
}

bool is_there_and_no_file(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

// Ours by its name, and emptied only where it is what a killed process left: nobody's file, and no other name of one.
class Unfinished {
   public:
    Unfinished(const std::string& path, const std::string& setting, ExitCode otherwise)
        : path_(unfinished_trace(path)),
          fd_(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666)) {
        if (!fd_)
            throw Error(
                otherwise,
                fmt::format("{} {}: {} cannot be written: {}; give a path in a directory that may be written to",
                            setting, path, path_, reason(errno)));
        if (!is_a_trace())
            throw Error(otherwise, fmt::format("{} {}: {} is in the way, and is no trace that was cut short; move "
                                               "it away, or give another path",
                                               setting, path, path_));
        ours_ = true;
    }
    ~Unfinished() {
        if (ours_) ::unlink(path_.c_str());
    }
    Unfinished(const Unfinished&) = delete;
    Unfinished& operator=(const Unfinished&) = delete;

    // Whole and durable, by its name. Returns 0 or an errno.
    int become(const std::string& path, std::string_view text) {
        int error = ::ftruncate(fd_.get(), 0) == 0 ? 0 : errno;
        if (error == 0) error = aio::write_whole(fd_.get(), text);
        if (error == 0) error = aio::give_name(path_, path);
        ours_ = error != 0;
        return error;
    }

   private:
    bool is_a_trace() const {
        struct stat found {};
        if (::fstat(fd_.get(), &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink != 1) return false;
        std::string beginning(trace_beginning.size(), ' ');
        const ssize_t got = ::pread(fd_.get(), beginning.data(), beginning.size(), 0);
        const auto count = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
        return got >= 0 && trace_beginning.substr(0, count) == std::string_view(beginning).substr(0, count);
    }

    std::string path_;
    store::Descriptor fd_;
    bool ours_ = false;
};

}  // namespace

std::string unfinished_trace(const std::string& path) {
    return path + ".partial";
}

void refuse_in_store(const std::string& path, const std::string& setting, const std::vector<std::string>& directories) {
    const store::DiskPlace place(path);
    for (const std::string& directory : directories) {
        if (!place.is_at_or_beneath(store::DiskPlace(directory))) continue;
        throw Error(ExitCode::usage,
                    fmt::format("{} {}: that is in the store's directory {}, where only the store's files may be; give "
                                "a path outside of it",
                                setting, path, directory));
    }
}

TraceFile::TraceFile(std::string path, std::string setting)
    : path_(std::move(path)), setting_(std::move(setting)), recorder_(spans_per_thread) {
    if (is_there_and_no_file(path_))
        throw Error(ExitCode::usage, fmt::format("{} {}: that is no file; give a path to write to", setting_, path_));
    const Unfinished can_be_made(path_, setting_, ExitCode::usage);
}

void TraceFile::record(std::uint64_t first, std::uint64_t last) noexcept {
    first_ = first;
    last_ = last;
}

void TraceFile::begin_step(std::uint64_t step) noexcept {
    if (step >= first_ && step <= last_)
        recorder_.begin_step(step);
    else
        recorder_.end_steps();
}

void TraceFile::write() const {
    const std::string text = trace_json(recorder_);
    if (const int error = Unfinished(path_, setting_, ExitCode::storage).become(path_, text))
        throw Error(ExitCode::storage, fmt::format("{} could not be written: {}", path_, reason(error)));
}

}  // namespace penstock::zero
