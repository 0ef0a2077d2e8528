#include "trainer/cli/step_record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <ctime>
#include <string_view>

namespace penstock::trainer {
namespace {

double gigabytes_per_second(std::uint64_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

std::string committed_text(const StepRecord& record) {
    return record.committed ? fmt::format("committed {}", *record.committed) : "scratch";
}

constexpr std::string_view updated_again = "updated again";

std::string time_text(std::int64_t since_1970_s) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(since_1970_s)));
}

}  // namespace

std::string line_of(const StepRecord& record) {
    return fmt::format(
        "step {}/{}  loss {:.4f} mean {:.4f}  norm {:.3f}  lr {:.3g}  {:.0f} tok/s  {:.2f} s  ETA {}  NVMe r {:.2f} w "
        "{:.2f} GB/s  "
        "waited {:.0f} %  "
        "pool {:.0f}/{:.0f} MiB, activations {:.0f} MiB  {}{}",
        record.step, record.steps, record.loss, record.smooth_loss, record.gradient_norm, record.learning_rate,
        record.tokens_per_second(), record.seconds, duration_text(record.seconds_left),
        gigabytes_per_second(record.read_bytes, record.seconds),
        gigabytes_per_second(record.write_bytes, record.seconds), 100 * record.waited_share(),
        static_cast<double>(record.pool_peak_bytes) / 0x1p20, static_cast<double>(record.pool_budget_bytes) / 0x1p20,
        static_cast<double>(record.activation_bytes) / 0x1p20, committed_text(record),
        record.updated_again ? fmt::format("  {}", updated_again) : "");
}

std::string live_line_of(const StepRecord& record, std::size_t columns) {
    // Most wanted first: what has no room is left out, whole.
    const std::array fields = {
        fmt::format("{}/{} loss {:.4f} mean {:.4f}", record.step, record.steps, record.loss, record.smooth_loss),
        record.committed == record.step ? "" : committed_text(record),  // that a step is committed is the rule
        std::string(record.updated_again ? updated_again : ""),
        fmt::format("lr {:.2g}", record.learning_rate),
        fmt::format("{:.2f}+{:.2f} GB/s", gigabytes_per_second(record.read_bytes, record.seconds),
                    gigabytes_per_second(record.write_bytes, record.seconds)),
        "ETA " + duration_text(record.seconds_left),
        fmt::format("wait {:.0f}%", 100 * record.waited_share()),
        fmt::format("{:.0f} tok/s", record.tokens_per_second()),
        fmt::format("norm {:.2f}", record.gradient_norm),
        fmt::format("pool {:.0f}/{:.0f} MiB", static_cast<double>(record.pool_peak_bytes) / 0x1p20,
                    static_cast<double>(record.pool_budget_bytes) / 0x1p20),
    };
    std::string line = fields.front();
    for (std::size_t i = 1; i < fields.size(); ++i) {
        if (fields.at(i).empty()) continue;
        if (line.size() + 2 + fields.at(i).size() > columns) break;
        line += "  " + fields.at(i);
    }
    return line;
}

std::string json_of(const StepRecord& record) {
    nlohmann::ordered_json object = {
        {"step", record.step},
        {"committed", record.committed ? nlohmann::ordered_json(*record.committed) : nlohmann::ordered_json(nullptr)},
        {"loss", record.loss},
        {"grad_norm", record.gradient_norm},
        {"lr", record.learning_rate},
        {"tokens", record.tokens},
        {"tokens_per_s", record.tokens_per_second()},
        {"seconds", record.seconds},
        {"forward_s", record.forward_seconds},
        {"backward_s", record.backward_seconds},
        {"update_s", record.update_seconds},
        {"commit_s", record.commit_seconds},
        {"wait_weights_s", record.wait_weights_seconds},
        {"wait_tiles_s", record.wait_tiles_seconds},
        {"wait_commit_s", record.wait_commit_seconds},
        {"nvme_read_bytes", record.read_bytes},
        {"nvme_write_bytes", record.write_bytes},
        {"pool_peak_bytes", record.pool_peak_bytes},
        {"pool_budget_bytes", record.pool_budget_bytes},
        {"activation_bytes", record.activation_bytes},
        {"peak_rss_bytes", record.peak_rss_bytes},
        {"time", time_text(record.time_s)},
    };
    if (record.updated_again) object["updated_again"] = true;
    if (record.wait_spill_seconds > 0) object["wait_spill_s"] = record.wait_spill_seconds;
    if (record.away_bytes > 0) object["activation_nvme_bytes"] = record.away_bytes;
    return object.dump();
}

std::string json_of_restored(const StepRecord& record) {
    const nlohmann::ordered_json object = {
        {"step", record.step},        {"committed", record.step},
        {"loss", record.loss},        {"grad_norm", record.gradient_norm},
        {"lr", record.learning_rate}, {"tokens", record.tokens},
        {"restored", true},
    };
    return object.dump();
}

std::string duration_text(double seconds) {
    const auto whole = static_cast<std::int64_t>(seconds + 0.5);
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string mebibytes(std::uint64_t bytes) {
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20);
}

}  // namespace penstock::trainer
