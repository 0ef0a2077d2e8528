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

// A hundred rows for each lane; the compute thread's lanes share its row.
constexpr std::size_t rows_of_lane = 100;
std::size_t first_row(TraceLane lane) {
    return lane < TraceLane::read ? 1 : (static_cast<std::size_t>(lane) + 1) * rows_of_lane;
}

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
        for (const TraceThread thread : {TraceThread::compute, TraceThread::driver})
            for (const TraceSpan& span : recorder_.spans(thread)) spans_.push_back(span);
        // Of those that begin at once the longest comes first: it holds the others.
        std::stable_sort(spans_.begin(), spans_.end(), [](const TraceSpan& left, const TraceSpan& right) {
            return left.begin_ns != right.begin_ns ? left.begin_ns < right.begin_ns : left.end_ns > right.end_ns;
        });
        out_ = fmt::format(
            "{}{}, \"traceEvents\": [\n"
            "{{\"ph\": \"M\", \"pid\": 1, \"name\": \"process_name\", \"args\": {{\"name\": \"penstock\"}}}}",
            trace_beginning, recorder_.left_out());
        name_row(1, "compute");
        for (const TraceSpan& span : spans_) add(span);
        return std::move(out_) + "\n]}\n";
    }

   private:
    void name_row(std::size_t row, std::string_view name) {
        fmt::format_to(std::back_inserter(out_),
                       ",\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {0}, \"name\": \"thread_name\", \"args\": {{\"name\": "
                       "{1}}}}},\n{{\"ph\": \"M\", \"pid\": 1, \"tid\": {0}, \"name\": \"thread_sort_index\", "
                       "\"args\": {{\"sort_index\": {0}}}}}",
                       row, in_quotes(name));
    }

    std::size_t row_of(const TraceSpan& span) {
        const std::size_t first = first_row(span.lane);
        if (span.lane < TraceLane::read) return first;
        std::vector<std::int64_t>& ends = ends_.at(static_cast<std::size_t>(span.lane));
        auto free = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) { return end <= span.begin_ns; });
        if (free == ends.end()) {
            name_row(first + ends.size(), names.at(static_cast<std::size_t>(span.lane)));
            free = ends.insert(ends.end(), 0);
        }
        *free = span.end_ns;
        return first + static_cast<std::size_t>(free - ends.begin());
    }

    void add(const TraceSpan& span) {
        const std::size_t row = row_of(span);
        const auto micro = [](std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); };
        const std::string unit = span.unit < recorder_.units().size() ? recorder_.units()[span.unit] : "";
        fmt::format_to(std::back_inserter(out_),
                       ",\n{{\"ph\": \"X\", \"pid\": 1, \"tid\": {}, \"name\": {}, \"cat\": {}, \"ts\": {}, \"dur\": "
                       "{}, \"args\": {{\"step\": {}, \"unit\": {}, \"bytes\": {}}}}}",
                       row, in_quotes(title(recorder_, span)), in_quotes(names.at(static_cast<std::size_t>(span.lane))),
                       micro(span.begin_ns - spans_.front().begin_ns), micro(span.end_ns - span.begin_ns), span.step,
                       in_quotes(unit), span.bytes);
    }

    const TraceRecorder& recorder_;
    std::vector<TraceSpan> spans_;
    std::array<std::vector<std::int64_t>, lanes> ends_;  // by lane and row: of its last span
    std::string out_;
};

}  // namespace

std::string trace_json(const TraceRecorder& recorder) {
    return TraceWriter(recorder).text();
}

}  // namespace penstock::zero
