#include "trainer/run/run_log.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr std::size_t piece_bytes = 1U << 20;

struct LoggedStep {
    std::int64_t step = 0;
    std::optional<std::int64_t> committed;
    std::optional<double> loss;
    std::optional<double> norm;
};

// Nothing when the line is no whole record.
std::optional<LoggedStep> parse_line(std::string_view line) {
    const auto object = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object()) return std::nullopt;
    const auto number = [&](const char* key) -> std::optional<std::int64_t> {
        const auto found = object.find(key);
        if (found == object.end() || !found->is_number_integer()) return std::nullopt;
        return found->get<std::int64_t>();
    };
    const auto real = [&](const char* key) -> std::optional<double> {
        const auto found = object.find(key);
        if (found == object.end() || !found->is_number()) return std::nullopt;
        return found->get<double>();
    };
    const auto step = number("step");
    if (!step || *step < 1) return std::nullopt;
    return LoggedStep{.step = *step, .committed = number("committed"), .loss = real("loss"), .norm = real("grad_norm")};
}

// Both come from the same number, written so that it reads back to its bits; one of them may be damaged.
LogKin kin_of(const LoggedStep& logged, const std::optional<double>& loss, const std::optional<double>& norm) {
    const bool comparable = (logged.loss && loss) || (logged.norm && norm);
    const bool same = (loss && logged.loss == loss) || (norm && logged.norm == norm);
    if (!comparable) return LogKin::unknown;
    return same ? LogKin::same : LogKin::other;
}

// Takes the lines one after the other.
class Account {
   public:
    explicit Account(std::int64_t limit) : limit_(limit) {}

    // Whether it counts and is kept.
    bool add(std::string_view line) {
        const auto logged = parse_line(line);
        const bool beyond = logged && logged->step > limit_;
        if (!logged || logged->step <= (beyond ? beyond_ : newest_)) {
            bad_ = true;
            return false;
        }
        if (!beyond && beyond_ > limit_) bad_ = true;  // a step of nobody came before
        if (logged->committed && logged->committed != account_.committed)
            account_.one_before = std::exchange(account_.committed, logged->committed);
        if (beyond) {
            beyond_ = logged->step;
            return false;
        }
        keep(logged->step, line.size() + 1);
        newest_ = logged->step;
        return true;
    }

    // Where no line counts, what is there is somebody's all the same.
    LogAccount result() const noexcept {
        LogAccount account = account_;
        if (bad_ && limit_ > 0 && !account.last_step) account.damaged = true;
        return account;
    }

   private:
    // What is bad behind the last line that is kept will be cut off with the rest.
    void keep(std::int64_t step, std::size_t bytes) {
        if (newest_ > 0) account_.missing_steps += step - newest_ - 1;
        if (!account_.first_step) account_.first_step = step;
        account_.last_step = step;
        account_.damaged = account_.damaged || bad_;
        if (!account_.damaged) account_.kept_bytes += bytes;
    }

    std::int64_t limit_;
    LogAccount account_;
    std::int64_t newest_ = 0;  // step of the last line that counts, up to the limit
    std::int64_t beyond_ = 0;  // and beyond it
    bool bad_ = false;
};

// Calls `take` with each line, the last one too when only its end is missing.
template <typename Take>
void for_each_line(const PlainFile& file, const Take& take) {
    std::uint64_t offset = 0;
    std::string pending;
    std::vector<std::byte> piece(piece_bytes);
    for (std::size_t got = 0; (got = file.read_at(offset, piece)) > 0; offset += got) {
        pending.append(reinterpret_cast<const char*>(piece.data()), got);
        std::size_t begin = 0;
        for (auto end = pending.find('\n'); end != std::string::npos; begin = end + 1, end = pending.find('\n', begin))
            take(std::string_view(pending).substr(begin, end - begin));
        pending.erase(0, begin);
    }
    if (!pending.empty()) take(std::string_view(pending));
}

