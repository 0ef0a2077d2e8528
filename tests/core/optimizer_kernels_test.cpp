// The optimizers' loops: every twin gives the bits of the baseline's, whose bits optimizers_test.cpp knows by formula
// on the processor's fastest twin.
#include "values.h"
#include "zero_infinity/kernels.h"

#include <gtest/gtest.h>

#include <functional>

namespace penstock {
namespace {

using test::finite_values;
using test::first_difference;

struct Arrays {
    std::vector<float> p, a, b, g;
};

struct Loop {
    const char* name;
    std::function<void(const Kernels&, Arrays&, std::size_t)> run;
};

std::vector<Loop> loops() {
    std::vector<Loop> all;
    for (const float m_weight : {0.1F, 0.6F}) {
        for (const float decay : {0.0F, 0.1F}) {
            const AdamWFactors adamw{1.0F - decay, m_weight, 0.99F, 0.01F, 0.5F, 1e-8F, -0.003F};
            const AdamFactors adam{decay, m_weight, 0.99F, 0.01F, 0.5F, 1e-8F, -0.003F};
            all.push_back({"adamw", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                               twin.adamw(adamw, x.p.data(), x.a.data(), x.b.data(), x.g.data(), count);
                           }});
            all.push_back({"adam", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                               twin.adam(adam, x.p.data(), x.a.data(), x.b.data(), x.g.data(), count);
                           }});
        }
    }
    for (const float decay : {0.0F, 0.1F}) {
        all.push_back({"sgd", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                           const SgdFactors factors{.weight_decay = decay, .step = -0.1F};
                           twin.sgd(factors, x.p.data(), x.g.data(), count);
                       }});
        for (const bool first : {true, false}) {
            for (const bool nesterov : {true, false}) {
                const SgdFactors factors{decay, 0.9F, 0.7F, -0.1F, first, nesterov};
                all.push_back({"sgd_momentum", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                                   twin.sgd_momentum(factors, x.p.data(), x.a.data(), x.g.data(), count);
                               }});
            }
        }
        all.push_back({"lion", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                           const LionFactors factors{1.0F - decay, 0.9F, 0.1F, 0.99F, 0.01F, -0.001F};
                           twin.lion(factors, x.p.data(), x.a.data(), x.g.data(), count);
                       }});
        all.push_back({"adagrad", [=](const Kernels& twin, Arrays& x, std::size_t count) {
                           twin.adagrad({decay, 1e-10F, -0.01F}, x.p.data(), x.a.data(), x.g.data(), count);
                       }});
    }
    return all;
}

const Kernels& baseline() {
    const Kernels* const* twin = runnable_kernels();
    while (twin[1] != nullptr) ++twin;
    return **twin;
}

void expect_same_as_baseline(const Arrays& start, std::size_t count) {
    for (const Loop& loop : loops()) {
        Arrays expected = start;
        loop.run(baseline(), expected, count);
        for (const Kernels* const* twin = runnable_kernels(); *twin != nullptr; ++twin) {
            Arrays actual = start;
            loop.run(**twin, actual, count);
            ASSERT_EQ(first_difference(actual.p, expected.p), -1) << loop.name << ' ' << (*twin)->name;
            ASSERT_EQ(first_difference(actual.a, expected.a), -1) << loop.name << ' ' << (*twin)->name;
            ASSERT_EQ(first_difference(actual.b, expected.b), -1) << loop.name << ' ' << (*twin)->name;
        }
        // What lies behind `count` is not touched.
        for (std::size_t i = count; i < start.p.size(); ++i)
            ASSERT_TRUE(test::same(expected.p[i], start.p[i]) && test::same(expected.a[i], start.a[i])) << loop.name;
    }
}

TEST(OptimizerKernels, TwinsAgreeAtEveryLengthAroundTheVectorWidths) {
    std::vector<std::size_t> lengths{127, 128, 129, 2048, 4099};
    for (std::size_t length = 0; length <= 70; ++length) lengths.push_back(length);
    for (const std::size_t length : lengths) {
        SCOPED_TRACE("length and seed " + std::to_string(length));
        Arrays start{finite_values(length, length + 3), finite_values(length + 1, length + 3, 1e-2F),
                     finite_values(length + 2, length + 3, 1e-4F), finite_values(length + 3, length + 3, 1e-2F)};
        for (float& value : start.b) value = std::abs(value);
        expect_same_as_baseline(start, length);
        if (HasFatalFailure()) return;
    }
}

// NaN and infinity included: the twins need agree with each other only.
TEST(OptimizerKernels, TwinsAgreeOnArbitraryBitPatterns) {
    const std::uint64_t seed = 78;
    SCOPED_TRACE(test::seed_text(seed));
    std::mt19937_64 random(seed);
    constexpr std::size_t count = 20011;
    Arrays start;
    for (auto* array : {&start.p, &start.a, &start.b, &start.g})
        for (std::size_t i = 0; i < count; ++i)
            array->push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    expect_same_as_baseline(start, count);
}

}  // namespace
}  // namespace penstock
