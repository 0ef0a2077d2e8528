#include "tests/zero_infinity/engine/run.h"

#include "tests/zero_infinity/ample_room.h"
#include "zero_infinity/plan/session_plan.h"

#include <fstream>
#include <string>

namespace penstock::testing {

RunOptions toy_run(const std::string& directory) {
    RunOptions options;
    options.session.swap_directories = {directory + "/swap"};
    options.session.job = "toy";
    options.session.host_budget_bytes = 32 << 20;
    options.session.tile_numel = 4096;
    options.session.staging_tiles = 3;
    options.session.engine.gradient_clipping = 0.5;
    options.session.verify = store::VerifyScope::none;
    return options;
}

void fill_host_budget(RunOptions& options, std::uint64_t bytes) {
    zero::CoreOptions core = options.session;
    core.host_budget_bytes = zero::planned_host_budget;
    const zero::SessionPlan least({.units = make_toy_model(options.model)->specs(), .optimizers = options.optimizers()},
                                  core, ample_room(), {});
    options.session.host_budget_bytes = least.memory.budget.used_bytes() + bytes;
    options.session.fill_host_budget = true;
}

std::vector<engine::Bundle> toy_step(std::uint64_t step, const RunOptions& options) {
    std::vector<engine::Bundle> micro_batches;
    for (std::size_t index = 0; index < options.micro_batches; ++index)
        micro_batches.push_back(toy_batch(step * 100 + index, 3, 16, options.model));
    return micro_batches;
}

namespace {

std::uint64_t process_io(const std::string& key) {
    std::ifstream file("/proc/self/io");
    std::string name;
    std::uint64_t value = 0;
    while (file >> name >> value)
        if (name == key + ":") return value;
    return 0;
}

}  // namespace

RunResult run_toy(const RunOptions& options, AtEnd at_end) {
    engine::Session session(make_toy_model(options.model), options.optimizers(), options.session, {{"step", "0"}}, {});
    RunResult result;
    result.predicted = session.info().step_bytes;
    result.planned_bytes = session.info().planned_bytes;
    result.formula_bytes = session.info().nominal_traffic.total();
    result.resumed = session.info().resumed;
    result.trainable_numel = session.model().trainable_numel();
    const std::uint64_t read_before = session.counters().read_bytes;
    const std::uint64_t written_before = session.counters().write_bytes;
    const std::uint64_t kernel_read_before = process_io("read_bytes");
    const std::uint64_t kernel_written_before = process_io("write_bytes");
    for (std::uint64_t step = std::stoull(session.info().client.at("step")) + 1; step <= options.steps; ++step) {
        const engine::StepReport report =
            session.engine().train_batch(toy_step(step, options), {.step = step, .learning_rate = options.rate(step)},
                                         [&](const engine::StepReport&) {
                                             return store::ClientState{{"step", std::to_string(step)}};
                                         });
        result.losses.push_back(report.loss);
        result.norms.push_back(report.gradient_norm);
        result.away_bytes += report.away_bytes;
        result.given_up += report.given_up;
        result.updated_again += report.updated_again ? 1 : 0;
    }
    if (at_end == AtEnd::settle && options.session.durability != zero::Durability::scratch) session.engine().settle();
    result.read_bytes = session.counters().read_bytes - read_before;
    result.write_bytes = session.counters().write_bytes - written_before;
    result.kernel_read_bytes = process_io("read_bytes") - kernel_read_before;
    result.kernel_write_bytes = process_io("write_bytes") - kernel_written_before;
    return result;
}

}  // namespace penstock::testing
