// Whatever the optimizer: infinity or NaN in a gradient, a master or a moment is found in the step that reads it.
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace penstock::zero {
namespace {

constexpr std::uint64_t count = 4096;
constexpr std::uint64_t bad = 2100;  // not in the first block that a thread works on

struct alignas(64) Line {
    std::byte bytes[64];
};

// A tile of ordinary values but for one: in array 0 the gradient, 1 the master, 2 and 3 the moments.
std::optional<std::uint64_t> first_bad(const Optimizer& optimizer, std::uint32_t array, float value) {
    const StateFormat format{&plain_fp32_codec(), optimizer.moments()};
    std::vector<float> gradients(count, 0.01F);
    std::vector<float> masters(count, 0.5F);
    if (array < 2) (array == 0 ? gradients : masters)[bad] = value;
    std::vector<Line> weights(count * format.weights_bytes() / 64);
    std::vector<Line> states(format.states_bytes(count) / 64 + 1);
    const TileView tile{weights.data()->bytes, states.data()->bytes, count};
    const std::vector<OptimizerPiece> pieces{{count, &optimizer}};
    encode_initial(format, masters.data(), tile, {pieces});
    if (array >= 2)
        std::memcpy(tile.states + format.moment_offset_bytes(array - 2, count) + bad * 4, &value, sizeof value);
    Workers workers(2);
    const GradientView view{reinterpret_cast<const std::byte*>(gradients.data()), PlaneType::fp32, count};
    return update_tile({.format = &format, .values = {2, 1e-3}, .pieces = {pieces}}, tile, view, workers);
}

TEST(NonFinite, EachOptimizerNamesTheElementWhereverItIs) {
    std::vector<std::unique_ptr<Optimizer>> all;
    all.push_back(make_adamw({}));
    all.push_back(make_adam({.weight_decay = 0.1}));
    all.push_back(make_sgd({}));
    all.push_back(make_sgd({.momentum = 0.9, .nesterov = true}));
    all.push_back(make_lion({}));
    all.push_back(make_adagrad({}));
    const float infinity = std::numeric_limits<float>::infinity();
    for (const auto& optimizer : all) {
        for (std::uint32_t array = 0; array < 2 + optimizer->moments(); ++array) {
            EXPECT_EQ(first_bad(*optimizer, array, 1.0F), std::nullopt) << optimizer->name() << ", array " << array;
            for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()})
                EXPECT_EQ(first_bad(*optimizer, array, value), std::optional<std::uint64_t>(bad))
                    << optimizer->name() << ", array " << array << ", " << value;
        }
    }
}

}  // namespace
}  // namespace penstock::zero
