#include "zero_infinity/layout/unit.h"
#include "aio/words/error.h"

#include "tests/refusal.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock::zero {
namespace {

const StateFormat split_format{&split_codec(), 2};

std::string refusal(const UnitSpec& spec) {
    return refusal_of(ExitCode::usage, [&] { UnitLayout(spec, {}, tile_alignment); });
}

UnitSpec random_unit(std::mt19937_64& random) {
    UnitSpec spec{"blocks." + std::to_string(random() % 100), {}};
    const std::size_t count = random() % 9;
    for (std::size_t i = 0; i < count; ++i) {
        const Training training = random() % 4 == 0 ? Training::frozen : Training::trainable;
        ParameterSpec parameter{"p" + std::to_string(i), {}, training};
        const std::size_t dimensions = random() % 4;
        for (std::size_t d = 0; d < dimensions; ++d)
            parameter.shape.push_back(1 + static_cast<std::int64_t>(random() % 40));
        spec.parameters.push_back(parameter);
    }
    return spec;
}

// Every parameter starts aligned, none overlaps, none is far from its neighbour.
void check_places(const UnitLayout& layout, Training training, std::uint64_t range_numel, std::uint32_t ranks) {
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < layout.spec().parameters.size(); ++i) {
        const ParameterPlace& place = layout.place(i);
        ASSERT_EQ(place.training, layout.spec().parameters[i].training);
        if (place.training != training) continue;
        ASSERT_EQ(place.numel, layout.spec().parameters[i].numel());
        ASSERT_EQ(place.first % parameter_alignment, 0U);
        ASSERT_GE(place.first, end);
        ASSERT_LT(place.first - end, parameter_alignment);
        end = place.first + place.numel;
    }
    ASSERT_GE(range_numel, end);
    ASSERT_LT(range_numel - end, parameter_alignment * (ranks + 1));
    ASSERT_EQ(range_numel % (parameter_alignment * ranks), 0U);
}

TEST(ParameterCount, CountsWhatIsThereAndWhatIsTrained) {
    const UnitSpec one{"one", {{"a", {3, 5}}, {"scale", {}}, {"fixed", {7}, Training::frozen}}};
    const UnitSpec two{"two", {{"b", {2}}}, {{0, 0}}};
    const std::vector<UnitSpec> units = {one, two};
    EXPECT_EQ(count_parameters(units).all, 15U + 1 + 7 + 2);
    EXPECT_EQ(count_parameters(units).trainable, 15U + 1 + 2);
}

TEST(UnitLayout, ExampleOfTheHeaderHolds) {
    const UnitLayout layout({"u", {{"norm", {768}}, {"matrix", {100, 100}}}}, {}, 4096);
    EXPECT_EQ(layout.place(0).first, 0U);
    EXPECT_EQ(layout.place(1).first, 768U);
    EXPECT_EQ(layout.trainable_numel(), 10816U);
    ASSERT_EQ(layout.tile_count(), 3U);
    EXPECT_EQ(layout.tile_numel(0), 4096U);
    EXPECT_EQ(layout.tile_numel(2), 2624U);
    EXPECT_EQ(layout.parameter_numel(), 10768U);
    EXPECT_EQ(layout.frozen_numel(), 0U);
    EXPECT_EQ(layout.frozen_tile_count(), 0U);
}

TEST(UnitLayout, ShardsAndTilesCoverTheRangeOnRandomUnits) {
    const std::uint64_t seed = 4242;
    std::mt19937_64 random(seed);
    for (int round = 0; round < 500; ++round) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        const UnitSpec spec = random_unit(random);
        const auto ranks = static_cast<std::uint32_t>(1 + random() % 8);
        const std::uint64_t tile_numel = tile_alignment * (1 + random() % 4);
        std::uint64_t covered = 0;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const UnitLayout layout(spec, {rank, ranks}, tile_numel);
            check_places(layout, Training::trainable, layout.trainable_numel(), ranks);
            check_places(layout, Training::frozen, layout.frozen_numel(), ranks);
            ASSERT_EQ(layout.shard_first(), covered);
            covered += layout.shard_numel();
            std::uint64_t in_tiles = 0;
            for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile) {
                ASSERT_EQ(layout.tile_numel(tile) % parameter_alignment, 0U);
                if (tile + 1 < layout.tile_count()) {
                    ASSERT_EQ(layout.tile_numel(tile), tile_numel);
                }
                in_tiles += layout.tile_numel(tile);
            }
            ASSERT_EQ(in_tiles, layout.shard_numel());
            if (rank + 1 == ranks) {
                ASSERT_EQ(covered, layout.trainable_numel());
            }
        }
    }
}

