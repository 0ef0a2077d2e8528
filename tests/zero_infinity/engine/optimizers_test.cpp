// Parameter groups and every optimizer through a whole session.
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"
#include "zero_infinity/layout/model_layout.h"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock::testing {
namespace {

constexpr zero::Residency on_nvme{zero::Tier::nvme, zero::Tier::nvme};

// Gains without decay; the head at half the rate and with much decay. A unit has tiles of several groups.
zero::ParameterGroups two_groups() {
    const auto adamw = [](double weight_decay) {
        return std::shared_ptr<const zero::Optimizer>(zero::make_adamw({.weight_decay = weight_decay}));
    };
    return {adamw(0.01), {{"*.gain*", adamw(0)}, {"head.*", adamw(0.5), 0.5}}};
}

TEST(EngineOptimizers, GroupsGiveTheBitsOfThePlainLoop) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.residency = on_nvme;
    options.optimizers = two_groups;
    const RunResult run = run_toy(options);

    ReferenceOptions reference_options;
    reference_options.clipping = options.session.engine.gradient_clipping;
    reference_options.own = {{"/gain", {.weight_decay = 0}, 1}, {"head/", {.weight_decay = 0.5}, 0.5}};
    ReferenceLoop reference(make_toy_model(options.model), reference_options);
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const auto expected = reference.train_batch(toy_step(step, options), step, options.learning_rate);
        ASSERT_EQ(run.losses.at(step - 1), expected.loss) << "step " << step;
    }
    const Snapshot snapshot = read_snapshot(options.session.swap_directories[0], options.session.job);
    const auto model = make_toy_model(options.model);
    EXPECT_EQ(decode_states(snapshot, *model, options.session.codec, options.session.tile_numel), reference.states());
}

struct Case {
    const char* name;
    std::function<std::unique_ptr<zero::Optimizer>()> make;
    double learning_rate;
};

std::vector<Case> cases() {
    return {{"adam", [] { return zero::make_adam({.weight_decay = 0.01}); }, 3e-3},
            {"sgd", [] { return zero::make_sgd({}); }, 0.3},
            {"sgd_momentum", [] { return zero::make_sgd({.momentum = 0.9, .nesterov = true}); }, 0.03},
            {"lion", [] { return zero::make_lion({.weight_decay = 0.1}); }, 1e-3},
            {"adagrad", [] { return zero::make_adagrad({.initial_accumulator = 0.01}); }, 1e-2}};
}

RunOptions run_options(const Case& each, const std::string& directory, const char* codec) {
    RunOptions options = toy_run(directory);
    options.session.codec = codec;
    options.session.gradient_type = zero::PlaneType::fp32;
    options.optimizers = [make = each.make] { return zero::ParameterGroups(make()); };
    options.learning_rate = each.learning_rate;
    return options;
}

// On NVMe with a stop half way; in host memory in one go. SGD without momentum and plain_fp32 keep no states at all.
TEST(EngineOptimizers, EachTrainsResumesAndGivesTheSameBitsOnEveryTier) {
    for (const Case& each : cases()) {
        for (const char* codec : {"split", "plain_fp32"}) {
            SCOPED_TRACE(std::string(each.name) + " " + codec);
            const TemporaryDirectory first, second;
            RunOptions streamed = run_options(each, first.path(), codec);
            streamed.session.residency = on_nvme;
            streamed.steps = 10;
            const RunResult begun = run_toy(streamed);
            streamed.steps = 20;
            const RunResult ended = run_toy(streamed);
            RunOptions resident = run_options(each, second.path(), codec);
            resident.session.tile_numel = streamed.session.tile_numel;
            const RunResult whole = run_toy(resident);

            EXPECT_LT(whole.losses.back(), whole.losses.front());
            ASSERT_EQ(begun.losses.size() + ended.losses.size(), whole.losses.size());
            EXPECT_TRUE(std::equal(begun.losses.begin(), begun.losses.end(), whole.losses.begin()));
            EXPECT_TRUE(std::equal(ended.losses.begin(), ended.losses.end(), whole.losses.begin() + 10));
            EXPECT_EQ(read_snapshot(streamed.session.swap_directories[0], "toy").objects,
                      read_snapshot(resident.session.swap_directories[0], "toy").objects);
        }
    }
}

