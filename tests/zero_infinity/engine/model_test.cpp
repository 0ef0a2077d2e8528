// What a unit promises, and what is done when it does not keep it; what is differentiated, and what must be.
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <array>

namespace penstock::testing {
namespace {

using engine::Unused;

// hidden → hidden times its weight, with what else a test wants done. The last one of a model has a loss, too.
class Step : public engine::Unit {
   public:
    using Twist = std::function<engine::Bundle(const engine::Bundle& input, at::Tensor hidden)>;
    explicit Step(std::string name, Twist twist = {}, zero::Training training = zero::Training::trainable)
        : engine::Unit(std::move(name)),
          twist_(std::move(twist)),
          weight_(declare("weight", {8, 8}, engine::Initial::normal(0.3), training)) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor hidden = at::linear(input.at("hidden"), weight_.tensor());
        engine::Bundle output = twist_ ? twist_(input, hidden) : engine::Bundle{{"hidden", hidden}};
        if (input.has("targets") && !output.has("targets")) output.set("targets", input.at("targets"));
        if (!output.has("loss")) output.set("loss", output.at("hidden").to(at::kFloat).pow(2).mean());
        return output;
    }
    const engine::Parameter& weight() const { return weight_; }

   private:
    Twist twist_;
    const engine::Parameter& weight_;
};

using Units = std::vector<std::unique_ptr<engine::Unit>>;

Units steps(std::unique_ptr<engine::Unit> middle) {
    Units units;
    units.push_back(std::make_unique<Step>("first"));
    units.push_back(std::move(middle));
    units.push_back(std::make_unique<Step>("last"));
    return units;
}

struct Trained {
    std::vector<double> losses, norms;
    Snapshot snapshot;
};

constexpr std::array all_activations{engine::Activations::automatic, engine::Activations::recompute,
                                     engine::Activations::retain};

using MakeUnits = std::function<Units()>;
using MakeBatch = std::function<std::vector<engine::Bundle>(std::uint64_t step)>;

std::vector<engine::Bundle> ones(std::uint64_t /*step*/) {
    return {{{"hidden", at::ones({2, 8}, at::kBFloat16)}}};
}

Trained train(const MakeUnits& units, const MakeBatch& batch = ones,
              engine::Activations activations = engine::Activations::recompute, std::uint64_t steps = 2) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.engine.activations = activations;
    Trained trained;
    {
        engine::Session session(std::make_unique<engine::Model>(units()), zero::make_adamw({}), options.session, {},
                                {});
        for (std::uint64_t step = 1; step <= steps; ++step) {
            const auto report =
                session.engine().train_batch(batch(step), {.step = step, .learning_rate = 0.01},
                                             [](const engine::StepReport&) { return store::ClientState{}; });
            trained.losses.push_back(report.loss);
            trained.norms.push_back(report.gradient_norm);
        }
    }
    trained.snapshot = read_snapshot(options.session.swap_directories[0], "toy");
    return trained;
}

std::string refused(const MakeUnits& units, ExitCode code, const MakeBatch& batch = ones) {
    std::string said;
    for (const auto activations : all_activations) {
        const std::string again = refusal_of(code, [&] { train(units, batch, activations); });
        EXPECT_TRUE(said.empty() || said == again) << said << "\n" << again;
        said = again;
    }
    return said;
}

// ---------------------------------------------------------------- gradients that do not come

Step::Twist detached() {
    return [](const engine::Bundle&, const at::Tensor& hidden) { return engine::Bundle{{"hidden", hidden.detach()}}; };
}

// Its weight is used, its input is not.
Step::Twist without_input(const Step*& self) {
    return [&self](const engine::Bundle&, const at::Tensor&) {
        return engine::Bundle{{"hidden", self->weight().tensor() * 2}};
    };
}

TEST(MissingGradient, OfAUnitWhoseOutputIsDetachedIsAnErrorThatNamesIt) {
    const std::string said =
        refused([] { return steps(std::make_unique<Step>("middle", detached())); }, ExitCode::usage);
    EXPECT_SAYS(said, "no gradient comes to unit 'middle', parameters 'weight'");
}

