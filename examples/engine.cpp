// The engine trains a model of your own. engine DIRECTORY prints "step 1: loss ..." to "step 10: loss ...", each when
// it is durable. Run again it goes on with step 11, also when it was killed.
#include "aio/words/error.h"
#include "zero_infinity/engine/session.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdio>

using namespace penstock;

constexpr std::int64_t width = 256;

struct Layer final : engine::Unit {
    explicit Layer(int index) : Unit("layers." + std::to_string(index)) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor& hidden = input.at("hidden");
        return {{"hidden", hidden + at::gelu(at::linear(hidden, weight.tensor()))}, {"target", input.at("target")}};
    }
    const engine::Parameter& weight = declare("weight", {width, width}, engine::Initial::normal(0.02));
};

struct Head final : engine::Unit {
    Head() : Unit("head") {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor output = at::linear(input.at("hidden"), weight.tensor());
        return {{"loss", at::mse_loss(output.to(at::kFloat), input.at("target"))}};
    }
    const engine::Parameter& weight = declare("weight", {width, width}, engine::Initial::normal(0.02));
};

// The same for a step whenever it is taken: "hidden" in bf16, as compute is, "target" in fp32.
std::vector<engine::Bundle> micro_batches_of(std::uint64_t step) {
    const at::Tensor input = at::randn({16, width}, at::make_generator<at::CPUGeneratorImpl>(step));
    return {{{"hidden", input.to(at::kBFloat16)}, {"target", input.flip(1)}}};
}

int main(int count, char** arguments) try {
    std::vector<std::unique_ptr<engine::Unit>> units;
    for (int i = 0; i < 4; ++i) units.push_back(std::make_unique<Layer>(i));
    units.push_back(std::make_unique<Head>());
    engine::SessionOptions options;  // codec "split": weights and compute in bf16, an exact fp32 master
    options.swap_directories = {count > 1 ? arguments[1] : "example-engine"};
    options.job = "example";
    options.host_budget_bytes = 64 << 20;
    engine::Session session(std::make_unique<engine::Model>(std::move(units)), zero::make_adamw({}), options,
                            {{"step", "0"}}, {});
    const std::uint64_t done = std::stoull(session.info().client.at("step"));
    for (std::uint64_t step = done + 1; step <= done + 10; ++step) {
        const auto kept = [&](const auto&) { return store::ClientState{{"step", std::to_string(step)}}; };
        const engine::StepReport report =
            session.engine().train_batch(micro_batches_of(step), {.step = step, .learning_rate = 1e-3}, kept);
        std::printf("step %d: loss %.4f\n", static_cast<int>(step), report.loss);
    }
} catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
}