TEST(EngineOptimizers, MomentsOfANewStoreBeginAsEachGroupsOptimizerSays) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.steps = 0;
    options.optimizers = [] {
        return zero::ParameterGroups(
            std::shared_ptr<const zero::Optimizer>(zero::make_adagrad({.initial_accumulator = 0.25})),
            {{"*.down", zero::make_adagrad({.initial_accumulator = 4})}});
    };
    run_toy(options);
    const Snapshot snapshot = read_snapshot(options.session.swap_directories[0], "toy");
    const auto model = make_toy_model(options.model);
    const zero::UnitLayout layout(model->units()[1]->spec(), {}, options.session.tile_numel);
    const zero::StateFormat format{zero::find_codec(options.session.codec), 1};
    const std::vector<std::byte>& states = snapshot.objects.at("blocks.0.states");
    const zero::ParameterPlace down = layout.place(5);
    ASSERT_EQ(layout.spec().parameters[5].name, "down");
    std::uint64_t wrong = 0;
    for (std::uint64_t element = 0; element < layout.trainable_numel(); ++element) {
        const auto tile = static_cast<std::uint32_t>(element / layout.tile_numel());
        const std::uint64_t within = element % layout.tile_numel();
        float moment = 0;
        std::memcpy(&moment,
                    states.data() + tile * pool::whole_granules(format.states_bytes(layout.tile_numel())) +
                        format.moment_offset_bytes(0, layout.tile_numel(tile)) + within * 4,
                    sizeof moment);
        wrong += moment == (element < down.first ? 0.25F : 4.0F) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_GT(layout.tile_count(), 2U);
}

TEST(EngineOptimizers, AWeightThatOverflowsIsNamedByUnitAndParameter) {
    for (const Case& each : cases()) {
        SCOPED_TRACE(each.name);
        const TemporaryDirectory directory;
        RunOptions options = run_options(each, directory.path(), "split");
        options.session.engine.gradient_clipping = 0;
        options.learning_rate = 1e38;
        options.steps = 1;
        // Only one parameter moves, and by more than fp32 has room for.
        options.optimizers = [make = each.make] {
            return zero::ParameterGroups(std::shared_ptr<const zero::Optimizer>(make()),
                                         {{"blocks.1.up", make(), 1e10}, {"*", make(), 0}});
        };
        const std::string message = refusal_of(ExitCode::non_finite, [&] { run_toy(options); });
        EXPECT_NE(message.find("unit 'blocks.1', parameter 'up'"), std::string::npos) << message;
    }
}

TEST(EngineOptimizers, RefusesASumThatNeverForgetsUnderALossyCodec) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.codec = "compact";
    options.steps = 1;
    options.optimizers = [] { return zero::ParameterGroups(zero::make_adagrad({})); };
    const std::string message = refusal_of(ExitCode::usage, [&] { run_toy(options); });
    EXPECT_NE(message.find("optimizer adagrad keeps a sum that never forgets"), std::string::npos) << message;
    options.optimizers = [] { return zero::ParameterGroups(zero::make_lion({})); };
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { run_toy(options); }), "accepted");
}

TEST(EngineOptimizers, RefusesAGroupWithoutParametersAndAStoreOfAnotherGrouping) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.steps = 1;
    options.optimizers = [] {
        return zero::ParameterGroups(std::shared_ptr<const zero::Optimizer>(zero::make_adamw({})),
                                     {{"haed.*", zero::make_adamw({})}});
    };
    const std::string unmatched = refusal_of(ExitCode::usage, [&] { run_toy(options); });
    EXPECT_NE(unmatched.find("'haed.*'"), std::string::npos) << unmatched;
    EXPECT_NE(unmatched.find("there are: embedding.table, blocks.*.gain, "), std::string::npos) << unmatched;

    options.optimizers = two_groups;
    run_toy(options);
    options.steps = 2;
    options.optimizers = [] { return zero::ParameterGroups(zero::make_adamw({.weight_decay = 0.3})); };
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { run_toy(options); }), "accepted") << "options are the caller's to keep";
    options.optimizers = [] {
        return zero::ParameterGroups(std::shared_ptr<const zero::Optimizer>(zero::make_adamw({})),
                                     {{"head.*", zero::make_adam({})}});
    };
    EXPECT_NE(refusal_of(ExitCode::usage, [&] { run_toy(options); }).find("another model, codec or optimizer"),
              std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
