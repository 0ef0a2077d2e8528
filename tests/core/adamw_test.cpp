#include "values.h"
#include "zero_infinity/optimizers.h"

#include "aio/error.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

using test::finite_values;
using test::first_difference;
using test::seed_text;

struct State {
    std::vector<float> p;
    std::vector<float> m;
    std::vector<float> v;

    explicit State(std::vector<float> start) : p(std::move(start)), m(p.size(), 0.0F), v(p.size(), 0.0F) {}
    UpdateSpan span(const std::vector<float>& g, std::size_t first, std::size_t count) {
        return {p.data() + first, {m.data() + first, v.data() + first}, g.data() + first, count};
    }
};

// The header's formula, word for word.
void naive_step(State& s, const std::vector<float>& g, const AdamWOptions& o, const StepValues& values) {
    const double t = static_cast<double>(values.step);
    const auto decay = static_cast<float>(1.0 - values.learning_rate * o.weight_decay);
    const auto w1 = static_cast<float>(1.0 - o.beta1);
    const auto b2 = static_cast<float>(o.beta2);
    const auto w2 = static_cast<float>(1.0 - o.beta2);
    const auto c2 = static_cast<float>(std::sqrt(1.0 - std::pow(o.beta2, t)));
    const auto eps = static_cast<float>(o.epsilon);
    const auto step = static_cast<float>(-(values.learning_rate / (1.0 - std::pow(o.beta1, t))));
    for (std::size_t i = 0; i < g.size(); ++i) {
        s.m[i] = w1 < 0.5F ? s.m[i] + (w1 * (g[i] - s.m[i])) : g[i] - ((g[i] - s.m[i]) * (1.0F - w1));
        s.v[i] = (s.v[i] * b2) + ((w2 * g[i]) * g[i]);
        s.p[i] = (s.p[i] * decay) + ((step * s.m[i]) / ((std::sqrt(s.v[i]) / c2) + eps));
    }
}

double rate(std::uint64_t step) { return 3e-4 * (1.0 - 0.03 * static_cast<double>(step)); }

TEST(AdamW, EqualsTheHeadersFormulaBitForBitOverManySteps) {
    const std::uint64_t seed = 5;
    SCOPED_TRACE(seed_text(seed));
    const AdamWOptions sets[] = {{}, {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-5, .weight_decay = 0.1},
                                 {.beta1 = 0.4, .beta2 = 0.5, .weight_decay = 0.01},
                                 {.beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.0}};
    for (const AdamWOptions& options : sets) {
        State state(finite_values(seed, 5003));
        State expected(state.p);
        const auto adamw = make_adamw(options);
        for (std::uint64_t step = 1; step <= 25; ++step) {
            const auto g = finite_values(seed + step, state.p.size(), 1e-2F);
            adamw->update(state.span(g, 0, g.size()), {step, rate(step)});
            naive_step(expected, g, options, {step, rate(step)});
            ASSERT_EQ(first_difference(state.p, expected.p), -1) << "step " << step;
            ASSERT_EQ(first_difference(state.m, expected.m), -1) << "step " << step;
            ASSERT_EQ(first_difference(state.v, expected.v), -1) << "step " << step;
        }
    }
}

// The paper's algorithm in double, with its bias-corrected moments written out: guards against one misreading in both
// places.
TEST(AdamW, FollowsThePapersAlgorithm2) {
    const std::uint64_t seed = 6;
    SCOPED_TRACE(seed_text(seed));
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const AdamWOptions o{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1};
    const double lr = 1e-2;
    constexpr std::size_t count = 500;
    std::vector<float> start(count);
    for (float& value : start) value = normal(random);
    State state(start);
    std::vector<double> p(start.begin(), start.end());
    std::vector<double> m(count, 0.0);
    std::vector<double> v(count, 0.0);
    const auto adamw = make_adamw(o);
    for (std::uint64_t step = 1; step <= 30; ++step) {
        std::vector<float> g(count);
        for (float& value : g) value = normal(random);
        adamw->update(state.span(g, 0, count), {step, lr});
        const auto t = static_cast<double>(step);
        for (std::size_t i = 0; i < count; ++i) {
            m[i] = o.beta1 * m[i] + (1 - o.beta1) * g[i];
            v[i] = o.beta2 * v[i] + (1 - o.beta2) * double(g[i]) * g[i];
            const double m_hat = m[i] / (1 - std::pow(o.beta1, t));
            const double v_hat = v[i] / (1 - std::pow(o.beta2, t));
            p[i] = p[i] - lr * (m_hat / (std::sqrt(v_hat) + o.epsilon) + o.weight_decay * p[i]);
            ASSERT_NEAR(state.p[i], p[i], 2e-5) << "step " << step << ", element " << i;
        }
    }
}

TEST(AdamW, GivesTheSameBitsForAnyCutIntoSpans) {
    const std::uint64_t seed = 7;
    SCOPED_TRACE(seed_text(seed));
    const auto adamw = make_adamw({});
    State whole(finite_values(seed, 3001));
    for (std::size_t piece : {1U, 3U, 16U, 64U, 1000U}) {
        State cut(whole.p);
        State reference(whole.p);
        const auto g = finite_values(seed + 1, cut.p.size(), 1e-2F);
        adamw->update(reference.span(g, 0, g.size()), {3, 1e-3});
        for (std::size_t first = 0; first < g.size(); first += piece)
            adamw->update(cut.span(g, first, std::min(piece, g.size() - first)), {3, 1e-3});
        EXPECT_EQ(first_difference(cut.p, reference.p), -1) << piece;
        EXPECT_EQ(first_difference(cut.m, reference.m), -1) << piece;
        EXPECT_EQ(first_difference(cut.v, reference.v), -1) << piece;
    }
}

TEST(AdamW, LeavesPaddingAtZero) {
    State state(std::vector<float>(64, 0.0F));
    const std::vector<float> g(64, 0.0F);
    const auto adamw = make_adamw({});
    for (std::uint64_t step = 1; step < 5; ++step) adamw->update(state.span(g, 0, 64), {step, 1e-3});
    for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(state.p[i], 0.0F);
        EXPECT_EQ(state.m[i], 0.0F);
        EXPECT_EQ(state.v[i], 0.0F);
    }
}

TEST(AdamW, RefusesOptionsThatMakeNoSenseByName) {
    const auto refused = [](const AdamWOptions& options, const std::string& name) {
        try {
            make_adamw(options);
        } catch (const Error& error) {
            return error.code() == ExitCode::usage && std::string(error.what()).find(name) != std::string::npos;
        }
        return false;
    };
    EXPECT_TRUE(refused({.beta1 = 1.0}, "beta1"));
    EXPECT_TRUE(refused({.beta1 = -0.1}, "beta1"));
    EXPECT_TRUE(refused({.beta2 = 1.0}, "beta2"));
    EXPECT_TRUE(refused({.beta2 = std::nan("")}, "beta2"));
    EXPECT_TRUE(refused({.epsilon = 0}, "epsilon"));
    EXPECT_TRUE(refused({.epsilon = 1e-60}, "epsilon"));  // zero as fp32: padding would become 0/0
    EXPECT_TRUE(refused({.weight_decay = -1}, "weight_decay"));
    EXPECT_TRUE(refused({.weight_decay = std::numeric_limits<double>::infinity()}, "weight_decay"));
    EXPECT_EQ(make_adamw({})->name(), "adamw");
    EXPECT_EQ(make_adamw({})->moments(), 2U);
}

}  // namespace
}  // namespace penstock
