// Every optimizer of the library against the formula of optimizers.h, written out here.
#include "zero_infinity/optimizer/optimizers.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/kernels/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;
using test::seed_text;

struct State {
    std::vector<float> p;
    std::vector<float> moments[2];

    State(std::vector<float> start, const Optimizer& optimizer) : p(std::move(start)) {
        for (std::uint32_t moment = 0; moment < optimizer.moments(); ++moment)
            moments[moment].assign(p.size(), optimizer.initial_moment(moment));
    }
    UpdateSpan span(const std::vector<float>& g, std::size_t first, std::size_t count) {
        UpdateSpan span{.master = p.data() + first, .gradient = g.data() + first, .count = count};
        for (int moment = 0; moment < 2; ++moment)
            if (!moments[moment].empty()) span.moments[moment] = moments[moment].data() + first;
        return span;
    }
};

// One element, by the header's words. a and b are the moments.
using Formula = std::function<void(float& p, float& a, float& b, float g, double lr, double t)>;

struct Case {
    std::string name;
    std::function<std::unique_ptr<Optimizer>()> make;
    Formula formula;
};

void PrintTo(const Case& each, std::ostream* out) {
    *out << each.name;
}

Case adam(const std::string& name, const AdamOptions& o) {
    return {name, [o] { return make_adam(o); },
            [o](float& p, float& m, float& v, float g, double lr, double t) {
                const auto w1 = static_cast<float>(1.0 - o.beta1);
                const auto b2 = static_cast<float>(o.beta2);
                const auto w2 = static_cast<float>(1.0 - o.beta2);
                const auto c2 = static_cast<float>(std::sqrt(1.0 - std::pow(o.beta2, t)));
                const auto eps = static_cast<float>(o.epsilon);
                const auto s = static_cast<float>(-(lr / (1.0 - std::pow(o.beta1, t))));
                if (o.weight_decay != 0) g = g + (static_cast<float>(o.weight_decay) * p);
                m = w1 < 0.5F ? m + (w1 * (g - m)) : g - ((g - m) * (1.0F - w1));
                v = (v * b2) + ((w2 * g) * g);
                p = p + ((s * m) / ((std::sqrt(v) / c2) + eps));
            }};
}

Case adamw(const std::string& name, const AdamWOptions& o) {
    return {name, [o] { return make_adamw(o); },
            [o](float& p, float& m, float& v, float g, double lr, double t) {
                const auto decay = static_cast<float>(1.0 - lr * o.weight_decay);
                const auto w1 = static_cast<float>(1.0 - o.beta1);
                const auto b2 = static_cast<float>(o.beta2);
                const auto w2 = static_cast<float>(1.0 - o.beta2);
                const auto c2 = static_cast<float>(std::sqrt(1.0 - std::pow(o.beta2, t)));
                const auto eps = static_cast<float>(o.epsilon);
                const auto s = static_cast<float>(-(lr / (1.0 - std::pow(o.beta1, t))));
                m = w1 < 0.5F ? m + (w1 * (g - m)) : g - ((g - m) * (1.0F - w1));
                v = (v * b2) + ((w2 * g) * g);
                p = (p * decay) + ((s * m) / ((std::sqrt(v) / c2) + eps));
            }};
}

Case sgd(const std::string& name, const SgdOptions& o) {
    return {name, [o] { return make_sgd(o); },
            [o](float& p, float& b, float&, float g, double lr, double t) {
                const auto momentum = static_cast<float>(o.momentum);
                const auto u = static_cast<float>(1.0 - o.dampening);
                const auto s = static_cast<float>(-lr);
                if (o.weight_decay != 0) g = g + (static_cast<float>(o.weight_decay) * p);
                float d = g;
                if (o.momentum != 0) {
                    b = t == 1 ? g : (b * momentum) + (u * g);
                    d = o.nesterov ? g + (momentum * b) : b;
                }
                p = p + (s * d);
            }};
}

Case lion(const std::string& name, const LionOptions& o) {
    return {name, [o] { return make_lion(o); },
            [o](float& p, float& m, float&, float g, double lr, double) {
                const auto decay = static_cast<float>(1.0 - lr * o.weight_decay);
                const auto s = static_cast<float>(-lr);
                const float c = (m * static_cast<float>(o.beta1)) + (g * static_cast<float>(1.0 - o.beta1));
                const float sign = c > 0 ? 1.0F : c < 0 ? -1.0F : 0.0F;
                p = (p * decay) + (s * sign);
                m = (m * static_cast<float>(o.beta2)) + (static_cast<float>(1.0 - o.beta2) * g);
            }};
}

Case adagrad(const std::string& name, const AdagradOptions& o) {
    return {name, [o] { return make_adagrad(o); },
            [o](float& p, float& v, float&, float g, double lr, double t) {
                const auto s = static_cast<float>(-(lr / (1.0 + (t - 1.0) * o.lr_decay)));
                if (o.weight_decay != 0) g = g + (static_cast<float>(o.weight_decay) * p);
                v = v + (g * g);
                p = p + ((s * g) / (std::sqrt(v) + static_cast<float>(o.epsilon)));
            }};
}

