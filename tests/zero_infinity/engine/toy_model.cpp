#include "tests/zero_infinity/engine/toy_model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <string>

namespace penstock::testing {
namespace {

at::Tensor normed(const at::Tensor& hidden, const at::Tensor& gain) {
    const at::Tensor wide = hidden.to(at::kFloat);
    return (wide * (wide.pow(2).mean(-1, true) + 1e-5).rsqrt()).to(hidden.scalar_type()) * gain;
}

class Embedding : public engine::Unit {
   public:
    explicit Embedding(const ToyOptions& options)
        : engine::Unit("embedding"),
          table(declare("table", {options.vocabulary, options.width}, engine::Initial::normal(0.5),
                        options.frozen_embedding ? zero::Training::frozen : zero::Training::trainable)) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor hidden = at::embedding(table.tensor(), input.at("tokens"));
        // `skip` crosses every boundary beside `hidden`, as encoder output does.
        return {{"hidden", hidden}, {"skip", hidden * 0.5}, {"targets", input.at("targets")}};
    }
    const engine::Parameter& table;
};

class Block : public engine::Unit {
   public:
    Block(std::int64_t index, const ToyOptions& options)
        : engine::Unit("blocks." + std::to_string(index)),
          heads_(options.heads),
          gain_(declare("gain", {options.width}, engine::Initial::ones())),
          mix_(declare("mix", {3 * options.width, options.width}, engine::Initial::normal(0.15))),
          out_(declare("out", {options.width, options.width}, engine::Initial::normal(0.1))),
          gain2_(declare("gain2", {options.width}, engine::Initial::ones(),
                         options.frozen_gain ? zero::Training::frozen : zero::Training::trainable)),
          up_(declare("up", {4 * options.width, options.width}, engine::Initial::normal(0.15))),
          down_(declare("down", {options.width, 4 * options.width}, engine::Initial::normal(0.1))) {}

    engine::Bundle forward(const engine::Bundle& input) const override {
        at::Tensor hidden = input.at("hidden");
        const auto rows = hidden.size(0), length = hidden.size(1), width = hidden.size(2);
        const auto parts = at::linear(normed(hidden, gain_.tensor()), mix_.tensor())
                               .view({rows, length, 3, heads_, width / heads_})
                               .permute({2, 0, 3, 1, 4})
                               .unbind(0);
        const at::Tensor mixed =
            at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
        hidden = hidden + at::linear(mixed.transpose(1, 2).reshape({rows, length, width}), out_.tensor());
        hidden =
            hidden + at::linear(at::gelu(at::linear(normed(hidden, gain2_.tensor()), up_.tensor())), down_.tensor());
        return {{"hidden", hidden}, {"skip", input.at("skip")}, {"targets", input.at("targets")}};
    }

   private:
    std::int64_t heads_;
    const engine::Parameter &gain_, &mix_, &out_, &gain2_, &up_, &down_;
};

class Head : public engine::Unit {
   public:
    Head(const Embedding& embedding, const ToyOptions& options)
        : engine::Unit("head"),
          gain_(declare("gain", {options.width}, engine::Initial::ones())),
          weight_(options.tied_head
                      ? borrow(embedding, embedding.table)
                      : declare("weight", {options.vocabulary, options.width}, engine::Initial::normal(0.2))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor hidden = normed(input.at("hidden") + input.at("skip"), gain_.tensor());
        const at::Tensor logits = at::linear(hidden, weight_.tensor()).to(at::kFloat);
        const at::Tensor flat = logits.view({-1, logits.size(-1)});
        return {{"loss", at::cross_entropy_loss(flat, input.at("targets").view({-1}))}, {"logits", logits}};
    }

   private:
    const engine::Parameter& gain_;
    const engine::Parameter& weight_;
};

}  // namespace

std::unique_ptr<engine::Model> make_toy_model(const ToyOptions& options) {
    // Torch's thread count changes bits, and a second thread costs more than it gives at this size.
    at::set_num_threads(1);
    std::vector<std::unique_ptr<engine::Unit>> units;
    auto embedding = std::make_unique<Embedding>(options);
    const Embedding& first = *embedding;
    units.push_back(std::move(embedding));
    for (std::int64_t index = 0; index < options.layers; ++index)
        units.push_back(std::make_unique<Block>(index, options));
    units.push_back(std::make_unique<Head>(first, options));
    return std::make_unique<engine::Model>(std::move(units));
}

engine::Bundle toy_batch(std::uint64_t seed, std::int64_t rows, std::int64_t length, const ToyOptions& options) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::Tensor tokens = at::randint(0, options.vocabulary, {rows, length + 1}, generator, at::kLong);
    return {{"tokens", tokens.narrow(1, 0, length).contiguous()},
            {"targets", tokens.narrow(1, 1, length).contiguous()}};
}

}  // namespace penstock::testing
