#include "bench/step/step_runs.h"

#include "aio/words/error.h"
#include "bench/harness/child.h"
#include "trainer/config/settings.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace penstock::bench {
namespace {

using nlohmann::json;

constexpr std::chrono::hours longest_turn{2};

std::string program_beside() {
    std::error_code error;
    const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
    const std::filesystem::path program = own.parent_path() / "penstock";
    if (error || !std::filesystem::exists(program))
        throw Error(
            ExitCode::usage,
            fmt::format("{} is not there: penstock-bench trains with the program beside it; `./run build` makes "
                        "both",
                        program.string()));
    return program.string();
}

std::string text_of(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw Error(ExitCode::usage, fmt::format("{}: cannot be read", path));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text << std::flush;
    if (!file) throw Error(ExitCode::storage, fmt::format("{}: cannot be written", path));
}

// More of them than a model learns by heart, and of no meaning.
std::string synthetic_text() {
    std::mt19937_64 random(1);
    std::string text;
    while (text.size() < 4U << 20) text += static_cast<char>('a' + random() % 26);
    return text;
}

std::string synthetic_config(const StepBenchOptions& options) {
    const json config = {
        {"model",
         {{"hidden", options.hidden},
          {"layers", options.layers},
          {"heads", std::max<std::int64_t>(1, options.hidden / 64)},
          {"feed_forward", 4 * options.hidden},
          {"context", options.tokens}}},
        {"train_micro_batch_size_per_gpu", 1},
        {"gradient_clipping", 0},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-5}}}}},
        {"zero_optimization",
         {{"stage", 3}, {"offload_param", {{"device", "nvme"}}}, {"offload_optimizer", {{"device", "nvme"}}}}},
        {"memory", {{"host_budget", options.host_budget_bytes}}}};
    return config.dump(1);
}

// Turns keep no snapshots: those in host memory commit nothing of which one could be.
std::string without_snapshots(const std::string& config) {
    json rest = json::parse(config, nullptr, true, /*ignore_comments=*/true);
    rest.erase("keep");
    return rest.dump(1);
}

double median_of(const std::vector<json>& records, const char* key) {
    std::vector<double> values;
    for (const json& record : records) values.push_back(record.at(key).get<double>());
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double mean_of(const std::vector<json>& records, const char* key) {
    double sum = 0;
    for (const json& record : records) sum += record.at(key).get<double>();
    return sum / static_cast<double>(records.size());
}

StepTurn turn_of(const std::vector<json>& records) {
    double again = 0;
    for (const json& record : records) again += record.contains("updated_again") ? 1 : 0;
    return {.seconds = again > 0 ? mean_of(records, "seconds") : median_of(records, "seconds"),
            .forward = median_of(records, "forward_s"),
            .backward = median_of(records, "backward_s"),
            .update = median_of(records, "update_s"),
            .read_bytes = median_of(records, "nvme_read_bytes"),
            .write_bytes = median_of(records, "nvme_write_bytes"),
            .peak_rss_bytes = records.back().at("peak_rss_bytes").get<double>(),
            .updated_again = again / static_cast<double>(records.size())};
}

}  // namespace

StepRuns::StepRuns(const StepBenchOptions& options, Interruption& stop)
    : options_(options),
      stop_(stop),
      folder_(options.directory, "training"),
      program_(program_beside()),
      config_file_(folder_.path() + "/config.json") {
    write_inputs();
    std::vector<std::string> settings = overrides_;
    settings.emplace_back("run.steps=1");
    const std::string& given = options.config.empty() ? config_file_ : options.config;
    const std::string text = text_of(given);
    config_ = trainer::make_config(trainer::Settings::parse(text, given, settings));
    write(config_file_, without_snapshots(text));
    train(1, {});
}

StepRuns::~StepRuns() = default;

void StepRuns::write_inputs() {
    // Nothing of the configuration's own run is touched: each of its places is another one here.
    overrides_ = {"run.directory=" + folder_.path() + "/run", "run.sample.tokens=0", "run.verify=none"};
    for (const char* place : {"zero_optimization.offload_param.nvme_path",
                              "zero_optimization.offload_optimizer.nvme_path", "run.swap_directory"})
        overrides_.push_back(fmt::format("{}={}/swap", place, folder_.path()));
    if (options_.config.empty()) {
        write(config_file_, synthetic_config(options_));
        write(folder_.path() + "/text.txt", synthetic_text());
        run({program_, "prepare", "--out", folder_.path() + "/text.tokens", folder_.path() + "/text.txt"});
        overrides_.push_back("data.train=" + folder_.path() + "/text.tokens");
    }
    overrides_.insert(overrides_.end(), options_.overrides.begin(), options_.overrides.end());
}