LogAccount account_of(const PlainFile& file, std::int64_t limit) {
    Account account(limit);
    for_each_line(file, [&](std::string_view line) { account.add(line); });
    return account.result();
}

}  // namespace

LogAccount read_log(const std::string& path, const RunState& state) {
    std::error_code unknown;
    if (std::filesystem::status(path, unknown).type() == std::filesystem::file_type::not_found) return {};
    const PlainFile file(path, PlainFile::Mode::read_ours);
    LogAccount account = account_of(file, state.step);
    for_each_line(file, [&](std::string_view line) {
        const std::optional<LoggedStep> logged = parse_line(line);
        if (logged && logged->step == 1 && account.kin == LogKin::unknown)
            account.kin = kin_of(*logged, state.first_loss, {});
        if (logged && logged->step == state.step && state.step > 0)
            account.kin = kin_of(*logged, state.last_loss, state.last_norm);
    });
    return account;
}

RunLog::RunLog(const std::string& path, std::int64_t committed, Begin begin)
    : file_(path, PlainFile::Mode::read_write_create) {
    const LogAccount account = account_of(file_, committed);
    last_step_ = account.last_step;
    end_bytes_ = account.kept_bytes;
    if (account.damaged) {
        write_anew(committed);
    } else {
        // A last line that only lacked its end.
        if (end_bytes_ > file_.bytes()) file_.write_at(end_bytes_ - 1, std::as_bytes(std::span("\n", 1)));
        file_.truncate(end_bytes_);
    }
    std::int64_t missing = account.missing_steps;
    if (account.first_step && begin == Begin::first) missing += *account.first_step - 1;
    if (last_step_) missing += std::max<std::int64_t>(committed - 1 - *last_step_, 0);
    if (!last_step_ && committed > 1)
        notes_.push_back(fmt::format("{} has no lines of the steps up to {}", path, committed));
    if (missing > 0) notes_.push_back(fmt::format("{} lacks {} of the steps up to {}", path, missing, committed));
}

void RunLog::write_anew(std::int64_t committed) {
    const std::string path = file_.path();
    const PlainFile damaged = std::exchange(file_, PlainFile());
    const std::string aside = set_aside(path);
    file_ = PlainFile(path, PlainFile::Mode::read_write_create);
    end_bytes_ = 0;
    Account account(committed);
    for_each_line(damaged, [&](std::string_view line) {
        if (account.add(line)) append_line(std::string(line));
    });
    file_.sync();
    notes_.push_back(
        fmt::format("{} had lines that are no steps in order; it is {} now, and its good lines are in a "
                    "new one",
                    path, aside));
}

void RunLog::append(const StepRecord& record) {
    append_line(json_of(record));
    last_step_ = record.step;
    // What is reported as committed stays in the account of it, too.
    if (record.committed) file_.sync();
}

// Torn by a power cut it is no line, and the commit restores it.
void RunLog::replace_last(const StepRecord& record) {
    PENSTOCK_CHECK(last_line_bytes_ > 0 && last_step_ == record.step, "the last line is not of step {}", record.step);
    end_bytes_ -= last_line_bytes_;
    append_line(json_of(record));
    file_.truncate(end_bytes_);
    file_.sync();
}

void RunLog::restore(const StepRecord& record) {
    if (last_step_.value_or(0) != record.step - 1) return;
    append_line(json_of_restored(record));
    last_step_ = record.step;
    file_.sync();
}

void RunLog::append_line(const std::string& line) {
    const std::string whole = line + "\n";
    file_.write_at(end_bytes_, std::as_bytes(std::span(whole)));
    end_bytes_ += whole.size();
    last_line_bytes_ = whole.size();
}

std::string set_aside(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    if (const auto bytes = fs::file_size(path, error); error || bytes == 0) return {};
    const fs::path log(path);
    for (int number = 1;; ++number) {
        const fs::path free =
            log.parent_path() / fmt::format("{}.{}{}", log.stem().string(), number, log.extension().string());
        if (fs::exists(free)) continue;
        rename_durably(path, free.string());
        return free.string();
    }
}

}  // namespace penstock::trainer
