#include "trainer/models/gpt.h"
#include "aio/words/error.h"

#include "tests/trainer/models/gpt_reference.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace penstock::trainer {
namespace {

// A small model whose parameters lie in plain memory.
class BoundModel {
   public:
    BoundModel(const GptOptions& options, at::ScalarType type) : model_(make_gpt(options)) {
        std::mt19937 generator(5);
        std::normal_distribution<float> normal(0, 0.3F);
        for (const auto& unit : model_->units()) {
            for (const auto& parameter : unit->parameters()) {
                at::Tensor values = at::empty(parameter->spec().shape, at::kFloat);
                auto* data = values.data_ptr<float>();
                for (std::int64_t i = 0; i < values.numel(); ++i) data[i] = normal(generator);
                values = values.to(type);
                remember(unit->name() + "." + parameter->spec().name, values.to(at::kFloat));
                memory_.push_back(values);
                parameter->materialise(type, at::kCPU);
                parameter->bind(static_cast<std::byte*>(values.data_ptr()));
            }
        }
    }

    engine::Bundle forward(const engine::Bundle& input) const {
        at::NoGradGuard no_grad;
        engine::Bundle bundle = input;
        for (const auto& unit : model_->units()) bundle = unit->forward(bundle);
        return bundle;
    }

    const engine::Model& model() const { return *model_; }
    const testing::Weights& weights() const { return weights_; }

   private:
    void remember(const std::string& name, const at::Tensor& values) {
        const auto* data = values.data_ptr<float>();
        weights_[name] = std::vector<double>(data, data + values.numel());
    }

