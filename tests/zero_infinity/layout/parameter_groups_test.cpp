#include "zero_infinity/layout/parameter_groups.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;

std::shared_ptr<const Optimizer> adamw(double weight_decay) {
    return make_adamw({.weight_decay = weight_decay});
}

// Ends at 768 (norm), 768 + 10048 (weight, 10000 and padding), + 128 (bias, 100 and padding): 10944.
UnitSpec block(const std::string& name) {
    return {name, {{"norm", {768}}, {"weight", {100, 100}}, {"table", {64, 3}, Training::frozen}, {"bias", {100}}}};
}

UnitLayout layout(const UnitSpec& spec, Partition partition = {}) {
    return {spec, partition, tile_alignment};
}

using Ends = std::vector<std::pair<std::uint64_t, const Optimizer*>>;

Ends ends(const std::vector<OptimizerPiece>& pieces) {
    Ends all;
    for (const OptimizerPiece& piece : pieces) all.emplace_back(piece.end, piece.optimizer);
    return all;
}

TEST(ParameterGroups, OneOptimizerIsOnePieceOfTheWholeShard) {
    const ParameterGroups groups(make_adamw({}));
    EXPECT_EQ(ends(optimizer_pieces(layout(block("blocks.0")), groups)), (Ends{{10944, &groups.others()}}));
    EXPECT_TRUE(optimizer_pieces(layout({"empty", {}}), groups).empty());
    EXPECT_EQ(groups.moments(), 2U);
}

TEST(ParameterGroups, PiecesBeginWhereAParameterOfAnotherGroupBegins) {
    const auto others = adamw(0.1), plain = adamw(0), bias = adamw(0.2);
    const ParameterGroups groups(others, {{"*.norm", plain}, {"*.bias", bias, 2}});
    const auto pieces = optimizer_pieces(layout(block("blocks.0")), groups);
    EXPECT_EQ(ends(pieces), (Ends{{768, plain.get()}, {10816, others.get()}, {10944, bias.get()}}));
    EXPECT_EQ(pieces[1].learning_rate_factor, 1.0);
    EXPECT_EQ(pieces[2].learning_rate_factor, 2.0);
}

TEST(ParameterGroups, NeighboursOfOneGroupAreOnePiece) {
    const auto others = adamw(0.1), plain = adamw(0);
    const ParameterGroups groups(others, {{"*.weight", plain}, {"*.bias", plain}});
    // Two groups, though of one optimizer, stay two pieces; one group over two parameters is one.
    EXPECT_EQ(optimizer_pieces(layout(block("b")), groups).size(), 3U);
    const ParameterGroups joined(others, {{"*.[wb]*", plain}});
    EXPECT_EQ(ends(optimizer_pieces(layout(block("b")), joined)), (Ends{{768, others.get()}, {10944, plain.get()}}));
}

TEST(ParameterGroups, FirstMatchingPatternWinsAndMustMatchTheWholeName) {
    const auto others = adamw(0.1), first = adamw(0), second = adamw(0.2);
    const ParameterGroups groups(others, {{"blocks.1?.norm", first}, {"blocks.*.norm", second}});
    const auto of = [&](const char* unit, const char* parameter) {
        return groups.group_of(unit, parameter).optimizer.get();
    };
    EXPECT_EQ(of("blocks.12", "norm"), first.get());
    EXPECT_EQ(of("blocks.1", "norm"), second.get());
    EXPECT_EQ(of("blocks.1", "norm2"), others.get());
    EXPECT_EQ(of("my.blocks.1", "norm"), others.get());
}