TEST(MissingGradient, OfTheUnitsBeforeIsAnErrorThatNamesTheUnitThatPassesNoneOn) {
    const Step* self = nullptr;
    const std::string said = refused(
        [&] {
            auto middle = std::make_unique<Step>("middle", without_input(self));
            self = middle.get();
            return steps(std::move(middle));
        },
        ExitCode::usage);
    EXPECT_SAYS(said, "unit 'middle' passes no gradient on to its input 'hidden'");
    EXPECT_SAYS(said, "Freeze them, or use the input");
}

// Nothing before it is trained: then it may.
TEST(MissingGradient, OfFrozenUnitsIsNoError) {
    const Step* self = nullptr;
    const Trained trained = train([&] {
        auto middle = std::make_unique<Step>("middle", without_input(self));
        self = middle.get();
        Units units = steps(std::move(middle));
        units[0] = std::make_unique<Step>("first", Step::Twist(), zero::Training::frozen);
        return units;
    });
    EXPECT_GT(trained.norms[0], 0);
}

// Two experts of which each micro-batch uses one.
class Experts : public engine::Unit {
   public:
    explicit Experts(Unused unused)
        : engine::Unit("experts"),
          one_(declare("one", {8, 8}, engine::Initial::normal(0.3), zero::Training::trainable, unused)),
          other_(declare("other", {8, 8}, engine::Initial::normal(0.3), zero::Training::trainable, unused)) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const bool first = input.at("expert").item<std::int64_t>() == 0;
        return {{"hidden", at::linear(input.at("hidden"), (first ? one_ : other_).tensor())}};
    }

   private:
    const engine::Parameter &one_, &other_;
};

// The unit before passes "expert" on as well.
Units with_experts(Unused unused) {
    Units units = steps(std::make_unique<Experts>(unused));
    units[0] = std::make_unique<Step>("first", [](const engine::Bundle& input, const at::Tensor& hidden) {
        return engine::Bundle{{"hidden", hidden}, {"expert", input.at("expert")}};
    });
    return units;
}

MakeBatch experts_used(const std::vector<std::int64_t>& experts) {
    return [experts](std::uint64_t) {
        std::vector<engine::Bundle> batch;
        for (const std::int64_t expert : experts)
            batch.push_back({{"hidden", at::ones({2, 8}, at::kBFloat16)}, {"expert", at::tensor(expert, at::kLong)}});
        return batch;
    };
}

TEST(MissingGradient, OfAParameterIsAnErrorUnlessItMayBeUnused) {
    const std::string said =
        refused([] { return with_experts(Unused::refused); }, ExitCode::usage, experts_used({0, 0}));
    EXPECT_SAYS(said, "no gradient comes to unit 'experts', parameters 'other':");
    EXPECT_SAYS(said, "Unused::allowed");
    train([] { return with_experts(Unused::refused); }, experts_used({0, 1}));  // each has its part in the step

    const Trained trained = train([] { return with_experts(Unused::allowed); }, experts_used({0, 0}));
    EXPECT_GT(trained.norms[1], 0);
}

// A parameter that only the unit that borrows it uses.
TEST(MissingGradient, IsNoneWhereABorrowedUseHasOne) {
    struct Holder final : engine::Unit {
        Holder() : engine::Unit("holder"), table(declare("table", {8, 8}, engine::Initial::normal(0.3))) {}
        engine::Bundle forward(const engine::Bundle& input) const override { return input; }
        const engine::Parameter& table;
    };
    struct Borrower final : engine::Unit {
        explicit Borrower(const Holder& holder) : engine::Unit("borrower"), table(borrow(holder, holder.table)) {}
        engine::Bundle forward(const engine::Bundle& input) const override {
            return {{"loss", at::linear(input.at("hidden"), table.tensor()).to(at::kFloat).pow(2).mean()}};
        }
        const engine::Parameter& table;
    };
    const Trained trained = train([] {
        Units units;
        auto holder = std::make_unique<Holder>();
        auto borrower = std::make_unique<Borrower>(*holder);
        units.push_back(std::move(holder));
        units.push_back(std::move(borrower));
        return units;
    });
    EXPECT_LT(trained.losses[1], trained.losses[0]);
}

