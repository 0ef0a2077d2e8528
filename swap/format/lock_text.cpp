#include "swap/format/lock_text.h"

#include "aio/words/check.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

namespace penstock::store {
namespace {

constexpr std::size_t max_since_bytes = 20;
constexpr std::string_view first_line = "penstock store directory, format 1\n";

// Takes "KEY: VALUE\n" from the front of `text`.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view key) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    if (line.size() < key.size() + 2 || line.substr(0, key.size()) != key || line.substr(key.size(), 2) != ": ")
        return std::nullopt;
    text.remove_prefix(end + 1);
    return line.substr(key.size() + 2);
}

template <typename Integer>
bool parse_integer(std::string_view text, Integer& value, int base = 10) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc{} && end == text.data() + text.size();
}

bool take_uuid(std::string_view text, StoreUuid& uuid) {
    const std::optional<StoreUuid> parsed = parse_uuid(text);
    if (parsed) uuid = *parsed;
    return parsed.has_value();
}

// "DEVICE of COUNT in UUID" or "none".
bool parse_role(std::string_view text, std::optional<DeviceRole>& role) {
    if (text == "none") return true;
    const std::size_t of = text.find(" of ");
    const std::size_t in = text.find(" in ");
    if (of == std::string_view::npos || in == std::string_view::npos || in < of + 4) return false;
    DeviceRole parsed;
    const bool whole = parse_integer(text.substr(0, of), parsed.device) &&
                       parse_integer(text.substr(of + 4, in - of - 4), parsed.device_count) &&
                       take_uuid(text.substr(in + 4), parsed.store);
    if (!whole || parsed.device >= parsed.device_count || parsed.device_count > max_device_count) return false;
    role = parsed;
    return true;
}

bool is_control(char c) noexcept {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

// The last line of a text: XXH3-64 of what stands before it.
std::string check_of(std::string_view text) {
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace

bool is_possible_job(std::string_view job) noexcept {
    return !job.empty() && job.size() <= max_job_bytes && std::none_of(job.begin(), job.end(), is_control);
}

std::string format(const LockText& lock) {
    const std::string role = !lock.role ? "none"
                                        : fmt::format("{} of {} in {}", lock.role->device, lock.role->device_count,
                                                      to_string(lock.role->store));
    std::string text = fmt::format("{}job: {}\nuuid: {}\ndevice: {}\npid: {}\nhost: {}\nsince: {}\n", first_line,
                                   lock.job, to_string(lock.uuid), role, lock.pid, lock.host, lock.since);
    text += fmt::format("check: {}\n", check_of(text));
    PENSTOCK_CHECK(text.size() <= lock_text_bytes, "lock text of {} bytes", text.size());
    text.resize(lock_text_bytes, '\n');
    return text;
}

std::optional<LockText> parse_lock(std::string_view text) {
    const std::string_view whole = text;
    if (text.substr(0, first_line.size()) != first_line) return std::nullopt;
    text.remove_prefix(first_line.size());
    LockText lock;
    const auto job = take_line(text, "job");
    const auto uuid = take_line(text, "uuid");
    const auto role = take_line(text, "device");
    if (!job || !is_possible_job(*job) || !uuid || !role || !take_uuid(*uuid, lock.uuid) ||
        !parse_role(*role, lock.role))
        return std::nullopt;
    lock.job = *job;
    // Who held it last only explains a refusal: unreadable lines are no reason to give the directory up.
    if (const auto pid = take_line(text, "pid"); pid && !parse_integer(*pid, lock.pid)) lock.pid = 0;
    const auto shown = [](std::string_view line, std::size_t most) {
        return line.size() <= most && std::none_of(line.begin(), line.end(), is_control) ? std::string(line) : "?";
    };
    if (const auto host = take_line(text, "host")) lock.host = shown(*host, max_host_bytes);
    if (const auto since = take_line(text, "since")) lock.since = shown(*since, max_since_bytes);
    const std::string_view checked = whole.substr(0, whole.size() - text.size());
    if (const auto check = take_line(text, "check"); check && *check != check_of(checked)) return std::nullopt;
    return lock;
}

std::string lock_file(const LockText& lock) {
    const std::string text = format(lock);
    return text + text;
}

std::optional<LockText> parse_lock_file(std::string_view file) {
    std::optional<LockText> lock = parse_lock(file.substr(0, lock_text_bytes));
    if (!lock && file.size() > lock_text_bytes) lock = parse_lock(file.substr(lock_text_bytes));
    return lock;
}

bool is_unfinished_lock(std::string_view file) {
    const std::string_view text = file.substr(0, file.find_last_not_of('\0') + 1);
    if (parse_lock_file(file)) return false;
    return text.size() < first_line.size() ? first_line.starts_with(text) : text.starts_with(first_line);
}

std::optional<StoreUuid> parse_uuid(std::string_view text) {
    StoreUuid uuid{};
    if (text.size() != 36) return std::nullopt;
    for (std::size_t i = 0, at = 0; i < uuid.size(); ++i, at += 2) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            if (text[at++] != '-') return std::nullopt;
        }
        std::uint8_t value = 0;
        if (!parse_integer(text.substr(at, 2), value, 16)) return std::nullopt;
        uuid[i] = std::byte{value};
    }
    return uuid;
}

}  // namespace penstock::store