TEST(ParameterGroups, EachRanksPiecesAreTheWholeUnitsCutAtItsShard) {
    const auto others = adamw(0.1), plain = adamw(0);
    const ParameterGroups groups(others, {{"*.norm", plain}, {"*.bias", plain}});
    for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 20U}) {
        std::vector<const Optimizer*> whole;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            const UnitLayout shard = layout(block("b"), {rank, ranks});
            std::uint64_t first = 0;
            for (const OptimizerPiece& piece : optimizer_pieces(shard, groups)) {
                ASSERT_LT(first, piece.end);
                for (; first < piece.end; ++first) whole.push_back(piece.optimizer);
            }
            ASSERT_EQ(first, shard.shard_numel()) << rank << " of " << ranks;
        }
        const auto who = [&](std::uint64_t element) { return whole.at(element); };
        EXPECT_EQ(who(0), plain.get());
        EXPECT_EQ(who(767), plain.get());
        EXPECT_EQ(who(768), others.get());
        EXPECT_EQ(who(10767), others.get());
        EXPECT_EQ(who(10816), plain.get());
        EXPECT_EQ(who(10915), plain.get());
    }
}

TEST(ParameterGroups, RefusesAPatternWithoutEffectByName) {
    const std::vector<UnitLayout> units{layout(block("blocks.0")), layout(block("blocks.1"))};
    const auto check = [&](std::vector<ParameterGroup> list) {
        return refusal_of(ExitCode::usage, [&] { ParameterGroups(adamw(0.1), std::move(list)).check_use(units); });
    };
    EXPECT_EQ(check({{"blocks.*", adamw(0)}, {"head.*", adamw(0)}}).substr(0, 44),
              "the parameter group 'head.*' is without effe");
    EXPECT_NE(check({{"*.table", adamw(0)}}).find("'*.table'"), std::string::npos) << "a frozen parameter";
    EXPECT_NE(check({{"*.norm", adamw(0)}, {"blocks.0.norm", adamw(0)}}).find("'blocks.0.norm'"), std::string::npos);
    EXPECT_EQ(check({{"blocks.0.norm", adamw(0)}, {"*.norm", adamw(0)}}), "accepted");
    EXPECT_EQ(check({{"*", adamw(0)}}), "accepted");
}

TEST(ParameterGroups, RefusesGroupsThatDoNotFitTogether) {
    EXPECT_NE(refusal_of(ExitCode::usage,
                         [] {
                             ParameterGroups(adamw(0), {{"*.norm", make_lion({})}});
                         })
                  .find("'*.norm' keeps 1"),
              std::string::npos);
    EXPECT_NE(
        refusal_of(ExitCode::usage,
                   [] {
                       ParameterGroups(std::shared_ptr<const Optimizer>(make_lion({})), {{"*.norm", make_adagrad({})}});
                   })
            .find("of another kind"),
        std::string::npos);
    for (const double factor : {-1.0, std::nan(""), HUGE_VAL})
        EXPECT_NE(refusal_of(ExitCode::usage,
                             [&] {
                                 ParameterGroups(adamw(0), {{"*.norm", adamw(0), factor}});
                             })
                      .find("'*.norm'"),
                  std::string::npos);
}

// A tile of a shard with memory of its own.
struct Tile {
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    StateFormat format;
    std::uint64_t numel;
    std::vector<Line> weights, states;

    Tile(const StateFormat& of, const float* masters, std::uint64_t count, const TilePieces& pieces)
        : format(of),
          numel(count),
          weights(count * of.weights_bytes() / 64 + 1),
          states(of.states_bytes(count) / 64 + 1) {
        encode_initial(format, masters, view(), pieces);
    }
    template <typename Lines>
    static auto* bytes(Lines& lines) {  // of all of them
        return &lines.data()->bytes[0];
    }
    TileView view() { return {bytes(weights), bytes(states), numel}; }
    std::vector<float> masters() {
        std::vector<float> values(numel);
        decode_masters(format, view(), values.data());
        return values;
    }
    const float* moment(std::uint32_t index) const {
        return reinterpret_cast<const float*>(bytes(states) + format.moment_offset_bytes(index, numel));
    }
};