TEST(MissingGradient, OfALossThatDependsOnNothingIsAnError) {
    const auto constant = [](const engine::Bundle&, const at::Tensor& hidden) {
        return engine::Bundle{{"hidden", hidden}, {"loss", at::ones({})}};
    };
    const std::string said = refused(
        [&] {
            Units units = steps(std::make_unique<Step>("middle"));
            units[2] = std::make_unique<Step>("last", constant);
            return units;
        },
        ExitCode::usage);
    EXPECT_SAYS(said, "no gradient comes to unit 'last', parameters 'weight'");
}

// ---------------------------------------------------------------- what is differentiated

// Which of a unit's inputs require a gradient, whenever it runs with a graph.
class Watched : public engine::Unit {
   public:
    Watched(std::string name, std::vector<std::string>& seen)
        : engine::Unit(std::move(name)),
          seen_(seen),
          weight_(declare("weight", {8, 8}, engine::Initial::normal(0.3))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        std::string requiring = name() + ":";
        for (const auto& [key, tensor] : input)
            if (tensor.requires_grad()) requiring += " " + key;
        if (c10::GradMode::is_enabled()) seen_.push_back(requiring);
        const at::Tensor hidden = at::linear(input.at("hidden"), weight_.tensor()) + input.at("bias");
        return {{"hidden", hidden},
                {"bias", input.at("bias")},
                {"half", hidden * 0.5},
                {"loss", (hidden - input.at("label")).to(at::kFloat).pow(2).mean()},
                {"label", input.at("label")}};
    }

   private:
    std::vector<std::string>& seen_;
    const engine::Parameter& weight_;
};

TEST(Differentiated, IsWhatComesOfATrainableParameterAndNothingElse) {
    for (const auto activations : all_activations) {
        std::vector<std::string> seen;
        const auto units = [&] {
            Units all;
            all.push_back(std::make_unique<Step>(
                "frozen",
                [](const engine::Bundle& input, const at::Tensor& hidden) {
                    return engine::Bundle{{"hidden", hidden}, {"bias", input.at("bias")}, {"label", input.at("label")}};
                },
                zero::Training::frozen));
            for (const char* name : {"one", "two", "three"}) all.push_back(std::make_unique<Watched>(name, seen));
            return all;
        };
        const auto batch = [](std::uint64_t) {
            return std::vector<engine::Bundle>{{{"hidden", at::ones({2, 8}, at::kBFloat16)},
                                                {"bias", at::ones({8}, at::kBFloat16)},
                                                {"label", at::zeros({2, 8}, at::kFloat)}}};
        };
        train(units, batch, activations);
        const std::set<std::string> once(seen.begin(), seen.end());
        EXPECT_EQ(once, (std::set<std::string>{"one:", "two: hidden half loss", "three: hidden half loss"}));
    }
}

// ---------------------------------------------------------------- in place

TEST(InPlace, WorkOnAnInputIsAnErrorThatNamesUnitInputAndRemedy) {
    for (const bool first : {true, false}) {
        const auto doubled = [](const engine::Bundle& input, const at::Tensor& hidden) {
            input.at("targets").mul_(2);  // of the caller, and no gradient goes through it
            return engine::Bundle{{"hidden", hidden}};
        };
        const at::Tensor targets = at::ones({2, 8}, at::kFloat);
        const auto units = [&] {
            Units all = steps(std::make_unique<Step>("middle", first ? Step::Twist() : doubled));
            if (first) all[0] = std::make_unique<Step>("first", doubled);
            return all;
        };
        const auto batch = [&](std::uint64_t) {
            return std::vector<engine::Bundle>{{{"hidden", at::ones({2, 8}, at::kBFloat16)}, {"targets", targets}}};
        };
        const std::string said = refused(units, ExitCode::internal, batch);
        EXPECT_SAYS(said, fmt::format("unit '{}' changes its input 'targets' in place", first ? "first" : "middle"));
        EXPECT_SAYS(said, "clone()");
    }
}

TEST(InPlace, WorkOnAHiddenStateOrAViewOfItIsAnError) {
    const auto scaled = [](const engine::Bundle& input, const at::Tensor& hidden) {
        input.at("hidden").view({-1}).mul_(2);
        return engine::Bundle{{"hidden", hidden}};
    };
    const std::string said =
        refused([&] { return steps(std::make_unique<Step>("middle", scaled)); }, ExitCode::internal);
    EXPECT_SAYS(said, "unit 'middle'");
    EXPECT_SAYS(said, "in-place");  // torch's own words: where there is a graph it refuses by itself
}