std::vector<Case> cases() {
    return {
        adam("adam", {}),
        adam("adam_penalised", {.beta1 = 0.4, .beta2 = 0.95, .epsilon = 1e-5, .weight_decay = 0.1}),
        adamw("adamw", {}),
        adamw("adamw_decayed", {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-5, .weight_decay = 0.1}),
        adamw("adamw_short", {.beta1 = 0.4, .beta2 = 0.5, .weight_decay = 0.01}),
        adamw("adamw_memoryless", {.beta1 = 0.0, .beta2 = 0.0, .weight_decay = 0.0}),
        sgd("sgd", {}),
        sgd("sgd_penalised", {.weight_decay = 0.1}),
        sgd("sgd_momentum", {.momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}),
        sgd("sgd_nesterov", {.momentum = 0.8, .nesterov = true}),
        lion("lion", {}),
        lion("lion_decayed", {.beta1 = 0.95, .beta2 = 0.98, .weight_decay = 0.5}),
        adagrad("adagrad", {}),
        adagrad("adagrad_all", {.lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator = 0.25, .epsilon = 1e-6})};
}

double rate(std::uint64_t step) {
    return 3e-3 * (1.0 - 0.03 * static_cast<double>(step));
}

class Optimizers : public ::testing::TestWithParam<Case> {};

TEST_P(Optimizers, EqualTheHeadersFormulaBitForBitOverManySteps) {
    const std::uint64_t seed = 11;
    SCOPED_TRACE(seed_text(seed));
    const auto optimizer = GetParam().make();
    State state(finite_values(seed, 5003), *optimizer);
    State expected(state.p, *optimizer);
    for (std::uint64_t step = 1; step <= 25; ++step) {
        const auto g = finite_values(seed + step, state.p.size(), 1e-2F);
        optimizer->update(state.span(g, 0, g.size()), {step, rate(step)});
        for (std::size_t i = 0; i < g.size(); ++i) {
            float unused = 0;
            GetParam().formula(expected.p[i], expected.moments[0].empty() ? unused : expected.moments[0][i],
                               expected.moments[1].empty() ? unused : expected.moments[1][i], g[i], rate(step),
                               static_cast<double>(step));
        }
        ASSERT_EQ(first_difference(state.p, expected.p), -1) << "step " << step;
        ASSERT_EQ(first_difference(state.moments[0], expected.moments[0]), -1) << "step " << step;
        ASSERT_EQ(first_difference(state.moments[1], expected.moments[1]), -1) << "step " << step;
    }
}

TEST_P(Optimizers, GiveTheSameBitsForAnyCutIntoSpans) {
    const std::uint64_t seed = 12;
    SCOPED_TRACE(seed_text(seed));
    const auto optimizer = GetParam().make();
    const auto start = finite_values(seed, 1501);
    const auto g = finite_values(seed + 1, start.size(), 1e-2F);
    for (const std::uint64_t step : {1U, 3U}) {
        State reference(start, *optimizer);
        optimizer->update(reference.span(g, 0, g.size()), {step, 1e-3});
        for (const std::size_t piece : {1U, 3U, 16U, 64U, 1000U}) {
            State cut(start, *optimizer);
            for (std::size_t first = 0; first < g.size(); first += piece)
                optimizer->update(cut.span(g, first, std::min(piece, g.size() - first)), {step, 1e-3});
            EXPECT_EQ(first_difference(cut.p, reference.p), -1) << piece;
            EXPECT_EQ(first_difference(cut.moments[0], reference.moments[0]), -1) << piece;
            EXPECT_EQ(first_difference(cut.moments[1], reference.moments[1]), -1) << piece;
        }
    }
}

TEST_P(Optimizers, LeavePaddingAtZeroAndFinite) {
    const auto optimizer = GetParam().make();
    State state(std::vector<float>(64, 0.0F), *optimizer);
    const std::vector<float> g(64, 0.0F);
    for (std::uint64_t step = 1; step < 5; ++step) optimizer->update(state.span(g, 0, 64), {step, 1e-3});
    EXPECT_EQ(state.p, g);
    for (std::uint32_t moment = 0; moment < optimizer->moments(); ++moment)
        EXPECT_EQ(state.moments[moment], std::vector<float>(64, optimizer->initial_moment(moment)));
}

