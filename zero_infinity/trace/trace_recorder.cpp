#include "zero_infinity/trace/trace_recorder.h"

#include <chrono>
#include <utility>

namespace penstock::zero {
namespace {

std::int64_t now_ns() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

TraceRecorder::TraceRecorder(std::size_t spans_per_thread) : capacity_(spans_per_thread) {
    for (Buffer& buffer : buffers_) buffer.spans.reserve(capacity_);
}

void TraceRecorder::set_names(std::vector<std::string> units, std::vector<std::string> objects) {
    units_ = std::move(units);
    objects_ = std::move(objects);
}

TraceStart TraceRecorder::start() const noexcept {
    const std::uint64_t step = step_.load(std::memory_order_relaxed);
    return {step, step == 0 ? 0 : now_ns()};
}

void TraceRecorder::add(TraceThread thread, const TraceStart& start, TraceSpan span) noexcept {
    if (start.step == 0) return;
    Buffer& buffer = buffers_.at(static_cast<std::size_t>(thread));
    if (buffer.spans.size() == capacity_) {
        ++buffer.left_out;
        return;
    }
    span.step = start.step;
    span.begin_ns = start.begin_ns;
    span.end_ns = now_ns();
    buffer.spans.push_back(span);
}

std::uint64_t TraceRecorder::left_out() const noexcept {
    std::uint64_t count = 0;
    for (const Buffer& each : buffers_) count += each.left_out;
    return count;
}

}  // namespace penstock::zero
