// Trains a small model of its own: train DIRECTORY. Again: goes on where it ended.
#include "aio/words/error.h"
#include "zero_infinity/engine/session.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdio>

using namespace penstock;

constexpr std::int64_t width = 256;

class Layer final : public engine::Unit {
   public:
    explicit Layer(std::string name)
        : engine::Unit(std::move(name)), weight_(declare("weight", {width, width}, engine::Initial::normal(0.02))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor& hidden = input.at("hidden");
        return {{"hidden", hidden + at::gelu(at::linear(hidden, weight_.tensor()))}, {"target", input.at("target")}};
    }

   private:
    const engine::Parameter& weight_;
};

class Head final : public engine::Unit {
   public:
    Head() : engine::Unit("head"), weight_(declare("weight", {width, width}, engine::Initial::normal(0.02))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor output = at::linear(input.at("hidden"), weight_.tensor());
        return {{"loss", at::mse_loss(output.to(at::kFloat), input.at("target"))}};
    }

   private:
    const engine::Parameter& weight_;
};

// The same for a step whenever it is taken: "hidden" in bf16, as compute is, "target" in fp32.
std::vector<engine::Bundle> micro_batches_of(std::uint64_t step) {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(step);
    const at::Tensor input = at::randn({16, width}, generator);
    return {{{"hidden", input.to(at::kBFloat16)}, {"target", input.flip(1)}}};
}

int main(int, char** arguments) try {
    std::vector<std::unique_ptr<engine::Unit>> units;
    for (int i = 0; i < 4; ++i) units.push_back(std::make_unique<Layer>("layers." + std::to_string(i)));
    units.push_back(std::make_unique<Head>());

    engine::SessionOptions options;  // codec "split": weights and compute in bf16, an exact fp32 master
    options.swap_directories = {arguments[1]};
    options.job = "example";
    options.host_budget_bytes = 64 << 20;
    engine::Session session(std::make_unique<engine::Model>(std::move(units)), zero::make_adamw({}), options,
                            {{"step", "0"}}, {});

    const std::uint64_t done = std::stoull(session.info().client.at("step"));
    for (std::uint64_t step = done + 1; step <= done + 10; ++step) {
        const engine::StepReport report = session.engine().train_batch(
            micro_batches_of(step), {.step = step, .learning_rate = 1e-3}, [&](const engine::StepReport&) {
                return store::ClientState{{"step", std::to_string(step)}};
            });
        std::printf("step %d: loss %.4f\n", static_cast<int>(step), report.loss);  // and it is durable
    }
    return 0;
} catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
}
