#include "zero_infinity/layout/model_layout.h"
#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"

#include "tests/refusal.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

#include <optional>

namespace penstock::zero {
namespace {

// Under split: 2 bytes of weights and 10 of states per element, tiles of 4096 elements.
ModelLayoutSpec example() {
    return {.units = {{"first", {{"table", {5000}}}},                                     // 5056 padded: 2 tiles
                      {"mixed", {{"a", {70, 100}}, {"fixed", {300}, Training::frozen}}},  // 7040: 2 tiles; 320
                      {"fixed", {{"fixed", {9000}, Training::frozen}}},                   // 9024: 3 tiles
                      {"empty", {}}},
            .format = {&split_codec(), 2},
            .optimizers = make_adamw({}),
            .tile_numel = 4096};
}

store::Layout stored(std::vector<store::ObjectSpec> objects) {
    return {std::move(objects), {}};
}

std::vector<store::ObjectSpec> objects_of(const ModelLayout& layout) {
    return {layout.objects().begin(), layout.objects().end()};
}

std::string refusal(const ModelLayout& layout, const store::Layout& store) {
    return refusal_of(ExitCode::storage, [&] { layout.check_stored(store); });
}

TEST(ModelLayout, ObjectsAreTheUnitsOneAfterTheOtherAndEachUnitKnowsItsOwn) {
    const ModelLayout layout(example());
    std::vector<std::string> names;
    for (const store::ObjectSpec& object : layout.objects()) names.push_back(object.name);
    EXPECT_EQ(names, (std::vector<std::string>{"first.weights", "first.states", "mixed.weights", "mixed.states",
                                               "mixed.frozen", "fixed.frozen"}));
    EXPECT_EQ(layout.objects(0).weights, 0U);
    EXPECT_EQ(layout.objects(0).states, 1U);
    EXPECT_EQ(layout.objects(0).frozen, std::nullopt);
    EXPECT_EQ(layout.objects(1).frozen, 4U);
    EXPECT_EQ(layout.objects(2).weights, std::nullopt);
    EXPECT_EQ(layout.objects(2).frozen, 5U);
    EXPECT_EQ(layout.objects(3).states, std::nullopt);
}

TEST(ModelLayout, TilesOfTheUpdateAreUnitsInOrderAndTilesInOrder) {
    const ModelLayout layout(example());
    const std::vector<UnitTile> tiles(layout.tiles().begin(), layout.tiles().end());
    EXPECT_EQ(tiles, (std::vector<UnitTile>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
}

// What the store makes of the same objects is the reference.
TEST(ModelLayout, ExtentsAreThoseOfAStoreWithTheseObjects) {
    for (const std::string_view codec : codec_names()) {
        ModelLayoutSpec spec = example();
        spec.format.codec = find_codec(codec);
        const ModelLayout layout(std::move(spec));
        const store::Layout store = stored(objects_of(layout));
        for (std::uint32_t object = 0; object < layout.objects().size(); ++object) {
            ASSERT_EQ(layout.tile_count(object), store.tile_count(object));
            std::uint64_t end = 0;
            for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile) {
                ASSERT_EQ(layout.offset_bytes({object, tile}), end) << "no gap";
                ASSERT_EQ(layout.extent_bytes({object, tile}), store.extent({object, tile}, 0).bytes);
                end += layout.extent_bytes({object, tile});
            }
            EXPECT_EQ(layout.memory_bytes(object), end);
        }
    }
}

TEST(ModelLayout, AGroupIsTheWeightsAndThenTheFrozenWeights) {
    const ModelLayout layout(example());
    EXPECT_EQ(layout.shard(1).frozen_offset_bytes, 16384U);  // 7040 × 2 bytes in granules
    EXPECT_EQ(layout.shard(1).bytes, 16384U + 4096U);
    const std::vector<GroupTile> tiles = layout.shard_tiles(1);
    ASSERT_EQ(tiles.size(), 3U);
    EXPECT_EQ(tiles[1].tile, (store::TileId{2, 1}));
    EXPECT_EQ(tiles[1].offset_bytes, 8192U);
    EXPECT_EQ(tiles[1].bytes, 8192U);  // 2944 × 2 bytes in granules
    EXPECT_EQ(tiles[2].tile, (store::TileId{4, 0}));
    EXPECT_EQ(tiles[2].offset_bytes, 16384U);
    EXPECT_EQ(layout.shard(3).bytes, 0U);
    EXPECT_TRUE(layout.shard_tiles(3).empty());
}

// Every rank reads the same group, in which the shards lie one behind the other; one rank's shard is all of it.
TEST(ModelLayout, GatheredAreTheShardsOfAllRanks) {
    const ModelLayout alone(example());
    for (const std::uint32_t ranks : {2U, 3U, 64U})
        for (const std::uint32_t rank : {0U, ranks - 1}) {
            ModelLayoutSpec spec = example();
            spec.partition = {rank, ranks};
            const ModelLayout layout(std::move(spec));
            for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
                const UnitLayout& each = layout.unit(unit);
                const WeightGroup gathered = layout.gathered(unit);
                EXPECT_EQ(gathered.frozen_offset_bytes, pool::whole_granules(2 * each.trainable_numel()));
                EXPECT_EQ(gathered.bytes - gathered.frozen_offset_bytes, pool::whole_granules(2 * each.frozen_numel()));
                EXPECT_EQ(layout.shard(unit).frozen_offset_bytes, pool::whole_granules(2 * each.shard_numel()));
                EXPECT_EQ(each.shard_numel() * ranks, each.trainable_numel());
                EXPECT_GE(gathered.bytes, alone.gathered(unit).bytes);
            }
        }
    for (const std::string_view codec : codec_names()) {
        ModelLayoutSpec spec = example();
        spec.format.codec = find_codec(codec);
        const ModelLayout layout(std::move(spec));
        for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
            EXPECT_EQ(layout.gathered(unit).bytes, layout.shard(unit).bytes) << codec;
            EXPECT_EQ(layout.gathered(unit).frozen_offset_bytes, layout.shard(unit).frozen_offset_bytes) << codec;
        }
    }
}

TEST(ModelLayout, MemoryFollowsTheResidency) {
    struct Case {
        Residency residency;
        std::uint64_t staging, weights, states;
    };
    constexpr std::uint64_t weights = 12288 + 16384 + 4096 + 20480;  // groups of first, mixed (two parts), fixed
    constexpr std::uint64_t states = 53248 + 73728;
    for (const Case& each :
         {Case{{Tier::nvme, Tier::nvme}, 40960, 0, 0}, Case{{Tier::host, Tier::nvme}, 40960, weights, 0},
          Case{{Tier::nvme, Tier::host}, 0, 0, states}, Case{{Tier::host, Tier::host}, 0, weights, states}}) {
        ModelLayoutSpec spec = example();
        spec.residency = each.residency;
        const ModelLayout layout(std::move(spec));
        EXPECT_EQ(layout.staging_tile_bytes(), each.staging);
        EXPECT_EQ(layout.resident_weights_bytes(), each.weights);
        EXPECT_EQ(layout.resident_states_bytes(), each.states);
        EXPECT_EQ(layout.largest_extent_bytes(), 40960U);
    }
}

TEST(ModelLayout, HostMemoryMayKeepTheFirstTilesOfAUnitsStates) {
    ModelLayoutSpec spec = example();
    spec.unit_residency = {{Tier::host, 1}, {Tier::nvme, 1}, {Tier::nvme, 7}, {}};
    ModelLayoutSpec all = example();
    all.unit_residency = {{Tier::host, 1}, {Tier::nvme, 2}, {}, {}};
    const ModelLayout layout(std::move(spec)), most(std::move(all));
    EXPECT_EQ(layout.states_tier({0, 0}), Tier::host);
    EXPECT_EQ(layout.states_tier({0, 1}), Tier::nvme);
    EXPECT_EQ(layout.states_bytes(0, Tier::host), 40960U);
    EXPECT_EQ(layout.states_bytes(0, Tier::nvme), 12288U);  // 960 × 10 bytes in granules
    EXPECT_EQ(layout.states_bytes(1, Tier::nvme), 32768U);
    EXPECT_EQ(layout.states_bytes(2, Tier::host), 0U);
    EXPECT_EQ(layout.resident_states_bytes(), 2 * 40960U);
    EXPECT_EQ(layout.staging_tile_bytes(), 32768U);
    EXPECT_EQ(most.states_bytes(1, Tier::nvme), 0U);
    EXPECT_EQ(most.staging_tile_bytes(), 12288U);
}

TEST(ModelLayout, WhereAStoreOfAnotherModelDiffersIsSaid) {
    const ModelLayout layout(example());
    const auto objects = objects_of(layout);
    const auto changed = [&](auto change) {
        auto there = objects;
        change(there);
        return layout.difference(there);
    };
    EXPECT_EQ(changed([](auto& there) { there[2].bytes = 4096; }),
              "'mixed.weights' has 4096 bytes there and 14080 here");
    EXPECT_EQ(changed([](auto& there) { there[2].tile_bytes = 4096; }),
              "'mixed.weights' lies in tiles of 4096 bytes there and of 8192 here");
    EXPECT_EQ(changed([](auto& there) { there.erase(there.begin() + 2); }), "'mixed.weights' is here and not there");
    EXPECT_EQ(changed([](auto& there) { std::swap(there[0], there[2]); }), "its units are in another order");
    EXPECT_EQ(changed([](auto& there) {
                  there.insert(there.begin(), {"more.weights", 1, 1});
              }),
              "'more.weights' is there and not here");
    EXPECT_EQ(changed([](auto& there) {
                  there.push_back({"more.weights", 1, 1});
              }),
              "'more.weights' is there and not here");
    EXPECT_EQ(layout.difference(objects),
              "its units have the sizes of these; shapes, types, what is trained, the optimizer or the codec differ");
}

TEST(ModelLayout, PiecesOfATileBeginWhereTheTileBegins) {
    const std::shared_ptr<const Optimizer> others = make_adamw({});
    const std::shared_ptr<const Optimizer> own = make_adamw({.weight_decay = 0});
    ModelLayoutSpec spec = example();
    spec.optimizers = ParameterGroups(others, {{"mixed.*", own}});
    const ModelLayout layout(std::move(spec));
    EXPECT_EQ(layout.pieces(0).front().optimizer, others.get());
    EXPECT_EQ(layout.pieces({1, 1}).shard.front().optimizer, own.get());
    EXPECT_EQ(layout.pieces({1, 1}).shard.front().end, 7040U);
    EXPECT_EQ(layout.pieces({1, 1}).first, 4096U);
    EXPECT_TRUE(layout.pieces(2).empty());
}

TEST(ModelLayout, KeepsItsOptimizersAliveAndMayBeCopied) {
    std::optional<ModelLayout> first(example());
    const ModelLayout copy = *first;
    first.reset();
    EXPECT_EQ(copy.pieces(0).front().optimizer->moments(), 2U);
    EXPECT_EQ(copy.objects(1).frozen, 4U);
}

TEST(ModelLayout, ARankHasItsShardOfEveryUnit) {
    std::uint64_t numel = 0;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        ModelLayoutSpec spec = example();
        spec.partition = {rank, 2};
        const ModelLayout layout(std::move(spec));
        EXPECT_EQ(layout.partition().rank, rank);
        for (const UnitTile& tile : layout.tiles()) numel += layout.unit(tile.unit).tile_numel(tile.tile);
    }
    EXPECT_EQ(numel, 5120U + 7040U);  // padded to 128
}

