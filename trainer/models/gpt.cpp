#include "trainer/models/gpt.h"

#include "aio/words/error.h"
#include "trainer/models/chunked_loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::trainer {
namespace {

constexpr double deviation = 0.02;
constexpr double norm_epsilon = 1e-5;
constexpr double rotary_base = 10000;

// Which parameters are frozen, and whether each name on the list was one.
class FrozenNames {
   public:
    explicit FrozenNames(const std::vector<std::string>& names) : names_(names), used_(names.size(), 0) {}

    zero::Training of(const std::string& unit, const std::string& parameter) {
        zero::Training training = zero::Training::trainable;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            if (names_[i] != unit && names_[i] != unit + "." + parameter) continue;
            used_[i] = 1;
            training = zero::Training::frozen;
        }
        return training;
    }

    void check_all_used() const {
        for (std::size_t i = 0; i < names_.size(); ++i) {
            if (used_[i] != 0) continue;
            throw Error(ExitCode::usage,
                        fmt::format("model.frozen: \"{}\" is no unit or parameter of the model; there are "
                                    "\"embedding\", \"blocks.0\", \"blocks.0.qkv\", \"head\" and so on",
                                    names_[i]));
        }
    }

   private:
    const std::vector<std::string>& names_;
    std::vector<char> used_;
};

// Adds "hidden" to what is passed on unchanged.
engine::Bundle with_hidden(const engine::Bundle& input, at::Tensor hidden) {
    engine::Bundle output{{"hidden", std::move(hidden)}};
    if (input.has("targets")) output.set("targets", input.at("targets"));
    return output;
}

// The declared parameters of one norm.
struct Norm {
    NormKind kind = NormKind::rms;
    const engine::Parameter* weight = nullptr;
    const engine::Parameter* bias = nullptr;  // of LayerNorm

    at::Tensor operator()(const at::Tensor& input) const {
        const at::Tensor wide = input.to(at::kFloat);
        const at::Tensor scale = weight->tensor().to(at::kFloat);
        if (kind == NormKind::layer) {
            return at::layer_norm(wide, {wide.size(-1)}, scale, bias->tensor().to(at::kFloat), norm_epsilon)
                .to(input.scalar_type());
        }
        const at::Tensor mean_square = wide.square().mean(-1, true);
        return (wide * at::rsqrt(mean_square + norm_epsilon) * scale).to(input.scalar_type());
    }
};

// What all units of the decoder share while they are declared.
class GptUnit : public engine::Unit {
   public:
    using engine::Unit::Unit;

   protected:
    const engine::Parameter& declare_weight(FrozenNames& frozen, const std::string& parameter,
                                            std::vector<std::int64_t> shape, engine::Initial initial) {
        return declare(parameter, std::move(shape), initial, frozen.of(name(), parameter));
    }

    Norm declare_norm(FrozenNames& frozen, const std::string& parameter, const GptOptions& options) {
        Norm norm{.kind = options.norm};
        norm.weight = &declare_weight(frozen, parameter, {options.hidden}, engine::Initial::ones());
        if (options.norm == NormKind::layer) {
            norm.bias = &declare_weight(frozen, parameter + "_bias", {options.hidden}, engine::Initial::zeros());
        }
        return norm;
    }
};

class Embedding : public GptUnit {
   public:
    Embedding(const GptOptions& options, FrozenNames& frozen)
        : GptUnit("embedding"),
          tokens_(declare_weight(frozen, "tokens", {options.vocabulary, options.hidden},
                                 engine::Initial::normal(deviation))) {
        if (options.positions == PositionKind::rotary) return;
        positions_ =
            &declare_weight(frozen, "positions", {options.context, options.hidden}, engine::Initial::normal(deviation));
    }

    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor& tokens = input.at("tokens");
        at::Tensor hidden = at::embedding(tokens_.tensor(), tokens);
        if (positions_ != nullptr) hidden = hidden + positions_->tensor().narrow(0, 0, tokens.size(1));
        return with_hidden(input, std::move(hidden));
    }

    const engine::Parameter& tokens() const noexcept { return tokens_; }

   private:
    const engine::Parameter& tokens_;
    const engine::Parameter* positions_ = nullptr;
};

// Rotates the halves of each head's vector by an angle that grows with the position: pair i of d/2 turns by
// position * 10000^(-2i/d). `input` is [rows, heads, columns, d].
at::Tensor rotate(const at::Tensor& input) {
    const std::int64_t half = input.size(-1) / 2;
    const auto fp32 = input.options().dtype(at::kFloat);
    const at::Tensor frequencies = at::pow(rotary_base, at::arange(half, fp32) * (-1.0 / static_cast<double>(half)));
    const at::Tensor angles = at::outer(at::arange(input.size(-2), fp32), frequencies);
    const at::Tensor cosine = at::cos(angles);
    const at::Tensor sine = at::sin(angles);
    const at::Tensor first = input.narrow(-1, 0, half).to(at::kFloat);
    const at::Tensor second = input.narrow(-1, half, half).to(at::kFloat);
    return at::cat({first * cosine - second * sine, second * cosine + first * sine}, -1).to(input.scalar_type());
}