TEST(InPlace, WorkOnAParameterIsAnErrorWhereThereIsNoGraph) {
    const Step* self = nullptr;
    const auto scaled = [&](const engine::Bundle&, const at::Tensor& hidden) {
        const c10::NoGradGuard no_graph;
        self->weight().tensor().mul_(2);
        return engine::Bundle{{"hidden", hidden}};
    };
    const std::string said = refused(
        [&] {
            auto middle = std::make_unique<Step>("middle", scaled);
            self = middle.get();
            return steps(std::move(middle));
        },
        ExitCode::internal);
    EXPECT_SAYS(said, "unit 'middle' changes its parameter 'weight' in place");
}

TEST(InPlace, WorkInForwardAloneIsSeenToo) {
    const TemporaryDirectory directory;
    const auto doubled = [](const engine::Bundle& input, const at::Tensor& hidden) {
        input.at("hidden").mul_(2);
        return engine::Bundle{{"hidden", hidden}};
    };
    engine::Session session(std::make_unique<engine::Model>(steps(std::make_unique<Step>("middle", doubled))),
                            zero::make_adamw({}), toy_run(directory.path()).session, {}, {});
    EXPECT_SAYS(refusal_of(ExitCode::internal, [&] { session.engine().infer(ones(1)[0]); }),
                "unit 'middle' changes its input 'hidden' in place");
}

// ---------------------------------------------------------------- memory

// Of 3 rows of 16 tokens: "hidden" and "skip" of the embedding, "hidden" of each of three blocks, 32 bf16 values wide.
// What is passed on, and what the caller gave, has its memory already.
TEST(Activations, ThatAreKeptForBackwardAreCountedOverAllMicroBatches) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.engine.activations = engine::Activations::recompute;
    engine::Session session(make_toy_model(options.model), options.optimizers(), options.session, {}, {});
    for (const std::size_t micro_batches : {4, 1}) {
        options.micro_batches = micro_batches;
        const auto report =
            session.engine().train_batch(toy_step(1, options), {.step = 1, .learning_rate = 0},
                                         [](const engine::StepReport&) { return store::ClientState{}; });
        EXPECT_EQ(report.activation_bytes, micro_batches * (2 + 3) * 3 * 16 * 32 * 2);
        EXPECT_EQ(session.counters().activation_peak_bytes, std::uint64_t{4} * (2 + 3) * 3 * 16 * 32 * 2);
    }
}

// ---------------------------------------------------------------- draws

// A third of the hidden state is left out, by torch's default generator.
Units dropping() {
    const auto drop = [](const engine::Bundle&, const at::Tensor& hidden) {
        return engine::Bundle{{"hidden", at::dropout(hidden, 0.3, /*train=*/true)}};
    };
    Units units;
    for (const char* name : {"first", "middle", "last"}) units.push_back(std::make_unique<Step>(name, drop));
    return units;
}

std::vector<engine::Bundle> three_micro_batches(std::uint64_t step) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(step);
    std::vector<engine::Bundle> batch;
    for (int index = 0; index < 3; ++index)
        batch.push_back({{"hidden", at::randn({2, 8}, generator, at::kFloat).to(at::kBFloat16)}});
    return batch;
}

TEST(Draws, AreTheSameWhenAUnitIsRunAgainForItsGradient) {
    at::manual_seed(5);
    const Trained kept = train(dropping, three_micro_batches, engine::Activations::retain, 4);
    at::manual_seed(5);
    const Trained again = train(dropping, three_micro_batches, engine::Activations::recompute, 4);
    EXPECT_EQ(again.losses, kept.losses);
    EXPECT_EQ(again.norms, kept.norms);
    EXPECT_EQ(again.snapshot.objects, kept.snapshot.objects);
    EXPECT_EQ(again.snapshot.client, kept.snapshot.client) << "the generator goes on from another place";
    at::manual_seed(6);
    EXPECT_NE(train(dropping, three_micro_batches, engine::Activations::recompute, 4).losses, kept.losses);
}

}  // namespace
}  // namespace penstock::testing
