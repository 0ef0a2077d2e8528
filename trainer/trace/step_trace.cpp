#include "trainer/trace/step_trace.h"

#include "aio/words/error.h"
#include "trainer/cli/console.h"
#include "trainer/data/plain_file.h"
#include "zero_infinity/trace/trace_json.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <span>

namespace penstock::trainer {
namespace {

constexpr std::size_t spans_per_thread = 200'000;  // of 64 bytes: 25 MB for both

std::string partial(const std::string& path) {
    return path + ".partial";
}

std::int64_t number(std::string_view text, const std::string& whole) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1)
        throw Error(ExitCode::usage,
                    fmt::format("--trace-steps {}: give a step or a range of steps, such as 10 or 10..12", whole));
    return value;
}

void refuse_what_is_no_file(const std::string& path) {
    struct stat found {};
    if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode))
        throw Error(ExitCode::usage, fmt::format("--trace {}: that is no file; give a path to write to", path));
}

}  // namespace

StepTrace::StepTrace(const TraceRequest& request, Console& console) : console_(console), path_(request.path) {
    if (path_.empty() && !request.steps.empty())
        throw Error(ExitCode::usage, "--trace-steps is given, but not --trace FILE, where the trace goes");
    if (path_.empty()) return;
    if (!request.steps.empty()) {
        const std::string_view text = request.steps;
        const std::size_t dots = text.find("..");
        first_ = number(text.substr(0, dots), request.steps);
        last_ = dots == std::string_view::npos ? first_ : number(text.substr(dots + 2), request.steps);
        if (last_ < first_)
            throw Error(ExitCode::usage, fmt::format("--trace-steps {}: the last step comes first", request.steps));
    }
    refuse_what_is_no_file(path_);
    try {
        const PlainFile tried(partial(path_), PlainFile::Mode::replace);
    } catch (const Error& error) {
        throw Error(ExitCode::usage, fmt::format("--trace {}: {}; give a path in a directory that may be written to",
                                                 path_, error.what()));
    }
    recorder_ = std::make_unique<zero::TraceRecorder>(spans_per_thread);
}

StepTrace::~StepTrace() {
    if (recorder_ == nullptr) return;
    try {
        write();
    } catch (const std::exception& error) {
        console_.warn(fmt::format("the trace was not written: {}; the run is not affected", error.what()));
    }
}

void StepTrace::begin_after(std::int64_t step) {
    if (first_ != 0) return;
    first_ = step + 3;
    last_ = step + 5;
}

void StepTrace::begin_step(std::int64_t step) noexcept {
    if (recorder_ == nullptr) return;
    if (step >= first_ && step <= last_)
        recorder_->begin_step(static_cast<std::uint64_t>(step));
    else
        recorder_->end_steps();
}

void StepTrace::end_steps() noexcept {
    if (recorder_ != nullptr) recorder_->end_steps();
}

void StepTrace::write() {
    const std::string text = zero::trace_json(*recorder_);
    {
        PlainFile file(partial(path_), PlainFile::Mode::replace);
        file.write_at(0, std::as_bytes(std::span(text)));
        file.sync();
    }
    rename_durably(partial(path_), path_);
    const std::uint64_t left_out = recorder_->left_out();
    console_.info(fmt::format("trace of steps {} to {}: {}{}; open it in ui.perfetto.dev", first_, last_, path_,
                              left_out == 0 ? "" : fmt::format(", but {} spans found no room", left_out)));
}

}  // namespace penstock::trainer
