// What a user of the engine can get wrong, and models at the edge of what it takes.
#include "tests/zero_infinity/engine/run.h"

#include "aio/words/error.h"
#include "tests/refusal.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

namespace penstock::testing {
namespace {

// Its output is either a copy of its parameter or the parameter itself.
class Table : public engine::Unit {
   public:
    enum class Output : std::uint8_t { copy, view };
    Table(std::string name, Output output, zero::Training training = zero::Training::trainable)
        : engine::Unit(std::move(name)),
          output_(output),
          weight_(declare("weight", {8, 8}, engine::Initial::normal(1), training)) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor row = weight_.tensor().select(0, 1);
        const at::Tensor hidden = at::linear(input.at("hidden"), weight_.tensor());
        return {{"hidden", hidden},
                {"loss", hidden.to(at::kFloat).pow(2).mean()},
                {"row", output_ == Output::view ? row : row.clone()}};
    }
    const engine::Parameter& weight() const { return weight_; }

   private:
    Output output_;
    const engine::Parameter& weight_;
};

std::unique_ptr<engine::Session> session_of(const std::string& directory,
                                            std::vector<std::unique_ptr<engine::Unit>> units,
                                            zero::DeviceKind device = zero::DeviceKind::cpu) {
    engine::SessionOptions options = toy_run(directory).session;
    options.device = {.kind = device, .budget_bytes = 1 << 20};
    return std::make_unique<engine::Session>(std::make_unique<engine::Model>(std::move(units)), zero::make_adamw({}),
                                             options, store::ClientState{}, engine::SessionEvents{});
}

engine::Bundle ones() {
    return {{"hidden", at::ones({2, 8}, at::kBFloat16)}};
}

TEST(Misuse, AUnitThatReturnsAViewOfItsParameterIsNamed) {
    const TemporaryDirectory directory;
    std::vector<std::unique_ptr<engine::Unit>> units;
    units.push_back(std::make_unique<Table>("first", Table::Output::view));
    units.push_back(std::make_unique<Table>("second", Table::Output::copy));
    const auto session = session_of(directory.path(), std::move(units));
    const std::string said = refusal_of(ExitCode::internal, [&] { session->engine().infer(ones()); });
    EXPECT_SAYS(said, "unit 'first' returns 'row', a view of its parameter 'weight'");
}

TEST(Misuse, AModelWithNothingToTrainRunsForwardOnEveryDevice) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        const TemporaryDirectory directory;
        std::vector<std::unique_ptr<engine::Unit>> units;
        units.push_back(std::make_unique<Table>("only", Table::Output::copy, zero::Training::frozen));
        const auto session = session_of(directory.path(), std::move(units), device);
        const engine::Bundle first = session->engine().infer(ones());
        EXPECT_TRUE(at::equal(first.at("hidden"), session->engine().infer(ones()).at("hidden")));
        EXPECT_GT(first.at("hidden").abs().sum().item<float>(), 0);
    }
}

// Its loss is finite, its gradient is not: the derivative of a root at zero.
class Root : public engine::Unit {
   public:
    Root() : engine::Unit("root"), weight_(declare("weight", {8}, engine::Initial::zeros())) {}
    engine::Bundle forward(const engine::Bundle&) const override {
        return {{"loss", weight_.tensor().to(at::kFloat).abs().sqrt().sum()}};
    }

   private:
    const engine::Parameter& weight_;
};

TEST(Misuse, AGradientThatIsNotFiniteIsNamedAndNothingIsCommitted) {
    const TemporaryDirectory directory;
    {
        std::vector<std::unique_ptr<engine::Unit>> units;
        units.push_back(std::make_unique<Root>());
        const auto session = session_of(directory.path(), std::move(units));
        const std::vector<engine::Bundle> batch{ones()};
        const std::string said = refusal_of(ExitCode::non_finite, [&] {
            session->engine().train_batch(batch, {.step = 1, .learning_rate = 1},
                                          [](const engine::StepReport&) { return store::ClientState{}; });
        });
        EXPECT_SAYS(said, "gradient of step 1 is not finite, first in unit 'root', parameter 'weight'");
    }
    EXPECT_EQ(read_snapshot(directory.path() + "/swap", "toy").generation, 0U);
}

// Finite as fp32, infinite as the weight that compute reads.
class Huge : public engine::Unit {
   public:
    Huge() : engine::Unit("huge"), weight_(declare("weight", {8}, engine::Initial::normal(3.4e38))) {}
    engine::Bundle forward(const engine::Bundle&) const override {
        return {{"loss", weight_.tensor().to(at::kFloat).sum()}};
    }

   private:
    const engine::Parameter& weight_;
};

