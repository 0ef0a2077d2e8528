// The arithmetic of a step allocates nothing. An executable of its own: tests/allocations.h says why.
#include "tests/allocations.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace penstock::zero {
namespace {

constexpr std::uint64_t numel = 3 * 65536 + 64;  // several pieces of work, the last one short

struct alignas(64) Line {
    std::byte bytes[64];
};

std::vector<std::unique_ptr<Optimizer>> every_optimizer() {
    std::vector<std::unique_ptr<Optimizer>> all;
    all.push_back(make_adamw({}));
    all.push_back(make_adam({}));
    all.push_back(make_sgd({}));
    all.push_back(make_sgd({.momentum = 0.9}));
    all.push_back(make_lion({}));
    all.push_back(make_adagrad({}));
    return all;
}

// Which allocations three steps take, after one that may.
std::uint64_t allocations_of(const Optimizer& optimizer, const Codec& codec, PlaneType gradient_type,
                             Workers& workers) {
    const StateFormat format = state_format(codec, optimizer);
    const std::vector<float> masters(numel, 0.5F);
    std::vector<Line> weights(numel * format.weights_bytes() / 64 + 1);
    std::vector<Line> states(format.states_bytes(numel) / 64 + 1);
    std::vector<Line> gradients(numel * 4 / 64);
    std::vector<Line> sums(gradients.size());
    const TileView tile{weights.data()->bytes, states.data()->bytes, numel};
    const GradientView gradient{gradients.data()->bytes, gradient_type, numel};
    encode_initial(format, masters.data(), tile);
    std::uint64_t before = 0;
    for (std::uint64_t step = 1; step <= 4; ++step) {
        if (step == 2) before = testing::allocations();
        const double norm = sum_of_squares(gradient);
        TileUpdate update{.format = &format, .optimizer = &optimizer, .values = {.step = step, .learning_rate = 1e-3}};
        update.gradient_scale = static_cast<float>(clip_factor(norm, 1.0));
        update_tile(update, tile, gradient, workers);
        add(gradient, sums.data()->bytes);
    }
    return testing::allocations() - before;
}

// A count that sees nothing would pass for ever.
TEST(Update, AllocationsOfAllKindsAreCounted) {
    const std::uint64_t before = testing::allocations();
    const std::vector<int> plain(10);
    EXPECT_EQ(testing::allocations(), before + 1);
    const std::vector<Line> aligned(10);
    EXPECT_EQ(testing::allocations(), before + 2);
}

TEST(Update, AllocatesNothingInAStep) {
    Workers workers(3);
    for (const auto& optimizer : every_optimizer())
        for (const std::string_view codec : codec_names())
            for (const PlaneType type : {PlaneType::fp32, PlaneType::bf16})
                EXPECT_EQ(allocations_of(*optimizer, *find_codec(codec), type, workers), 0U)
                    << optimizer->name() << ' ' << codec;
}

}  // namespace
}  // namespace penstock::zero