TEST(UnitLayout, ObjectsAreCutWhereTheTilesAreAndAllButTheLastAreGranules) {
    const std::uint64_t seed = 4243;
    std::mt19937_64 random(seed);
    for (int round = 0; round < 300; ++round) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
        const UnitSpec spec = random_unit(random);
        const auto ranks = static_cast<std::uint32_t>(1 + random() % 3);
        const UnitLayout layout(spec, {ranks - 1, ranks}, tile_alignment * (1 + random() % 3));
        for (const std::string_view codec : codec_names()) {
            const StateFormat format{find_codec(codec), 2};
            for (const store::ObjectSpec& object : layout.objects(format)) {
                const bool frozen = object.name == spec.name + ".frozen";
                const bool states = object.name == spec.name + ".states";
                const auto bytes_of_tile = [&](std::uint64_t numel) {
                    return states ? format.states_bytes(numel) : numel * format.weights_bytes();
                };
                const std::uint32_t tiles = frozen ? layout.frozen_tile_count() : layout.tile_count();
                ASSERT_EQ(object.tile_bytes, (bytes_of_tile(layout.tile_numel()) + 4095) / 4096 * 4096);
                if (format.codec->exact) {
                    ASSERT_EQ(object.tile_bytes, bytes_of_tile(layout.tile_numel())) << "no padding in exact codecs";
                }
                ASSERT_EQ((object.bytes + object.tile_bytes - 1) / object.tile_bytes, tiles);
                if (!frozen) {
                    const std::uint64_t last = bytes_of_tile(layout.tile_numel(tiles - 1));
                    ASSERT_EQ(object.bytes, (tiles - 1) * object.tile_bytes + last);
                }
            }
        }
    }
}

TEST(UnitLayout, CompactStatesOfUsualTilesNeedNoPadding) {
    const UnitLayout layout({"u", {{"w", {3, 1 << 20}}}}, {}, 1U << 20);
    const store::ObjectSpec states = layout.objects({&compact_codec(), 2})[1];
    EXPECT_EQ(states.tile_bytes, (25U << 20) / 8);
    EXPECT_EQ(states.bytes, 3 * states.tile_bytes);
}

TEST(UnitLayout, LeavesOutObjectsThatWouldBeEmpty) {
    const auto names = [](const UnitLayout& layout, const StateFormat& format) {
        std::vector<std::string> all;
        for (const store::ObjectSpec& object : layout.objects(format)) all.push_back(object.name);
        return all;
    };
    const ParameterSpec trained{"w", {8, 8}};
    const ParameterSpec frozen{"f", {8}, Training::frozen};
    using Names = std::vector<std::string>;
    EXPECT_EQ(names(UnitLayout({"u", {trained, frozen}}, {}, 4096), split_format),
              (Names{"u.weights", "u.states", "u.frozen"}));
    EXPECT_EQ(names(UnitLayout({"u", {trained}}, {}, 4096), split_format), (Names{"u.weights", "u.states"}));
    EXPECT_EQ(names(UnitLayout({"u", {frozen}}, {}, 4096), split_format), (Names{"u.frozen"}));
    EXPECT_EQ(names(UnitLayout({"u", {trained}}, {}, 4096), {&plain_fp32_codec(), 0}), (Names{"u.weights"}));
    EXPECT_TRUE(names(UnitLayout({"u", {}}, {}, 4096), split_format).empty());
}

TEST(UnitLayout, ASmallUnitStaysSmall) {
    const UnitLayout norm({"norm", {{"weight", {512}}}}, {0, 2}, 1U << 20);
    EXPECT_EQ(norm.shard_numel(), 256U);
    EXPECT_EQ(norm.objects(split_format)[1].bytes, 2560U);
}

TEST(UnitLayout, RefusesBadParametersByName) {
    EXPECT_NE(refusal({"u", {{"w", {3}}, {"w", {4}}}}).find("two parameters named 'w'"), std::string::npos);
    EXPECT_NE(refusal({"u", {{"w", {3, 0}}}}).find("parameter 'w' of unit 'u' has no elements"), std::string::npos);
    EXPECT_NE(refusal({"u", {{"w", {3, -1}}}}).find("impossible shape [3, -1]"), std::string::npos);
    EXPECT_NE(refusal({"u", {{"w", {1LL << 40, 1LL << 40}}}}).find("impossible shape"), std::string::npos);
    EXPECT_NE(refusal({"u", {{"a", {1LL << 56}}, {"b", {1}}}}).find("more than"), std::string::npos);
    EXPECT_NE(refusal({"", {{"w", {3}}}}).find("no name"), std::string::npos);
    EXPECT_EQ(refusal({"u", {{"w", {}}}}), "accepted");  // a scalar
}

TEST(UnitLayout, ChecksItsRequirements) {
    const UnitSpec spec{"u", {{"w", {8}}}};
    EXPECT_DEATH(UnitLayout(spec, {}, 0), "tile_numel");
    EXPECT_DEATH(UnitLayout(spec, {}, 4097), "tile_numel");
    EXPECT_DEATH(UnitLayout(spec, {2, 2}, 4096), "rank 2 of 2");
    EXPECT_DEATH(UnitLayout(spec, {}, 4096).tile_numel(1), "tile 1 of 1");
}

}  // namespace
}  // namespace penstock::zero