// Updates a shard in tiles; returns its masters and, behind them, its moments.
std::vector<float> updated(const std::vector<OptimizerPiece>& pieces, std::uint64_t tile_numel, std::uint32_t moments,
                           unsigned threads, double rate = 1e-2) {
    const std::uint64_t numel = pieces.back().end;
    const StateFormat format{&split_codec(), moments};
    const auto masters = finite_values(51, numel);
    Workers workers(threads);
    std::vector<float> result;
    std::vector<std::vector<float>> behind(moments);
    for (std::uint64_t first = 0; first < numel; first += tile_numel) {
        const std::uint64_t count = std::min(tile_numel, numel - first);
        Tile tile(format, masters.data() + first, count, {pieces, first});
        for (std::uint64_t step = 1; step <= 3; ++step) {
            auto gradients = finite_values(60 + step, numel, 1e-2F);
            for (float& value : gradients) value = std::clamp(value, -1e4F, 1e4F);
            const GradientView view{reinterpret_cast<const std::byte*>(gradients.data() + first), PlaneType::fp32,
                                    count};
            const TileUpdate update{
                .format = &format, .values = {step, rate}, .gradient_scale = 0.5F, .pieces = {pieces, first}};
            EXPECT_EQ(update_tile(update, tile.view(), view, workers), std::nullopt);
        }
        const auto own = tile.masters();
        result.insert(result.end(), own.begin(), own.end());
        for (std::uint32_t moment = 0; moment < moments; ++moment)
            behind[moment].insert(behind[moment].end(), tile.moment(moment), tile.moment(moment) + count);
    }
    for (const auto& values : behind) result.insert(result.end(), values.begin(), values.end());
    return result;
}

// By several threads, also where a moment begins above zero.
TEST(ParameterGroups, IntoMemoryThatIsZeroTheFirstStatesAreTheSameBytes) {
    const std::uint64_t numel = 64 * 3001;
    const auto masters = finite_values(52, numel);
    const auto with_sums = std::shared_ptr<const Optimizer>(make_adagrad({.initial_accumulator = 0.25}));
    const auto without = std::shared_ptr<const Optimizer>(make_adagrad({}));
    const std::vector<OptimizerPiece> pieces{{.end = 64 * 999, .optimizer = without.get()},
                                             {.end = 64 * 2000, .optimizer = with_sums.get()},
                                             {.end = numel, .optimizer = without.get()}};
    for (const Codec* codec : {&split_codec(), &plain_fp32_codec(), &plain_bf16_codec(), &plain_fp16_codec()}) {
        const StateFormat format = state_format(*codec, *with_sums);
        Tile expected(format, masters.data(), numel, {pieces, 0});
        for (const unsigned threads : {1U, 3U}) {
            Workers workers(threads);
            Tile tile(format, masters.data(), numel, {pieces, 0});
            std::fill(tile.weights.begin(), tile.weights.end(), Tile::Line{});
            std::fill(tile.states.begin(), tile.states.end(), Tile::Line{});
            encode_into_zeros(format, masters.data(), tile.view(), {pieces, 0}, workers);
            EXPECT_EQ(0, std::memcmp(tile.weights.data(), expected.weights.data(), 64 * tile.weights.size()));
            EXPECT_EQ(0, std::memcmp(tile.states.data(), expected.states.data(), 64 * tile.states.size()));
        }
    }
}