TEST(ModelLayout, AcceptsTheStoreThatWasMadeForItAndNoOther) {
    const ModelLayout layout(example());
    const std::vector<store::ObjectSpec> objects = objects_of(layout);
    EXPECT_EQ(refusal(layout, stored(objects)), "accepted");
    std::vector<store::ObjectSpec> shorter(objects.begin(), objects.end() - 1);
    EXPECT_NE(refusal(layout, stored(shorter)).find("no object 'fixed.frozen' of 18048 bytes"), std::string::npos);
    std::vector<store::ObjectSpec> longer = objects;
    longer[3].bytes += 4096;
    EXPECT_NE(refusal(layout, stored(longer)).find("another object 'mixed.states'"), std::string::npos);
    std::vector<store::ObjectSpec> swapped = objects;
    std::swap(swapped[0], swapped[2]);
    EXPECT_NE(refusal(layout, stored(swapped)).find("another object 'first.weights'"), std::string::npos);
    const store::Layout coarse(objects, {.granule_bytes = 8192});
    EXPECT_NE(refusal(layout, coarse).find("direct I/O in units of 8192 bytes"), std::string::npos);
}

TEST(ModelLayout, RefusesAGroupWithoutEffectAndChecksTheMoments) {
    ModelLayoutSpec spec = example();
    spec.optimizers = ParameterGroups(make_adamw({}), {{"nothing.*", make_adamw({})}});
    EXPECT_NE(
        refusal_of(ExitCode::usage, [&] { const ModelLayout refused(spec); }).find("'nothing.*' is without effect"),
        std::string::npos);
    spec = example();
    spec.format.moments = 1;
    EXPECT_DEATH(ModelLayout{spec}, "a format of 1 moments");
}

}  // namespace
}  // namespace penstock::zero