class Block : public GptUnit {
   public:
    Block(std::int64_t index, const GptOptions& options, FrozenNames& frozen)
        : GptUnit(fmt::format("blocks.{}", index)),
          heads_(options.heads),
          positions_(options.positions),
          attention_norm_(declare_norm(frozen, "attention_norm", options)),
          qkv_(declare_weight(frozen, "qkv", {3 * options.hidden, options.hidden}, engine::Initial::normal(deviation))),
          attention_out_(declare_weight(frozen, "attention_out", {options.hidden, options.hidden}, residual(options))),
          mlp_norm_(declare_norm(frozen, "mlp_norm", options)),
          mlp_in_(declare_weight(frozen, "mlp_in", {options.feed_forward, options.hidden},
                                 engine::Initial::normal(deviation))),
          mlp_out_(declare_weight(frozen, "mlp_out", {options.hidden, options.feed_forward}, residual(options))) {}

    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor& hidden = input.at("hidden");
        const at::Tensor attended = hidden + at::linear(attend(attention_norm_(hidden)), attention_out_.tensor());
        const at::Tensor inner = at::gelu(at::linear(mlp_norm_(attended), mlp_in_.tensor()), "tanh");
        return with_hidden(input, attended + at::linear(inner, mlp_out_.tensor()));
    }

   private:
    // 2 * layers matrices write into the residual stream: scaled so, its variance does not grow with depth.
    static engine::Initial residual(const GptOptions& options) {
        return engine::Initial::normal(deviation / std::sqrt(2.0 * static_cast<double>(options.layers)));
    }

    // [rows, columns, hidden] → the same
    at::Tensor attend(const at::Tensor& normed) const {
        const std::int64_t rows = normed.size(0);
        const std::int64_t columns = normed.size(1);
        const std::int64_t hidden = normed.size(2);
        // [rows, columns, 3, heads, d] → three times [rows, heads, columns, d]
        const at::Tensor split = at::linear(normed, qkv_.tensor())
                                     .view({rows, columns, 3, heads_, hidden / heads_})
                                     .permute({2, 0, 3, 1, 4});
        at::Tensor query = split.select(0, 0);
        at::Tensor key = split.select(0, 1);
        if (positions_ == PositionKind::rotary) {
            query = rotate(query);
            key = rotate(key);
        }
        const at::Tensor mixed = at::scaled_dot_product_attention(query, key, split.select(0, 2), {}, 0.0, true);
        return mixed.transpose(1, 2).reshape({rows, columns, hidden});
    }

    std::int64_t heads_;
    PositionKind positions_;
    Norm attention_norm_;
    const engine::Parameter& qkv_;
    const engine::Parameter& attention_out_;
    Norm mlp_norm_;
    const engine::Parameter& mlp_in_;
    const engine::Parameter& mlp_out_;
};

class Head : public GptUnit {
   public:
    Head(const GptOptions& options, FrozenNames& frozen, const Embedding& embedding)
        : GptUnit("head"),
          norm_(declare_norm(frozen, "norm", options)),
          weight_(options.head == HeadKind::tied
                      ? borrow(embedding, embedding.tokens())
                      : declare_weight(frozen, "weight", {options.vocabulary, options.hidden},
                                       engine::Initial::normal(deviation))),
          loss_{.tokens_at_once = loss_tokens_at_once(options)} {}

    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor hidden = norm_(input.at("hidden"));
        if (!input.has("targets")) return {{"logits", at::linear(hidden, weight_.tensor()).to(at::kFloat)}};
        return {{"loss", chunked_cross_entropy(hidden.reshape({-1, hidden.size(-1)}), weight_.tensor(),
                                               input.at("targets").reshape({-1}), loss_)}};
    }

   private:
    Norm norm_;
    const engine::Parameter& weight_;
    LossShape loss_;
};

}  // namespace

std::unique_ptr<engine::Model> make_gpt(const GptOptions& options) {
    FrozenNames frozen(options.frozen);
    std::vector<std::unique_ptr<engine::Unit>> units;
    auto embedding = std::make_unique<Embedding>(options, frozen);
    const Embedding& first = *embedding;
    units.push_back(std::move(embedding));
    for (std::int64_t index = 0; index < options.layers; ++index)
        units.push_back(std::make_unique<Block>(index, options, frozen));
    units.push_back(std::make_unique<Head>(options, frozen, first));
    frozen.check_all_used();
    auto model = std::make_unique<engine::Model>(std::move(units));
    if (model->trainable_numel() == 0) throw Error(ExitCode::usage, "model.frozen leaves nothing to train");
    return model;
}

}  // namespace penstock::trainer