TEST(ParameterGroups, EachParameterIsUpdatedAsIfItsGroupWereAlone) {
    const auto decayed = adamw(0.5), plain = adamw(0);
    const ParameterGroups groups(decayed, {{"*.norm", plain}, {"*.bias", decayed, 0.25}});
    const UnitLayout unit = layout(block("b"));
    const auto mixed = updated(optimizer_pieces(unit, groups), unit.tile_numel(), 2, 2);
    const auto alone = [&](const Optimizer& optimizer, double rate) {
        return updated({{unit.shard_numel(), &optimizer}}, unit.tile_numel(), 2, 1, rate);
    };
    const auto expect_equal = [&](const std::vector<float>& expected, std::uint64_t first, std::uint64_t count) {
        for (std::uint64_t plane = 0; plane < 3; ++plane) {
            const std::uint64_t at = plane * unit.shard_numel() + first;
            EXPECT_EQ(first_difference({mixed.data() + at, count}, {expected.data() + at, count}), -1) << plane;
        }
    };
    expect_equal(alone(*plain, 1e-2), 0, 768);
    expect_equal(alone(*decayed, 1e-2), 768, 10000);
    expect_equal(alone(*decayed, 1e-2 * 0.25), 10816, 100);
    EXPECT_NE(first_difference({mixed.data(), 768}, {alone(*decayed, 1e-2).data(), 768}), -1)
        << "the group has no effect";
}

TEST(ParameterGroups, BitsDependNeitherOnTilesNorOnThreads) {
    const auto decayed = adamw(0.5), plain = adamw(0);
    const ParameterGroups groups(decayed, {{"*.norm", plain}, {"*.bias", plain, 3}});
    const auto pieces = optimizer_pieces(layout(block("b")), groups);
    const auto whole = updated(pieces, pieces.back().end, 2, 1);
    for (const std::uint64_t tile : {64U, 4096U, 8192U})
        EXPECT_EQ(first_difference(updated(pieces, tile, 2, 3), whole), -1);
}

TEST(ParameterGroups, MomentsBeginAsTheirOwnOptimizerSays) {
    const std::shared_ptr<const Optimizer> others = make_adagrad({.initial_accumulator = 0.25});
    const std::shared_ptr<const Optimizer> bias = make_adagrad({.initial_accumulator = 2});
    const ParameterGroups groups(others, {{"*.bias", bias}});
    const UnitLayout unit = layout(block("b"));
    const auto pieces = optimizer_pieces(unit, groups);
    const std::vector<float> masters(unit.tile_numel(), 1.0F);
    // The third tile holds the end of the weight, elements 8192 to 10816, and the bias.
    Tile tile({&split_codec(), 1}, masters.data(), unit.tile_numel(2), {pieces, 2 * unit.tile_numel()});
    EXPECT_EQ(tile.moment(0)[0], 0.25F);
    EXPECT_EQ(tile.moment(0)[10815 - 8192], 0.25F);
    EXPECT_EQ(tile.moment(0)[10816 - 8192], 2.0F);
    EXPECT_EQ(tile.moment(0)[10943 - 8192], 2.0F);
    EXPECT_EQ(tile.masters(), std::vector<float>(unit.tile_numel(2), 1.0F));
}

TEST(ParameterGroups, PiecesThatDoNotReachAreAContractBroken) {
    const auto optimizer = adamw(0);
    const std::vector<OptimizerPiece> pieces{{64, optimizer.get(), 1}};
    EXPECT_DEATH(for_each_piece({pieces, 0}, 0, 65, [](const OptimizerPiece&, std::uint64_t, std::uint64_t) {}),
                 "no optimizer for element 64");
}

TEST(ParameterGroups, APieceWithAnotherNumberOfMomentsThanTheTileIsAContractBroken) {
    const auto two = adamw(0);
    const std::shared_ptr<const Optimizer> one = make_lion({});
    const std::vector<OptimizerPiece> fitting{{64, two.get()}, {128, two.get()}};
    const std::vector<OptimizerPiece> pieces{{64, two.get()}, {128, one.get()}};
    const StateFormat format{&split_codec(), 2};
    const std::vector<float> values(128, 0.5F);
    Tile tile(format, values.data(), 128, {fitting});
    const GradientView view{reinterpret_cast<const std::byte*>(values.data()), PlaneType::fp32, 128};
    Workers workers(1);
    EXPECT_DEATH(update_tile({.format = &format, .values = {1, 1e-2}, .pieces = {pieces}}, tile.view(), view, workers),
                 "lion keeps 1 moments, the tile 2");
}

}  // namespace
}  // namespace penstock::zero
