// Who updates each element of a shard in a step whose groups have values of their own, and where parameters are
// skipped.
#include "zero_infinity/session/step_pieces.h"

#include "tests/seeds.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::ParameterId;
using zero::Training;

// The parameter that an element of the trainable range belongs to: padding goes with the one before it.
std::uint32_t owner_of(const zero::UnitLayout& unit, std::uint64_t element) {
    std::uint32_t found = 0;
    for (std::uint32_t index = 0; index < unit.spec().parameters.size(); ++index)
        if (unit.place(index).training == Training::trainable && unit.place(index).first <= element) found = index;
    return found;
}

// Parameters of two groups and of none, some of them frozen.
zero::UnitSpec random_unit(std::mt19937_64& random) {
    zero::UnitSpec spec{"u", {{"a", {64}}, {"b", {64}}}};
    for (std::uint64_t count = random() % 8; count > 0; --count)
        spec.parameters.push_back({fmt::format("{}{}", "abc"[random() % 3], count),
                                   {static_cast<std::int64_t>(1 + random() % 6000)},
                                   random() % 4 == 0 ? Training::frozen : Training::trainable});
    return spec;
}

// What its index in the unit makes of a parameter in this step.
bool is_skipped(ParameterId parameter) {
    return parameter.index % 5 == 3;
}

TEST(StepPieces, EachElementOfAShardIsUpdatedAsItsParameterIs) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(60); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(mix(seed));
        const zero::ParameterGroups groups(zero::make_adamw({}), {{"u.a*", zero::make_adamw({.weight_decay = 0.1})},
                                                                  {"u.b*", zero::make_adamw({.weight_decay = 0.2})}});
        const zero::UnitSpec spec = random_unit(random);
        const auto ranks = static_cast<std::uint32_t>(1 + random() % 9);
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const zero::ModelLayout layout({.units = {spec},
                                            .format = {zero::find_codec("split"), 2},
                                            .optimizers = groups,
                                            .tile_numel = 4096,
                                            .partition = {rank, ranks}});
            zero::StepPieces pieces(layout, groups);
            const std::vector<zero::GroupValues> values = {
                {.learning_rate = 1}, {.learning_rate = 2}, {.learning_rate = 3}};
            pieces.prepare(7, values, zero::SkippedSteps(layout.units()), is_skipped);
            const zero::UnitLayout& unit = layout.unit(0);
            for (std::uint32_t tile = 0; tile < unit.tile_count(); ++tile)
                zero::for_each_piece(
                    pieces.of({0, tile}), 0, unit.tile_numel(tile),
                    [&](const zero::OptimizerPiece& piece, std::uint64_t begin, std::uint64_t count) {
                        for (const std::uint64_t at : {begin, begin + count - 1}) {
                            const std::uint32_t owner = owner_of(unit, unit.shard_first() + tile * 4096 + at);
                            const std::size_t group = groups.index_of("u", spec.parameters[owner].name);
                            EXPECT_EQ(piece.learning_rate, values[group].learning_rate);
                            EXPECT_EQ(piece.optimizer,
                                      is_skipped({0, owner}) ? nullptr : groups.group(group).optimizer.get());
                        }
                    });
        }
    }
}

}  // namespace
}  // namespace penstock::testing
