#include "zero_infinity/trace/trace_file.h"

#include "aio/words/error.h"
#include "zero_infinity/trace/trace_json.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

namespace penstock::zero {
namespace {

constexpr std::size_t spans_per_thread = 200'000;  // of 64 bytes: 25 MB for both

struct Closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Closer>;

std::string partial(const std::string& path) {
    return path + ".partial";
}

std::string reason() {
    return std::generic_category().message(errno);
}

bool is_there_and_no_file(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

}  // namespace

TraceFile::TraceFile(std::string path, std::string setting) : path_(std::move(path)), recorder_(spans_per_thread) {
    if (is_there_and_no_file(path_))
        throw Error(ExitCode::usage, fmt::format("{} {}: that is no file; give a path to write to", setting, path_));
    if (!File(std::fopen(partial(path_).c_str(), "wbe")))
        throw Error(ExitCode::usage,
                    fmt::format("{} {}: {} cannot be written: {}; give a path in a directory that may be written to",
                                setting, path_, partial(path_), reason()));
    std::remove(partial(path_).c_str());
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
    File file(std::fopen(partial(path_).c_str(), "wbe"));
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                         std::fflush(file.get()) == 0 && ::fsync(::fileno(file.get())) == 0 &&
                         std::rename(partial(path_).c_str(), path_.c_str()) == 0;
    if (!written) throw Error(ExitCode::storage, fmt::format("{} could not be written: {}", path_, reason()));
}

}  // namespace penstock::zero