std::vector<std::string> StepRuns::arguments(const std::string& verb, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {program_, verb, config_file_, "--json"};
    for (const auto& settings : {overrides_, more})
        for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    return all;
}

std::string StepRuns::command() const {
    std::string line = fmt::format("{} train {} --steps N --set run.update_order=ORDER", program_,
                                   options_.config.empty() ? config_file_ : options_.config);
    for (const std::string& setting : options_.overrides) line += " --set " + setting;
    return line;
}

std::string StepRuns::run(const std::vector<std::string>& arguments) {
    const ChildOutcome outcome = run_child(arguments, longest_turn, stop_);
    if (outcome.exit_status == 0) return outcome.output;
    const std::size_t from = outcome.errors.size() > 2000 ? outcome.errors.size() - 2000 : 0;
    throw Error(ExitCode::usage, fmt::format("`penstock {}` ended with {}: {}", arguments[1], outcome.exit_status,
                                             outcome.errors.substr(from)));
}

// The steps behind those that the store has.
StepTurn StepRuns::train(std::uint64_t steps, const std::vector<std::string>& more) {
    std::vector<std::string> all = arguments("train", more);
    all.insert(all.end(), {"--steps", std::to_string(committed_ + steps)});
    const json summary = json::parse(run(all));
    trainable_numel_ = summary.at("trainable_params");
    std::vector<json> records;
    std::ifstream log(folder_.path() + "/run/log.jsonl");
    for (std::string line; std::getline(log, line);)
        if (json record = json::parse(line); record.at("step") > committed_ && record.contains("seconds"))
            records.push_back(std::move(record));
    if (records.size() != steps)
        throw Error(ExitCode::internal, fmt::format("a turn of {} steps logged {}", steps, records.size()));
    if (!summary.at("committed").is_null()) committed_ = summary.at("committed");
    if (steps > options_.warm_up) records.erase(records.begin(), records.begin() + options_.warm_up);
    return turn_of(records);
}

zero::StateFormat StepRuns::format() const {
    return {.codec = zero::find_codec(config_.session.codec),
            .moments = trainer::make_optimizers(config_.optimizer).moments()};
}

std::vector<std::string> StepRuns::settings_of(StepWay way) const {
    std::vector<std::string> settings = {fmt::format("run.update_order={}", word_of(order_of(way)))};
    if (way != StepWay::balanced) settings.push_back("run.deferred_share=0");
    if (way == StepWay::balanced && config_.session.deferred_share == 0.0)
        settings.push_back(fmt::format("run.deferred_share={}", trainer::auto_text));
    return settings;
}

StepTurn StepRuns::turn(StepWay way) {
    return train(options_.warm_up + options_.steps, settings_of(way));
}

std::optional<double> StepRuns::planned_seconds(StepWay way) {
    std::vector<std::string> more = settings_of(way);
    more.push_back("run.steps=1");
    std::vector<std::string> question = arguments("plan", more);
    question.insert(question.end(), {"--seconds", std::to_string(std::min(options_.seconds, 0.4))});
    const json plan = json::parse(run(std::move(question)));
    if (!plan.contains("step")) return std::nullopt;
    return plan.at("step").at("seconds").get<double>();
}

StepTurn StepRuns::turn_in_host_memory() {
    const double per_parameter = static_cast<double>(format().weights_bytes()) + format().states_bytes().value() + 4;
    const double bytes = trainable_numel() * per_parameter * 1.1 + 0x1p29;
    return train(
        options_.warm_up + options_.steps,
        {"zero_optimization.offload_param.device=cpu", "zero_optimization.offload_optimizer.device=cpu",
         "run.update_order=after_backward", "run.deferred_share=0",
         fmt::format("run.commit_every={}", trainer::scratch_text), fmt::format("memory.host_budget={:.0f}", bytes)});
}

}  // namespace penstock::bench
