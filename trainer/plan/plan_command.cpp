#include "trainer/plan/plan_command.h"

#include "aio/words/error.h"
#include "pinned_pool/budget.h"
#include "trainer/cli/config_file.h"
#include "trainer/cli/console.h"
#include "trainer/plan/plan_report.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace penstock::trainer {
namespace {

using nlohmann::json;

constexpr auto example =
    "Bytes are exact. Times are forecast from what this machine gives now: 256 MiB to 1 GiB are written to a file "
    "without a name\n"
    "near the swap directory, and one unit of each kind is run; some seconds in all, and nothing stays.\n"
    "Examples:\n"
    "  penstock plan trainer/demo.json --set run.update_order=deferred\n"
    "  penstock plan --model hidden=4096,layers=32,heads=32,feed_forward=16384,context=2048 --dir /nvme\n";

struct PlanRequest {
    std::string config_file;
    std::string model;  // "hidden=4096,layers=32"
    std::string directory = ".";
    std::vector<std::string> overrides;
    bool measured = true;
    double seconds = 0.4;
    double endurance_terabytes = 0;
    zero::RankCount count;
    bool as_json = false;
};

// Of a shape alone: all on NVMe, in bf16, within most of what memory is free.
ConfigSource source_of_shape(const PlanRequest& request) {
    const std::uint64_t available = pool::MachineMemory::read().available_bytes;
    const json config = {{"data", {{"train", "not needed for a plan"}}},
                         {"bf16", {{"enabled", true}}},
                         {"zero_optimization",
                          {{"stage", 3},
                           {"offload_param", {{"device", "nvme"}, {"nvme_path", request.directory + "/swap"}}},
                           {"offload_optimizer", {{"device", "nvme"}}}}},
                         {"memory", {{"host_budget", available / 5 * 4}}},
                         {"run", {{"directory", request.directory + "/run"}, {"steps", 1}}}};
    std::vector<std::string> overrides = {"train_micro_batch_size_per_gpu=1"};
    std::string_view left = request.model;
    while (!left.empty()) {
        const std::size_t end = std::min(left.find(','), left.size());
        overrides.push_back("model." + std::string(left.substr(0, end)));
        left.remove_prefix(std::min(end + 1, left.size()));
    }
    overrides.insert(overrides.end(), request.overrides.begin(), request.overrides.end());
    return {.text = config.dump(), .file = "--model", .overrides = std::move(overrides), .count = request.count};
}

ConfigSource source_of(const PlanRequest& request) {
    if (request.config_file.empty() == request.model.empty())
        throw Error(ExitCode::usage, "plan wants a CONFIG or a --model, one of them");
    if (request.count.of_node > request.count.ranks)
        throw Error(ExitCode::usage,
                    fmt::format("--ranks-per-node {} with --ranks {}: more on one machine than there are",
                                request.count.of_node, request.count.ranks));
    if (!request.model.empty()) return source_of_shape(request);
    return {.text = read_config(request.config_file),
            .file = request.config_file,
            .overrides = request.overrides,
            .count = request.count};
}

std::string plan(const PlanRequest& request, Console& console) {
    const RunPlan plan =
        make_run_plan({.source = source_of(request),
                       .measured = request.measured,
                       .seconds = request.seconds,
                       .endurance_bytes = request.endurance_terabytes * 1e12,
                       .telling = [&](const std::string& what) { console.live("measuring " + what); }});
    console.settle();
    if (plan.measured)
        for (const std::string& note : plan.measured->rates.device.notes) console.info(note);
    return request.as_json ? json_of(plan) + "\n" : text_of(plan);
}

}  // namespace

std::function<std::string(Console&)> add_plan_verb(CLI::App& app) {
    CLI::App* verb =
        app.add_subcommand("plan", "Say what a training needs and how long its steps take, before it begins");
    const auto request = std::make_shared<PlanRequest>();
    verb->add_option("CONFIG", request->config_file, "configuration, JSON with comments");
    verb->add_option("--model", request->model, "instead: keys of `model`, NAME=VALUE,NAME=VALUE; all on NVMe, bf16");
    verb->add_option("--dir", request->directory, "with --model: a directory on the device")->capture_default_str();
    verb->add_option("--set", request->overrides, "KEY=VALUE: set a key of the configuration; may be repeated")
        ->allow_extra_args(false);
    verb->add_flag("!--bytes-only", request->measured, "measure nothing, and say nothing of times");
    verb->add_option("--seconds", request->seconds, "of each measurement; all of them take some thirty times as long")
        ->check(CLI::Range(0.01, 60.0))
        ->capture_default_str();
    verb->add_option("--endurance", request->endurance_terabytes,
                     "terabytes that the devices together are rated to have written: days until then")
        ->check(CLI::PositiveNumber);
    verb->add_option("--ranks", request->count.ranks,
                     "what so many processes take that train one model: each, those of a machine, all, and what they "
                     "send each other; no times")
        ->check(CLI::Range(1U, 1U << 20))
        ->capture_default_str();
    verb->add_option("--ranks-per-node", request->count.of_node,
                     "of them on one machine, which is like this one; else all")
        ->check(CLI::Range(1U, 1U << 20));
    verb->add_flag("--json", request->as_json, "print one JSON object");
    verb->footer(example);
    return [request](Console& console) { return plan(*request, console); };
}

}  // namespace penstock::trainer
