// The engine gives the bits of the plain loop in every combination of what may be chosen.
#include "tests/zero_infinity/combinations.h"
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/update_way.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace penstock::testing {
namespace {

RunOptions run_of(const Combination& each, const std::string& directory) {
    RunOptions options = toy_run(directory);
    options.steps = combined_steps();
    options.micro_batches = each.accumulation;
    options.session.codec = "split";
    options.session.residency = each.residency();
    options.session.prefetch_depth = each.depth;
    zero::update_by(each.order, options.session, 0.5);
    options.session.gradients = each.gradients;
    options.session.device.kind = each.device;
    options.session.device.budget_bytes = 4 << 20;
    // Some steps are clipped, or none; speculation needs a bound.
    const double never = each.order == zero::UpdateWay::speculative ? 1e9 : 0;
    options.session.engine.gradient_clipping = each.clips ? 1.3 : never;
    if (each.held == Held::filled) fill_host_budget(options, 400 << 10);
    return options;
}

struct Reference {
    std::vector<double> losses, norms;
    std::map<std::string, ReferenceState> states;
};

Reference reference_of(const RunOptions& options) {
    ReferenceLoop loop(make_toy_model(options.model), {.clipping = options.session.engine.gradient_clipping});
    Reference reference;
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const auto report = loop.train_batch(toy_step(step, options), step, options.learning_rate);
        reference.losses.push_back(report.loss);
        reference.norms.push_back(report.norm);
    }
    reference.states = loop.states();
    return reference;
}

TEST(BitIdentity, OfTheEngineInEveryCombination) {
    const std::vector<Combination> all = combinations({zero::DeviceKind::cpu, zero::DeviceKind::emulated});
    std::map<std::pair<std::uint64_t, bool>, Reference> references;
    for (const Combination& each : all) {
        SCOPED_TRACE(each.name());
        const TemporaryDirectory directory;
        const RunOptions options = run_of(each, directory.path());
        const auto known = references.find({each.accumulation, each.clips});
        if (known == references.end()) references[{each.accumulation, each.clips}] = reference_of(options);
        const Reference& reference = references[{each.accumulation, each.clips}];

        const RunResult run = run_toy(options);
        ASSERT_EQ(run.losses, reference.losses);
        ASSERT_EQ(run.norms, reference.norms);
        const Snapshot snapshot = read_snapshot(options.session.swap_directories[0], options.session.job);
        const auto model = make_toy_model(options.model);
        ASSERT_EQ(decode_states(snapshot, *model, options.session.codec, options.session.tile_numel), reference.states);
    }
    fmt::print("RESULT bit_identity_of_the_engine: {} combinations of {} steps each: equal losses, norms and bits\n",
               all.size(), combined_steps());
}

}  // namespace
}  // namespace penstock::testing
