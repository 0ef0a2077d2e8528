#include "bench/pool_shapes.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

namespace penstock {
namespace {

SwapShape small() {
    return {.layers = 4, .hidden = 33, .vocabulary = 101, .context = 7};
}

std::string text_of(const SwapShape& shape) {
    std::ostringstream out;
    write_pool_trace(out, tensor_swap_trace(shape));
    return out.str();
}

TEST(PoolShapes, EqualShapesGiveEqualTracesAndSeedsDiffer) {
    EXPECT_EQ(text_of(small()), text_of(small()));
    SwapShape other = small();
    other.seed = 2;
    EXPECT_NE(text_of(small()), text_of(other));
}

TEST(PoolShapes, TracesAreWhatTheParserTakes) {
    std::istringstream in(text_of(small()));
    const PoolTrace trace = parse_pool_trace(in, "small");
    EXPECT_EQ(trace.events, tensor_swap_trace(small()).events);
}

TEST(PoolShapes, KnowsTheModelItIsNamedAfter) {
    const auto shape = swap_shape("gpt2-354m");
    ASSERT_TRUE(shape.has_value());
    EXPECT_EQ(parameter_count(*shape), 354'823'168U);  // as Hugging Face counts gpt2-medium
    EXPECT_FALSE(swap_shape("gpt3").has_value());
}

// Bytes per parameter that pass through the pool in one step, the tied table's weights twice in each pass.
TEST(PoolShapes, MovesTheBytesOfAStep) {
    SwapShape shape = small();
    shape.steps = 1;
    const PoolTrace trace = tensor_swap_trace(shape);
    const std::uint64_t parameters = parameter_count(shape);
    const std::uint64_t table = shape.vocabulary * shape.hidden;
    std::uint64_t granted = 0;
    std::map<std::uint64_t, std::uint64_t> out;
    for (const PoolEvent& event : trace.events) {
        if (event.kind == PoolEvent::Kind::granted) {
            granted += event.bytes;
            out[event.id] = event.bytes;
        }
        if (event.kind == PoolEvent::Kind::returned) {
            EXPECT_EQ(out.erase(event.id), 1U);
        }
    }
    EXPECT_TRUE(out.empty());
    // forward 2, backward 2 + 4, update 4 x 4 + 2; of the table once more 2 + 2 + 4
    EXPECT_EQ(granted, 26 * parameters + 8 * table);
}

}  // namespace
}  // namespace penstock