// In double, with the bias-corrected moments written out: guards against one misreading in both places.
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
    const auto optimizer = make_adamw(o);
    State state(start, *optimizer);
    std::vector<double> p(start.begin(), start.end());
    std::vector<double> m(count, 0.0);
    std::vector<double> v(count, 0.0);
    for (std::uint64_t step = 1; step <= 30; ++step) {
        std::vector<float> g(count);
        for (float& value : g) value = normal(random);
        optimizer->update(state.span(g, 0, count), {step, lr});
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

INSTANTIATE_TEST_SUITE_P(All, Optimizers, ::testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST(OptimizerMakers, SayTheirNameAndMoments) {
    EXPECT_EQ(make_adam({})->name(), "adam");
    EXPECT_EQ(make_adam({})->moments(), 2U);
    EXPECT_EQ(make_adamw({})->name(), "adamw");
    EXPECT_EQ(make_adamw({})->moments(), 2U);
    EXPECT_EQ(make_sgd({})->name(), "sgd");
    EXPECT_EQ(make_sgd({})->moments(), 0U);
    EXPECT_EQ(make_sgd({.momentum = 0.9})->moments(), 1U);
    EXPECT_EQ(make_lion({})->name(), "lion");
    EXPECT_EQ(make_lion({})->moments(), 1U);
    EXPECT_EQ(make_adagrad({})->name(), "adagrad");
    EXPECT_EQ(make_adagrad({})->moments(), 1U);
    EXPECT_EQ(make_adagrad({.initial_accumulator = 0.5})->initial_moment(0), 0.5F);
}

// The optimizer and the option that the refusal names, or "accepted".
std::string refusal(const std::function<void()>& make) {
    const std::string text = refusal_of(ExitCode::usage, make);
    return text.substr(0, text.find(" is "));
}

TEST(OptimizerMakers, RefuseOptionsThatMakeNoSenseByName) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(refusal([] { make_adam({.beta1 = 1}); }), "optimizer adam: beta1");
    EXPECT_EQ(refusal([] { make_adam({.beta2 = -0.1}); }), "optimizer adam: beta2");
    EXPECT_EQ(refusal([] { make_adam({.epsilon = 1e-60}); }), "optimizer adam: epsilon");
    EXPECT_EQ(refusal([&] { make_adam({.weight_decay = nan}); }), "optimizer adam: weight_decay");
    EXPECT_EQ(refusal([] { make_sgd({.momentum = -1}); }), "optimizer sgd: momentum");
    EXPECT_EQ(refusal([&] { make_sgd({.dampening = infinity}); }), "optimizer sgd: dampening");
    EXPECT_EQ(refusal([&] { make_sgd({.weight_decay = infinity}); }), "optimizer sgd: weight_decay");
    EXPECT_EQ(refusal([] { make_sgd({.nesterov = true}); }), "optimizer sgd: momentum");
    EXPECT_EQ(refusal([] { make_sgd({.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }),
              "optimizer sgd: dampening");
    EXPECT_EQ(refusal([&] { make_lion({.beta1 = nan}); }), "optimizer lion: beta1");
    EXPECT_EQ(refusal([] { make_lion({.beta2 = 1}); }), "optimizer lion: beta2");
    EXPECT_EQ(refusal([] { make_lion({.weight_decay = -1}); }), "optimizer lion: weight_decay");
    EXPECT_EQ(refusal([] { make_adagrad({.lr_decay = -1}); }), "optimizer adagrad: lr_decay");
    EXPECT_EQ(refusal([] { make_adagrad({.weight_decay = -1}); }), "optimizer adagrad: weight_decay");
    EXPECT_EQ(refusal([] { make_adagrad({.initial_accumulator = -1}); }), "optimizer adagrad: initial_accumulator");
    EXPECT_EQ(refusal([] { make_adagrad({.epsilon = 0}); }), "optimizer adagrad: epsilon");
    EXPECT_EQ(refusal([] { make_adagrad({.initial_accumulator = 1e39}); }), "optimizer adagrad: initial_accumulator");
    EXPECT_EQ(refusal([] { make_adamw({.beta1 = 1.0}); }), "optimizer adamw: beta1");
    EXPECT_EQ(refusal([] { make_adamw({.beta1 = -0.1}); }), "optimizer adamw: beta1");
    EXPECT_EQ(refusal([] { make_adamw({.beta2 = 1.0}); }), "optimizer adamw: beta2");
    EXPECT_EQ(refusal([&] { make_adamw({.beta2 = nan}); }), "optimizer adamw: beta2");
    EXPECT_EQ(refusal([] { make_adamw({.epsilon = 0}); }), "optimizer adamw: epsilon");
    // Zero as fp32: padding would become 0/0.
    EXPECT_EQ(refusal([] { make_adamw({.epsilon = 1e-60}); }), "optimizer adamw: epsilon");
    EXPECT_EQ(refusal([] { make_adamw({.epsilon = 1e300}); }), "optimizer adamw: epsilon");
    EXPECT_EQ(refusal([] { make_adamw({.weight_decay = -1}); }), "optimizer adamw: weight_decay");
    EXPECT_EQ(refusal([&] { make_adamw({.weight_decay = infinity}); }), "optimizer adamw: weight_decay");
    EXPECT_EQ(refusal([] { make_sgd({.dampening = 1e300}); }), "optimizer sgd: dampening");
}

}  // namespace
}  // namespace penstock::zero
