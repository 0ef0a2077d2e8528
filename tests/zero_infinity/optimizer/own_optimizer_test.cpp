// A user's own optimizer: the whole of what it takes, and that it trains.
#include "zero_infinity/optimizer/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace penstock::zero {
namespace {

// SignSGD with momentum ("Signum", Bernstein et al. 2018): m = beta*m + (1 - beta)*g, p = p - lr*sign(m).
class Signum final : public Optimizer {
   public:
    std::string name() const override { return "signum"; }
    std::uint32_t moments() const noexcept override { return 1; }
    MomentKind moment_kind(std::uint32_t) const noexcept override { return MomentKind::any_sign; }
    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        const auto rate = static_cast<float>(values.learning_rate);
        float* m = span.moments[0];
        for (std::size_t i = 0; i < span.count; ++i) {
            m[i] = 0.9F * m[i] + 0.1F * span.gradient[i];
            span.master[i] -= rate * static_cast<float>((m[i] > 0) - (m[i] < 0));
        }
    }
};

constexpr std::size_t count = 4096;
using Floats = std::vector<float>;

// Descends on the squared distance to `target` from zero, through update_tile, in the codec's format.
Floats train(const Codec& codec, const Floats& target, unsigned threads) {
    const Signum optimizer;
    const StateFormat format{&codec, optimizer.moments()};
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> weights(count * format.weights_bytes() / 64);
    std::vector<Line> states(format.states_bytes(count) / 64);
    const TileView tile{weights.data()->bytes, states.data()->bytes, count};
    Floats master(count, 0.0F);
    encode_initial(format, master.data(), tile);
    Workers workers(threads);
    for (std::uint64_t step = 1; step <= 200; ++step) {
        Floats gradient(count);
        for (std::size_t i = 0; i < count; ++i) gradient[i] = master[i] - target[i];
        const GradientView view{reinterpret_cast<const std::byte*>(gradient.data()), PlaneType::fp32, count};
        const TileUpdate update{.format = &format, .optimizer = &optimizer, .values = {step, 0.01}};
        EXPECT_EQ(update_tile(update, tile, view, workers), std::nullopt);
        decode_masters(format, tile, master.data());
    }
    return master;
}

TEST(OwnOptimizer, TrainsThroughTheUpdateOfATile) {
    Floats target(count);
    for (std::size_t i = 0; i < count; ++i) target[i] = std::sin(static_cast<float>(i));
    const Floats trained = train(split_codec(), target, 2);
    // Steps of 0.01 reach a distance of at most 1 in 100 of them; then the momentum lets it swing around the target.
    for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(trained[i], target[i], 0.15) << i;
    EXPECT_EQ(train(plain_fp32_codec(), target, 1), trained);
}

}  // namespace
}  // namespace penstock::zero