std::string said_of_a_loss(std::unique_ptr<engine::Unit> unit, const at::Tensor& input) {
    const TemporaryDirectory directory;
    std::vector<std::unique_ptr<engine::Unit>> units;
    units.push_back(std::move(unit));
    const auto session = session_of(directory.path(), std::move(units));
    const std::vector<engine::Bundle> batch{engine::Bundle{{"hidden", input}}};
    return refusal_of(ExitCode::non_finite, [&] {
        session->engine().train_batch(batch, {.step = 1, .learning_rate = 1},
                                      [](const engine::StepReport&) { return store::ClientState{}; });
    });
}

TEST(Misuse, ALossThatIsNotFiniteTellsWhichWeightIsNotOrThatAllAre) {
    EXPECT_SAYS(said_of_a_loss(std::make_unique<Huge>(), at::ones({8})),
                "unit 'huge', parameter 'weight' holds infinity or NaN");
    const at::Tensor infinite = at::full({2, 8}, std::numeric_limits<float>::infinity(), at::kBFloat16);
    EXPECT_SAYS(said_of_a_loss(std::make_unique<Table>("table", Table::Output::copy), infinite),
                "although all weights are finite");
}

TEST(Misuse, AStoreOfAnotherCodecOfTheSameSizeIsRefused) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.steps = 1;
    run_toy(options);
    RunOptions other = options;
    other.session.codec = "plain_fp32";
    EXPECT_SAYS(refusal_of(ExitCode::usage, [&] { run_toy(other); }), "another model, codec or optimizer");
    other = options;
    other.model.tied_head = true;
    EXPECT_SAYS(refusal_of(ExitCode::usage, [&] { run_toy(other); }), "another model, codec or optimizer");
}

TEST(Misuse, SettingsThatCannotWorkAreRefusedBeforeAnythingIsMade) {
    const TemporaryDirectory directory;
    const RunOptions good = toy_run(directory.path());
    const auto refused = [&](auto change) {
        RunOptions bad = good;
        change(bad.session);
        return refusal_of(ExitCode::usage, [&] { run_toy(bad); });
    };
    EXPECT_SAYS(refused([](engine::SessionOptions& options) { options.codec = "split2"; }), "known are: split");
    EXPECT_SAYS(refused([](engine::SessionOptions& options) { options.codec = "plain_fp16"; }), "loss scale");
    for (const zero::PlaneType type : {zero::PlaneType::u8, zero::PlaneType::fp16})
        EXPECT_SAYS(refused([&](engine::SessionOptions& options) { options.gradient_type = type; }), "fp32 or bf16");
    EXPECT_SAYS(refused([](engine::SessionOptions& options) { options.staging_tiles = 0; }), "staging_tiles is 0");
    for (const bool in_host_memory : {true, false})
        EXPECT_SAYS(refused([in_host_memory](engine::SessionOptions& options) {
                        options.update_order = zero::UpdateOrder::within;
                        options.engine.gradient_clipping = 1;
                        if (in_host_memory)
                            options.residency.states = zero::Tier::host;
                        else
                            options.durability = zero::Durability{2};
                    }),
                    in_host_memory ? "it needs residency.states \"nvme\"; or"
                                   : "it needs commit_steps 1 in a store that is kept; or");
    EXPECT_SAYS(refused([](engine::SessionOptions& options) { options.worker_threads = 0; }), "worker_threads is 0");
    EXPECT_SAYS(refused([](engine::SessionOptions& options) { options.tile_numel = 1000; }), "not a multiple of 4096");
    EXPECT_FALSE(std::filesystem::exists(good.session.swap_directories.front()));
}

TEST(Misuse, ABudgetThatIsTooSmallIsRefusedWithItsTableBeforeAnythingIsMade) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.host_budget_bytes = 100'000;
    const std::string said = refusal_of(ExitCode::does_not_fit, [&] { run_toy(options); });
    for (const char* part : {"gradients", "staging", "weights", "host_budget_bytes"}) EXPECT_SAYS(said, part);
    EXPECT_FALSE(std::filesystem::exists(options.session.swap_directories.front()));
}

TEST(Misuse, BorrowingFromAUnitThatIsNotInTheModelIsRefused) {
    class Borrower : public engine::Unit {
       public:
        explicit Borrower(const Table& owner) : engine::Unit("borrower") { borrow(owner, owner.weight()); }
        engine::Bundle forward(const engine::Bundle& input) const override { return input; }
    };
    const Table outside("outside", Table::Output::copy);
    std::vector<std::unique_ptr<engine::Unit>> units;
    units.push_back(std::make_unique<Borrower>(outside));
    EXPECT_SAYS(refusal_of(ExitCode::usage, [&] { engine::Model model(std::move(units)); }), "borrows from 'outside'");
}

}  // namespace
}  // namespace penstock::testing
