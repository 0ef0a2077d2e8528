#include "trainer/trace/step_trace.h"

#include "aio/words/error.h"
#include "trainer/cli/console.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

namespace penstock::trainer {
namespace {

std::uint64_t number(std::string_view text, const std::string& whole) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 1)
        throw Error(ExitCode::usage,
                    fmt::format("--trace-steps {}: give a step or a range of steps, such as 10 or 10..12", whole));
    return value;
}

}  // namespace

StepTrace::StepTrace(const TraceRequest& request, Console& console) : console_(console) {
    if (request.path.empty() && !request.steps.empty())
        throw Error(ExitCode::usage, "--trace-steps is given, but not --trace FILE, where the trace goes");
    if (request.path.empty()) return;
    std::uint64_t first = 0, last = 0;
    if (!request.steps.empty()) {
        const std::string_view text = request.steps;
        const std::size_t dots = text.find("..");
        first = number(text.substr(0, dots), request.steps);
        last = dots == std::string_view::npos ? first : number(text.substr(dots + 2), request.steps);
        if (last < first)
            throw Error(ExitCode::usage, fmt::format("--trace-steps {}: the last step comes first", request.steps));
    }
    file_.emplace(request.path, "--trace");
    named_ = first > 0;
    if (named_) file_->record(first, last);
}

StepTrace::~StepTrace() {
    if (!file_) return;
    try {
        file_->write();
        const std::uint64_t left_out = file_->recorder().left_out();
        console_.info(fmt::format("trace of steps {} to {}: {}{}; open it in ui.perfetto.dev", file_->first(),
                                  file_->last(), file_->path(),
                                  left_out == 0 ? "" : fmt::format(", but {} spans found no room", left_out)));
    } catch (const std::exception& error) {
        console_.warn(fmt::format("the trace was not written: {}; the run is not affected", error.what()));
    }
}

void StepTrace::begin_after(std::int64_t step) {
    const auto after = static_cast<std::uint64_t>(step);
    if (file_ && !named_) file_->record(after + 3, after + 5);
}

void StepTrace::begin_step(std::int64_t step) noexcept {
    if (file_) file_->begin_step(static_cast<std::uint64_t>(step));
}

void StepTrace::end_steps() noexcept {
    if (file_) file_->end_steps();
}

}  // namespace penstock::trainer
