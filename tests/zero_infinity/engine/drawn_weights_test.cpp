// The first weights of a model: numbers written down, and what a normal distribution must be.
#include "zero_infinity/engine/drawn_weights.h"

#include "tests/zero_infinity/engine/reference_loop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace penstock::testing {
namespace {

class Large : public engine::Unit {
   public:
    explicit Large(std::string name) : engine::Unit(std::move(name)) {
        for (const char* each : {"one", "other"}) declare(each, {1000, 1000}, engine::Initial::normal(0.02));
        declare("gain", {7}, engine::Initial::ones());
        declare("bias", {7}, engine::Initial::zeros());
    }
    engine::Bundle forward(const engine::Bundle& input) const override { return input; }
};

std::vector<float> drawn(const engine::Unit& unit, std::size_t parameter, std::uint64_t seed) {
    std::vector<float> values(unit.parameters()[parameter]->spec().numel());
    engine::draw_initial(*unit.parameters()[parameter], unit.name(), seed, values.data());
    return values;
}

struct Golden {
    std::size_t unit;  // of the toy model
    std::size_t parameter;
    const char* name;
    std::uint64_t seed;
    std::vector<float> first;
};

// Made by tests/oracle/initial_weights.py: XXH64-3 of the name, the Mersenne twister, Box and Muller, in double. Torch
// computes in fp32, and with vectors the last bits are another function's.
const std::vector<Golden>& golden() {
    static const std::vector<Golden> all = {
#include "tests/oracle/initial_weights.golden"
    };
    return all;
}

TEST(DrawnWeights, BeginWithTheNumbersThatAreWrittenDown) {
    const auto model = make_toy_model({});
    for (const Golden& each : golden()) {
        const engine::Unit& unit = *model->units()[each.unit];
        EXPECT_EQ(unit.name() + "/" + unit.parameters()[each.parameter]->spec().name, each.name);
        const std::vector<float> values = drawn(unit, each.parameter, each.seed);
        for (std::size_t i = 0; i < each.first.size(); ++i)
            EXPECT_NEAR(values[i], each.first[i], 2e-6) << each.name << ", seed " << each.seed << ", element " << i;
    }
}

// The mean of n draws is within 5 deviations of its own, 0.02 / sqrt(n) = 2e-5; so is their deviation, 0.02 / sqrt(2
// n).
TEST(DrawnWeights, HaveTheMeanAndTheDeviationThatWereAskedFor) {
    const Large unit("large");
    const std::vector<float> values = drawn(unit, 0, 3);
    const auto n = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
    double squares = 0;
    std::size_t far = 0;
    for (const float each : values) {
        squares += (each - mean) * (each - mean);
        far += std::abs(each) > 0.04F ? 1 : 0;
    }
    EXPECT_NEAR(mean, 0, 1e-4);
    EXPECT_NEAR(std::sqrt(squares / n), 0.02, 7.1e-5);
    EXPECT_NEAR(static_cast<double>(far) / n, 0.0455, 0.0011) << "beyond two deviations";
    EXPECT_EQ(drawn(unit, 2, 3), std::vector<float>(7, 1.0F));
    EXPECT_EQ(drawn(unit, 3, 3), std::vector<float>(7, 0.0F));
}

// Asked for in the order of a store that is filled, and in another one.
TEST(DrawnWeights, AreTheSameHoweverManyThreadsDraw) {
    const auto model = make_toy_model({});
    for (const unsigned threads : {1U, 2U, 5U, 100U})
        for (const bool in_order : {true, false}) {
            engine::DrawnWeights source(*model, 3, threads);
            for (std::size_t index = 0; index < model->units().size(); ++index) {
                const engine::Unit& unit = *model->units()[in_order ? index : model->units().size() - 1 - index];
                const zero::UnitSpec spec = unit.spec();
                for (std::size_t parameter = 0; parameter < unit.parameters().size(); ++parameter) {
                    const std::vector<float> wanted = drawn(unit, parameter, 3);
                    std::vector<float> first(wanted.size() / 2), rest(wanted.size() - first.size());
                    source.read({spec, spec.parameters[parameter]}, 0, first);
                    source.read({spec, spec.parameters[parameter]}, first.size(), rest);
                    first.insert(first.end(), rest.begin(), rest.end());
                    EXPECT_EQ(first, wanted) << unit.name() << ", " << threads << " threads";
                }
            }
        }
}

// Of two independent draws each element differs, but for one in some millions.
std::size_t same_elements(const std::vector<float>& one, const std::vector<float>& other) {
    return std::inner_product(one.begin(), one.end(), other.begin(), std::size_t{0}, std::plus<>(),
                              [](float a, float b) { return std::size_t{a == b}; });
}

TEST(DrawnWeights, DifferByUnitParameterAndSeedAndByNothingElse) {
    const Large unit("large"), sister("small");
    const std::vector<float> values = drawn(unit, 0, 3);
    EXPECT_LT(same_elements(values, drawn(unit, 1, 3)), 10U) << "of another name";
    EXPECT_LT(same_elements(values, drawn(sister, 0, 3)), 10U) << "of another unit";
    EXPECT_LT(same_elements(values, drawn(unit, 0, 4)), 10U) << "of another seed";
    EXPECT_LT(same_elements(values, drawn(unit, 0, 3 + (std::uint64_t{1} << 40))), 10U) << "of a seed beyond 32 bits";
    EXPECT_EQ(values, drawn(Large("large"), 0, 3));
    EXPECT_EQ(values, first_weights(*unit.parameters()[0], "large", 3)) << "the plain loop begins with other weights";
}

}  // namespace
}  // namespace penstock::testing
