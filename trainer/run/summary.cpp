#include "trainer/run/summary.h"

#include "aio/words/error.h"
#include "trainer/cli/step_record.h"
#include "trainer/data/plain_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(const std::optional<double>& value) {
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::optional<double> to_number(const ordered_json& value) {
    return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

ordered_json to_object(const Summary& summary) {
    ordered_json object = {
        {"steps", summary.steps},
        {"steps_run", summary.steps_run},
        {"resumed_from_step", summary.resumed_from_step},
        {"committed", summary.committed ? ordered_json(*summary.committed) : ordered_json(nullptr)},
        {"params", summary.params},
        {"trainable_params", summary.trainable_params},
        {"first_loss", number_or_null(summary.first_loss)},
        {"final_loss", number_or_null(summary.final_loss)},
        {"tokens_per_step", summary.tokens_per_step},
        {"tokens_per_s", summary.tokens_per_second()},
        {"step_seconds_total", summary.step_seconds_total},
        {"step_seconds_p50", summary.step_seconds_p50},
        {"planned_step_seconds", number_or_null(summary.planned_step_seconds)},
        {"nvme_read_bytes", summary.nvme_read_bytes},
        {"nvme_write_bytes", summary.nvme_write_bytes},
        {"bytes_per_param_step", summary.bytes_per_param_step()},
        {"steps_updated_again", summary.steps_updated_again},
        {"planned_bytes_per_param_step", summary.planned_bytes_per_param_step},
        {"formula_bytes_per_param_step", summary.formula_bytes_per_param_step},
        {"pool_peak_bytes", summary.pool_peak_bytes},
        {"pool_budget_bytes", summary.pool_budget_bytes},
        {"activation_peak_bytes", summary.activation_peak_bytes},
        {"peak_rss_bytes", summary.peak_rss_bytes},
        {"checkpoint", summary.checkpoint},
        {"store", summary.store},
        {"log", summary.log},
        {"sample", summary.sample},
    };
    if (summary.ranks > 1) object["ranks"] = summary.ranks;
    return object;
}

// Throws json::exception when a key is missing or of another type.
Summary from_object(const ordered_json& object) {
    Summary summary;
    object.at("steps").get_to(summary.steps);
    object.at("steps_run").get_to(summary.steps_run);
    object.at("resumed_from_step").get_to(summary.resumed_from_step);
    if (const auto& committed = object.at("committed"); !committed.is_null()) summary.committed = committed;
    object.at("params").get_to(summary.params);
    object.at("trainable_params").get_to(summary.trainable_params);
    summary.first_loss = to_number(object.at("first_loss"));
    summary.final_loss = to_number(object.at("final_loss"));
    object.at("tokens_per_step").get_to(summary.tokens_per_step);
    object.at("step_seconds_total").get_to(summary.step_seconds_total);
    object.at("step_seconds_p50").get_to(summary.step_seconds_p50);
    summary.planned_step_seconds = to_number(object.value("planned_step_seconds", ordered_json()));
    object.at("nvme_read_bytes").get_to(summary.nvme_read_bytes);
    object.at("nvme_write_bytes").get_to(summary.nvme_write_bytes);
    object.at("planned_bytes_per_param_step").get_to(summary.planned_bytes_per_param_step);
    object.at("formula_bytes_per_param_step").get_to(summary.formula_bytes_per_param_step);
    object.at("pool_peak_bytes").get_to(summary.pool_peak_bytes);
    object.at("pool_budget_bytes").get_to(summary.pool_budget_bytes);
    summary.steps_updated_again = object.value("steps_updated_again", std::int64_t{0});
    summary.activation_peak_bytes = object.value("activation_peak_bytes", std::uint64_t{0});  // none in an older one
    object.at("peak_rss_bytes").get_to(summary.peak_rss_bytes);
    object.at("checkpoint").get_to(summary.checkpoint);
    summary.ranks = object.value("ranks", std::int64_t{1});
    summary.store = object.value("store", std::string());
    object.at("log").get_to(summary.log);
    object.at("sample").get_to(summary.sample);
    return summary;
}

std::string loss_text(const std::optional<double>& loss) {
    return loss ? fmt::format("{:.4f}", *loss) : "unknown";
}

double gigabytes_per_second(std::uint64_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

// What the steps of this process were like.
std::vector<std::string> lines_of_steps(const Summary& summary) {
    if (summary.steps_run == 0) return {fmt::format("steps       0 here, {} before", summary.steps)};
    const double seconds = summary.step_seconds_total;
    std::vector<std::string> lines = {
        fmt::format("steps       {} here in {}, half of them within {:.3f} s, {:.0f} tokens/s", summary.steps_run,
                    duration_text(seconds), summary.step_seconds_p50, summary.tokens_per_second()),
        fmt::format("NVMe        {:.2f} GB read, {:.2f} GB written; over the steps' time {:.2f} and {:.2f} GB/s",
                    static_cast<double>(summary.nvme_read_bytes) / 1e9,
                    static_cast<double>(summary.nvme_write_bytes) / 1e9,
                    gigabytes_per_second(summary.nvme_read_bytes, seconds),
                    gigabytes_per_second(summary.nvme_write_bytes, seconds)),
        fmt::format("traffic     {:.2f} bytes per trainable parameter and step; planned {:.2f}, by the formula {:.2f}",
                    summary.bytes_per_param_step(), summary.planned_bytes_per_param_step,
                    summary.formula_bytes_per_param_step),
    };
    if (summary.planned_step_seconds)
        lines.push_back(fmt::format("plan        steps of {:.3f} s were planned: {:.2f} of what half of them took",
                                    *summary.planned_step_seconds,
                                    *summary.planned_step_seconds / summary.step_seconds_p50));
    if (summary.steps_updated_again > 0)
        lines.push_back(
            fmt::format("speculation failed in {} of these steps: their gradients were clipped, and their "
                        "units updated again",
                        summary.steps_updated_again));
    return lines;
}

}  // namespace

double Summary::bytes_per_param_step() const noexcept {
    if (steps_run == 0 || trainable_params == 0) return 0;
    return static_cast<double>(nvme_read_bytes + nvme_write_bytes) /
           (static_cast<double>(trainable_params) * static_cast<double>(steps_run));
}

double Summary::tokens_per_second() const noexcept {
    return step_seconds_total > 0
               ? static_cast<double>(tokens_per_step) * static_cast<double>(steps_run) / step_seconds_total
               : 0;
}

std::string json_of(const Summary& summary) {
    return to_object(summary).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> lines_of(const Summary& summary) {
    std::vector<std::string> lines = {fmt::format("loss        {} at step 1, {} at step {}",
                                                  loss_text(summary.first_loss), loss_text(summary.final_loss),
                                                  summary.steps)};
    for (std::string& line : lines_of_steps(summary)) lines.push_back(std::move(line));
    if (summary.ranks > 1)
        lines.push_back(
            fmt::format("processes   {}: bytes are of all of them, memory is of the one that had most", summary.ranks));
    lines.push_back(fmt::format("memory      pool peak {} of {}; activations {}; peak RSS of the process {}",
                                mebibytes(summary.pool_peak_bytes), mebibytes(summary.pool_budget_bytes),
                                mebibytes(summary.activation_peak_bytes), mebibytes(summary.peak_rss_bytes)));
    lines.push_back(summary.committed ? fmt::format("checkpoint  {} (step {})", summary.checkpoint, *summary.committed)
                                      : "checkpoint  none: nothing of a scratch run is kept");
    lines.push_back(fmt::format("log         {}", summary.log));
    return lines;
}

void save(const Summary& summary, const std::string& path) {
    const std::string text = json_of(summary) + "\n";
    const std::string temporary = path + ".tmp";
    PlainFile file(temporary, PlainFile::Mode::replace);
    try {
        file.write_at(0, std::as_bytes(std::span(text)));
        file.sync();
        rename_durably(temporary, path);
    } catch (const Error&) {
        std::remove(temporary.c_str());  // where it has its name by now, there is none
        throw;
    }
}

std::optional<Summary> load_summary(const std::string& path) {
    std::ifstream file(path);
    if (!file) return std::nullopt;
    try {
        return from_object(ordered_json::parse(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::uint64_t peak_rss_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        std::uint64_t kibibytes = 0;
        if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
    }
    return 0;
}

}  // namespace penstock::trainer
