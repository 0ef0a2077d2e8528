#include "trainer/cli/ckpt_words.h"

#include "swap/format/utf8.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t longest_value = 60;
constexpr std::uint64_t year_9999_seconds = 253'402'300'799;  // a hostile manifest must not break the calendar

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}

// Of UTF-8: a terminal obeys U+0080 to U+009F, too.
bool has_control(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20 || byte == 0x7f) return true;
        if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
    }
    return false;
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
    if (!store::is_utf8(value) || has_control(value)) return fmt::format("<{} bytes>", value.size());
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
    for (const char* key : {"step", "updates"})
        if (const auto found = client.find(key); found != client.end()) return number_in(found->second);
    return std::nullopt;
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

}  // namespace penstock::trainer
