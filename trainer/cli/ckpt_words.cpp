#include "trainer/cli/ckpt_words.h"

#include "swap/format/utf8.h"
#include "trainer/cli/console.h"
#include "trainer/cli/step_record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t longest_value = 60;
constexpr std::uint64_t bar_columns = 20;
constexpr std::uint64_t year_9999_seconds = 253'402'300'799;  // a hostile manifest must not break the calendar

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
    constexpr std::array units = {"kB", "MB", "GB", "TB", "PB"};
    if (bytes < 1000) return fmt::format("{} B", bytes);
    auto value = static_cast<double>(bytes) / 1000;
    std::size_t unit = 0;
    for (; value >= 999.995 && unit + 1 < units.size(); ++unit) value /= 1000;
    return fmt::format("{:.2f} {}", value, units.at(unit));
}

std::string time_text(std::uint64_t seconds) {
    if (seconds > year_9999_seconds) return "at an impossible time";
    return fmt::format("{:%Y-%m-%d %H:%M:%S UTC}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

std::string value_text(const std::string& value) {
    const bool printable = store::is_utf8(value) && std::none_of(value.begin(), value.end(), [](char c) {
                               return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
                           });
    if (!printable) return fmt::format("<{} bytes>", value.size());
    if (value.size() <= longest_value) return value;
    std::size_t end = longest_value;
    while (end > 0 && store::continues_character(value[end])) --end;
    return fmt::format("{}… <{} bytes>", value.substr(0, end), value.size());
}

ordered_json json_of_value(const std::string& value) {
    if (store::is_utf8(value)) return value;
    return {{"bytes", value.size()}, {"hex", hex(value)}};
}

std::optional<std::int64_t> number_in(const std::string& text) {
    std::int64_t value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<std::int64_t> step_of(const store::ClientState& client) {
    const auto found = client.find("step");
    return found == client.end() ? std::nullopt : number_in(found->second);
}

ordered_json json_of_step(const store::ClientState& client) {
    const auto step = step_of(client);
    return step ? ordered_json(*step) : ordered_json(nullptr);
}

std::string dump(const ordered_json& object) {
    return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i)
            line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
        text += line + "\n";
    }
    return text;
}

std::string progress_text(const WorkDone& work) {
    const double share =
        work.total_bytes == 0 ? 1 : static_cast<double>(work.done_bytes) / static_cast<double>(work.total_bytes);
    const auto full = static_cast<std::uint64_t>(share * static_cast<double>(bar_columns));
    const double rate = work.seconds > 0 ? static_cast<double>(work.done_bytes) / work.seconds : 0;
    const double left = static_cast<double>(work.total_bytes - work.done_bytes);
    const auto whole = static_cast<std::uint64_t>(rate);
    const std::string rate_text =
        whole > 0 && rate < 5e6 ? size_text(whole) + "/s" : fmt::format("{:.2f} GB/s", rate / 1e9);
    return fmt::format("[{}{}] {:3.0f} %  {} of {}  {}  ETA {}", std::string(full, '#'),
                       std::string(bar_columns - full, '.'), std::floor(share * 100), size_text(work.done_bytes),
                       size_text(work.total_bytes), rate_text, rate > 0 ? duration_text(left / rate) : "?");
}

void ProgressLine::show(std::uint64_t done_bytes, std::uint64_t total_bytes) {
    const std::string line =
        what_ + " " + progress_text({.done_bytes = done_bytes, .total_bytes = total_bytes, .seconds = seconds()});
    if (console_.is_terminal()) return console_.live_now_and_then(line);
    const std::uint64_t tenths = done_bytes >= total_bytes ? 10 : done_bytes / (total_bytes / 10 + 1);
    if (tenths <= tenths_) return;
    tenths_ = tenths;
    console_.info(line);
}

double ProgressLine::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace penstock::trainer