    std::unique_ptr<engine::Model> model_;
    std::vector<at::Tensor> memory_;
    testing::Weights weights_;
};

GptOptions small() {
    return {.vocabulary = 11, .hidden = 12, .layers = 2, .heads = 3, .feed_forward = 20, .context = 7, .frozen = {}};
}

const std::vector<std::int64_t> row = {3, 10, 0, 7, 7, 1, 4};

at::Tensor tokens_of(const std::vector<std::int64_t>& tokens) {
    return at::tensor(at::ArrayRef<std::int64_t>(tokens)).view({1, -1});
}

class Gpt : public ::testing::TestWithParam<std::tuple<NormKind, PositionKind, HeadKind>> {
   protected:
    static GptOptions options() {
        GptOptions options = small();
        std::tie(options.norm, options.positions, options.head) = GetParam();
        return options;
    }
};

TEST_P(Gpt, AgreesWithTheReference) {
    const BoundModel bound(options(), at::kFloat);
    const at::Tensor logits = bound.forward({{"tokens", tokens_of(row)}}).at("logits");
    ASSERT_EQ(logits.sizes(), (std::vector<std::int64_t>{1, 7, 11}));
    const auto expected = testing::reference_logits(options(), bound.weights(), row);
    for (std::int64_t column = 0; column < 7; ++column) {
        for (std::int64_t token = 0; token < 11; ++token) {
            const double value = expected[static_cast<std::size_t>(column)][static_cast<std::size_t>(token)];
            EXPECT_NEAR(logits[0][column][token].item<double>(), value, 2e-5 * (1 + std::abs(value)))
                << column << " " << token;
        }
    }
}

TEST_P(Gpt, LossIsTheMeanCrossEntropyOverAllTargets) {
    const BoundModel bound(options(), at::kFloat);
    const std::vector<std::int64_t> targets = {10, 0, 7, 7, 1, 4, 9};
    const auto expected = testing::reference_logits(options(), bound.weights(), row);
    double sum = 0;
    for (std::size_t column = 0; column < row.size(); ++column) {
        double total = 0;
        for (const double logit : expected[column]) total += std::exp(logit);
        sum += std::log(total) - expected[column][static_cast<std::size_t>(targets[column])];
    }
    const engine::Bundle output = bound.forward({{"tokens", tokens_of(row)}, {"targets", tokens_of(targets)}});
    EXPECT_EQ(output.at("loss").dim(), 0);
    EXPECT_NEAR(output.at("loss").item<double>(), sum / static_cast<double>(row.size()), 1e-4);
}

TEST_P(Gpt, ComputesInTheTypeOfItsParametersAndGivesFp32) {
    const BoundModel bound(options(), at::kBFloat16);
    at::NoGradGuard no_grad;
    engine::Bundle bundle{{"tokens", tokens_of(row)}};
    for (const auto& unit : bound.model().units()) {
        bundle = unit->forward(bundle);
        if (bundle.has("hidden")) {
            EXPECT_EQ(bundle.at("hidden").scalar_type(), at::kBFloat16);
        }
    }
    EXPECT_EQ(bundle.at("logits").scalar_type(), at::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Gpt,
                         ::testing::Combine(::testing::Values(NormKind::rms, NormKind::layer),
                                            ::testing::Values(PositionKind::rotary, PositionKind::learned),
                                            ::testing::Values(HeadKind::own, HeadKind::tied)));

TEST(GptModel, SeesNoLaterToken) {
    const BoundModel bound(small(), at::kFloat);
    std::vector<std::int64_t> changed = row;
    changed[5] = 9;
    const at::Tensor before = bound.forward({{"tokens", tokens_of(row)}}).at("logits");
    const at::Tensor after = bound.forward({{"tokens", tokens_of(changed)}}).at("logits");
    EXPECT_TRUE(before.narrow(1, 0, 5).equal(after.narrow(1, 0, 5)));
    EXPECT_FALSE(before.narrow(1, 5, 2).equal(after.narrow(1, 5, 2)));
}

TEST(GptModel, HasTheUnitsAndParametersOfItsHeader) {
    GptOptions options = small();
    options.norm = NormKind::layer;
    options.positions = PositionKind::learned;
    const auto model = make_gpt(options);
    std::vector<std::string> names;
    for (const auto& unit : model->units()) {
        for (const auto& parameter : unit->parameters()) names.push_back(unit->name() + "." + parameter->spec().name);
    }
    std::vector<std::string> expected = {"embedding.tokens", "embedding.positions"};
    for (const char* block : {"blocks.0.", "blocks.1."}) {
        for (const char* name : {"attention_norm", "attention_norm_bias", "qkv", "attention_out", "mlp_norm",
                                 "mlp_norm_bias", "mlp_in", "mlp_out"}) {
            expected.push_back(std::string(block) + name);
        }
    }
    for (const char* name : {"head.norm", "head.norm_bias", "head.weight"}) expected.emplace_back(name);
    EXPECT_EQ(names, expected);
    // 11 * 12 twice, 7 * 12, head 2 * 12; a block 4 * 12 * 12 + 2 * 12 * 20 + 4 * 12.
    EXPECT_EQ(model->parameter_numel(), 2U * 132 + 84 + 24 + 2 * (576 + 480 + 48));
}

TEST(GptModel, CountsATiedHeadOnce) {
    GptOptions options = small();
    const std::uint64_t own = make_gpt(options)->parameter_numel();
    options.head = HeadKind::tied;
    EXPECT_EQ(make_gpt(options)->parameter_numel(), own - 132);
}

TEST(GptModel, ScalesWhatWritesIntoTheResidualStream) {
    const auto model = make_gpt(small());
    for (const auto& parameter : model->units()[1]->parameters()) {
        const std::string& name = parameter->spec().name;
        const double deviation = parameter->initial().deviation;
        const bool writes = name == "attention_out" || name == "mlp_out";
        if (writes || name == "qkv" || name == "mlp_in") {
            EXPECT_DOUBLE_EQ(deviation, writes ? 0.02 / 2 : 0.02) << name;  // sqrt(2 * 2 layers) = 2
        }
    }
}

TEST(GptModel, FreezesUnitsAndParametersByName) {
    GptOptions options = small();
    options.frozen = {"embedding", "blocks.1.qkv"};
    const auto model = make_gpt(options);
    std::vector<std::string> frozen;
    for (const auto& unit : model->units()) {
        for (const auto& parameter : unit->parameters()) {
            if (parameter->spec().training == zero::Training::frozen)
                frozen.push_back(unit->name() + "." + parameter->spec().name);
        }
    }
    EXPECT_EQ(frozen, (std::vector<std::string>{"embedding.tokens", "blocks.1.qkv"}));
}

TEST(GptModel, RefusesFrozenNamesThatAreNone) {
    GptOptions options = small();
    for (const char* name : {"blocks.2", "blocks", "qkv", "embedding.positions", ""}) {
        options.frozen = {name};
        EXPECT_THROW(make_gpt(options), Error) << name;
    }
    options.frozen = {"embedding", "blocks.0", "blocks.1", "head"};
    EXPECT_THROW(make_gpt(options), Error);
}

}  // namespace
}  // namespace penstock::trainer
