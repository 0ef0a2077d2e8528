#include "zero_infinity/trace/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace penstock::zero {
namespace {

constexpr std::size_t lanes = static_cast<std::size_t>(TraceLane::spill_in) + 1;
constexpr std::array<std::string_view, lanes> names{
    "compute",    "wait for weights", "wait for tiles", "wait for commit", "wait for spill", "update",  "NVMe read",
    "NVMe write", "host to device",   "device to host", "commit",          "spill out",      "spill in"};

// A hundred rows for each lane; those of the compute thread share its row, and those of updates beside it another.
constexpr std::size_t rows_of_lane = 100;
constexpr std::size_t compute_row = 1, updates_row = 2;

std::string in_quotes(std::string_view text) {
    std::string out = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\')
            out += {'\\', each};
        else if (static_cast<unsigned char>(each) < 0x20)
            out += fmt::format("\\u{:04x}", static_cast<int>(each));
        else
            out += each;
    }
    return out + '"';
}

std::string title(const TraceRecorder& recorder, const TraceSpan& span) {
    std::string text(names.at(static_cast<std::size_t>(span.lane)));
    if (span.object < recorder.objects().size())
        text += " " + recorder.objects()[span.object];
    else if (span.unit < recorder.units().size())
        text += " " + recorder.units()[span.unit];
    return span.tile == no_trace_index ? text : text + fmt::format(" [{}]", span.tile);
}

class TraceWriter {
   public:
    explicit TraceWriter(const TraceRecorder& recorder) : recorder_(recorder) {}

    std::string text() {
        for (const TraceThread thread : {TraceThread::compute, TraceThread::driver, TraceThread::updates})
            for (const TraceSpan& span : recorder_.spans(thread)) spans_.push_back({span, thread});
        // Of those that begin at once the longest comes first: it holds the others.
        std::stable_sort(spans_.begin(), spans_.end(), [](const Shown& left, const Shown& right) {
            return left.span.begin_ns != right.span.begin_ns ? left.span.begin_ns < right.span.begin_ns
                                                             : left.span.end_ns > right.span.end_ns;
        });
        out_ = fmt::format(
            "{}{}, \"traceEvents\": [\n"
            "{{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {{\"name\": \"penstock\"}}}}",
            trace_beginning, recorder_.left_out());
        name_row(compute_row, "compute");
        if (!recorder_.spans(TraceThread::updates).empty()) name_row(updates_row, "updates");
        for (const Shown& each : spans_) add(each);
        return std::move(out_) + "\n]}\n";
    }

   private:
    struct Shown {
        TraceSpan span;
        TraceThread thread = TraceThread::compute;
    };

    void name_row(std::size_t row, std::string_view name) {
        fmt::format_to(std::back_inserter(out_),
                       ",\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {0}, \"name\": \"thread_name\", \"args\": {{\"name\": "
                       "{1}}}}},\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {0}, \"name\": \"thread_sort_index\", "
                       "\"args\": {{\"sort_index\": {0}}}}}",
                       row, in_quotes(name));
    }

    std::size_t row_of(const Shown& each) {
        if (each.thread == TraceThread::compute) return compute_row;
        if (each.thread == TraceThread::updates) return updates_row;
        const TraceSpan& span = each.span;
        const std::size_t first = (static_cast<std::size_t>(span.lane) + 1) * rows_of_lane;
        std::vector<std::int64_t>& ends = ends_.at(static_cast<std::size_t>(span.lane));
        auto free = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= span.begin_ns; });
        if (free == ends.end()) {
            name_row(first + ends.size(), names.at(static_cast<std::size_t>(span.lane)));
            free = ends.insert(ends.end(), 0);
        }
        *free = span.end_ns;
        return first + static_cast<std::size_t>(free - ends.begin());
    }

    void add(const Shown& each) {
        const std::size_t row = row_of(each);
        const TraceSpan& span = each.span;
        const auto micro = [](std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); };
        const std::string unit = span.unit < recorder_.units().size() ? recorder_.units()[span.unit] : "";
        fmt::format_to(std::back_inserter(out_),
                       ",\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"name\": {}, \"cat\": {}, \"ts\": {}, \"dur\": "
                       "{}, \"args\": {{\"step\": {}, \"unit\": {}, \"bytes\": {}}}}}",
                       row, in_quotes(title(recorder_, span)), in_quotes(names.at(static_cast<std::size_t>(span.lane))),
                       micro(span.begin_ns - spans_.front().span.begin_ns), micro(span.end_ns - span.begin_ns),
                       span.step, in_quotes(unit), span.bytes);
    }

    const TraceRecorder& recorder_;
    std::vector<Shown> spans_;
    std::array<std::vector<std::int64_t>, lanes> ends_;  // by lane and row: of its last span
    std::string out_;
};

}  // namespace

std::string trace_json(const TraceRecorder& recorder) {
    return TraceWriter(recorder).text();
}

}  // namespace penstock::zero
