#include "zero_infinity/optimizer/update.h"
#include "tests/zero_infinity/kernels/values.h"
#include "zero_infinity/kernels/float16.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>

namespace penstock::zero {
namespace {

using test::finite_values;
using test::first_difference;
using test::seed_text;

struct alignas(64) Line {
    std::byte bytes[64];
};

// A tile with memory of its own.
struct Tile {
    StateFormat format;
    std::uint64_t numel;
    std::vector<Line> weights;
    std::vector<Line> states;

    Tile(const StateFormat& of, const std::vector<float>& masters)
        : format(of),
          numel(masters.size()),
          weights(numel * format.weights_bytes() / 64 + 1),
          states(format.states_bytes(numel) / 64 + 1) {
        std::memset(weights.data(), 0xff, weights.size() * 64);
        std::memset(states.data(), 0xff, states.size() * 64);
        encode_initial(format, masters.data(), view());
    }
    TileView view() { return {weights.data()->bytes, states.data()->bytes, numel}; }
    std::vector<float> masters() {
        std::vector<float> values(numel);
        decode_masters(format, view(), values.data());
        return values;
    }
    std::vector<float> moment(std::uint32_t index) {
        std::vector<float> values(numel);
        decode_moment(format, view(), index, values.data());
        return values;
    }
};

std::vector<StateFormat> formats() {
    std::vector<StateFormat> all;
    for (const std::string_view name : codec_names()) all.push_back({find_codec(name), 2});
    return all;
}

std::vector<StateFormat> exact_formats() {
    std::vector<StateFormat> all = formats();
    std::erase_if(all, [](const StateFormat& format) { return !format.codec->exact; });
    return all;
}

// What the codec makes of masters and moments that are stored and read back.
void store_and_load(const StateFormat& format, std::vector<float>& p, std::vector<float>& m, std::vector<float>& v) {
    const Codec& codec = *format.codec;
    if (codec.exact) return;
    std::vector<Line> first(p.size()), second(p.size());
    codec.encode_master(p.data(), first.data()->bytes, second.data()->bytes, p.size());
    codec.decode_master(first.data()->bytes, second.data()->bytes, p.data(), p.size());
    const auto moment = [&](MomentKind kind, std::vector<float>& values) {
        codec.encode_moment(kind, values.data(), first.data()->bytes, second.data()->bytes, values.size());
        codec.decode_moment(kind, first.data()->bytes, second.data()->bytes, values.data(), values.size());
    };
    moment(MomentKind::any_sign, m);
    moment(MomentKind::square, v);
}

struct Gradients {
    PlaneType type;
    std::vector<float> fp32;
    std::vector<std::uint16_t> narrow;  // bf16 or fp16

    Gradients(PlaneType of, std::uint64_t seed, std::size_t count) : type(of), fp32(finite_values(seed, count, 1e-2F)) {
        for (float& value : fp32) {
            value = std::clamp(value, -1e4F, 1e4F);
            if (type == PlaneType::fp32) continue;
            narrow.push_back(type == PlaneType::bf16 ? fp32_to_bf16(value) : fp32_to_fp16(value));
            value = type == PlaneType::bf16 ? bf16_to_fp32(narrow.back()) : fp16_to_fp32(narrow.back());
        }
    }
    GradientView view(std::size_t first = 0, std::size_t count = SIZE_MAX) const {
        const std::byte* data = type == PlaneType::fp32 ? reinterpret_cast<const std::byte*>(fp32.data() + first)
                                                        : reinterpret_cast<const std::byte*>(narrow.data() + first);
        return {data, type, std::min(count, fp32.size() - first)};
    }
};

std::vector<float> start_values(std::uint64_t seed, std::size_t count) {
    auto values = finite_values(seed, count);
    for (float& value : values) value = std::clamp(value, -1e10F, 1e10F);
    return values;
}

// AdamW without its kernel for encoded elements, as a user would write it.
class BlockwiseAdamW final : public Optimizer {
   public:
    std::string name() const override { return inner_->name(); }
    std::uint32_t moments() const noexcept override { return inner_->moments(); }
    MomentKind moment_kind(std::uint32_t moment) const noexcept override { return inner_->moment_kind(moment); }
    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        inner_->update(span, values);
    }

   private:
    std::unique_ptr<Optimizer> inner_ = make_adamw({});
};

TEST(Update, IsDecodeScaleOptimizerEncodeForEveryCodecAndGradientType) {
    const std::uint64_t seed = 31;
    SCOPED_TRACE(seed_text(seed));
    Workers workers(2);
    const auto adamw = make_adamw({});
    for (const StateFormat& format : formats()) {
        for (const PlaneType type : {PlaneType::fp32, PlaneType::bf16, PlaneType::fp16}) {
            SCOPED_TRACE(std::string(format.codec->name) + " with gradients of " + word_of(type));
            const std::size_t count = 70001;
            auto p = start_values(seed, count);
            Tile tile(format, p);
            std::vector<float> m(count, 0.0F);
            std::vector<float> v(count, 0.0F);
            store_and_load(format, p, m, v);
            for (std::uint64_t step = 1; step <= 3; ++step) {
                const Gradients gradients(type, seed + step, count);
                const float scale = 0.3F;
                std::vector<float> scaled;
                for (const float g : gradients.fp32) scaled.push_back(g * scale);
                adamw->update({p.data(), {m.data(), v.data()}, scaled.data(), count}, {step, 1e-3});
                const TileUpdate update{&format, adamw.get(), {step, 1e-3}, scale};
                ASSERT_EQ(update_tile(update, tile.view(), gradients.view(), workers), std::nullopt);
                store_and_load(format, p, m, v);
                ASSERT_EQ(first_difference(tile.masters(), p), -1);
                ASSERT_EQ(first_difference(tile.moment(0), m), -1);
                ASSERT_EQ(first_difference(tile.moment(1), v), -1);
            }
            // What compute reads is the new master, rounded as the codec says.
            const auto* hi = reinterpret_cast<const std::uint16_t*>(tile.weights.data());
            if (format.codec == &split_codec()) {
                for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(hi[i], split_master(p[i]).hi);
            }
            if (format.codec == &plain_bf16_codec()) {
                for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(hi[i], fp32_to_bf16(p[i]));
            }
            if (format.codec == &plain_fp16_codec()) {
                for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(hi[i], fp32_to_fp16(p[i]));
            }
        }
    }
}

TEST(Update, GivesTheSameBytesForAnyNumberOfWorkersAndAnyCutIntoTiles) {
    const std::uint64_t seed = 32;
    SCOPED_TRACE(seed_text(seed));
    const std::size_t count = 200'064;
    const auto masters = start_values(seed, count);
    const Gradients gradients(PlaneType::bf16, seed + 1, count);
    const auto adamw = make_adamw({});
    for (const StateFormat& format : formats()) {
        SCOPED_TRACE(format.codec->name);
        const TileUpdate update{&format, adamw.get(), {1, 1e-3}, 0.7F};

        Workers one(1);
        Tile reference(format, masters);
        ASSERT_EQ(update_tile(update, reference.view(), gradients.view(), one), std::nullopt);
        const auto expected = reference.masters();

        for (const unsigned threads : {2U, 3U, 5U}) {
            Workers workers(threads);
            Tile tile(format, masters);
            ASSERT_EQ(update_tile(update, tile.view(), gradients.view(), workers), std::nullopt);
            EXPECT_EQ(std::memcmp(tile.weights.data(), reference.weights.data(), count * format.weights_bytes()), 0);
            EXPECT_EQ(std::memcmp(tile.states.data(), reference.states.data(), format.states_bytes(count)), 0);
        }
        for (const std::size_t piece : {64U, 4096U, 65536U + 64U}) {
            for (std::size_t first = 0; first < count; first += piece) {
                const std::size_t length = std::min(piece, count - first);
                Tile tile(format, {masters.begin() + static_cast<std::ptrdiff_t>(first),
                                   masters.begin() + static_cast<std::ptrdiff_t>(first + length)});
                ASSERT_EQ(update_tile(update, tile.view(), gradients.view(first, length), one), std::nullopt);
                ASSERT_EQ(first_difference(tile.masters(), {expected.data() + first, length}), -1) << piece;
            }
        }
    }
}

TEST(Update, NamesTheFirstElementThatIsNotFinite) {
    const std::size_t count = 200'000;
    const auto adamw = make_adamw({});
    const BlockwiseAdamW blockwise;
    Workers workers(3);
    const std::uint64_t places[] = {0, 2047, 2048, 131'073, count - 1};
    for (const StateFormat& format : formats()) {
        for (const std::uint64_t bad : places) {
            Tile tile(format, std::vector<float>(count, 0.5F));
            std::vector<float> g(count, 0.01F);
            g[bad] = bad % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
            g[count - 1] = -std::numeric_limits<float>::infinity();
            const GradientView view{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, count};
            const auto element = update_tile({&format, adamw.get(), {1, 1e-3}, 1.0F}, tile.view(), view, workers);
            ASSERT_EQ(element, std::optional<std::uint64_t>(bad)) << format.codec->name;
            Tile fresh(format, std::vector<float>(count, 0.5F));
            const auto in_blocks = update_tile({&format, &blockwise, {1, 1e-3}, 1.0F}, fresh.view(), view, workers);
            ASSERT_EQ(in_blocks, std::optional<std::uint64_t>(bad)) << format.codec->name;
        }
    }
}

// Of different lengths, cut over several threads.
TEST(Update, SeveralTilesByOneCallAreEachAsByItsOwn) {
    const std::size_t lengths[] = {200'000, 64, 70'000};
    const auto adamw = make_adamw({});
    for (const StateFormat& format : formats()) {
        const TileUpdate update{&format, adamw.get(), {1, 1e-3}, 0.5F};
        for (const unsigned threads : {1U, 3U}) {
            Workers workers(threads);
            std::deque<Tile> alone, together;
            std::deque<std::vector<float>> gradients;
            std::vector<TileTurn> turns;
            for (const std::size_t length : lengths) {
                gradients.emplace_back(length, 0.25F + static_cast<float>(length % 7));
                const auto* data = reinterpret_cast<const std::byte*>(gradients.back().data());
                const GradientView view{data, PlaneType::fp32, length};
                alone.emplace_back(format, std::vector<float>(length, 0.5F));
                ASSERT_EQ(update_tile(update, alone.back().view(), view, workers), std::nullopt);
                together.emplace_back(format, std::vector<float>(length, 0.5F));
                turns.push_back({together.back().view(), view, {}});
            }
            ASSERT_FALSE(update_tiles(update, turns, workers));
            for (std::size_t tile = 0; tile < std::size(lengths); ++tile)
                EXPECT_EQ(together[tile].masters(), alone[tile].masters()) << format.codec->name << " tile " << tile;
            gradients[2][69'999] = gradients[1][63] = std::numeric_limits<float>::quiet_NaN();
            const auto bad = update_tiles(update, turns, workers);
            ASSERT_TRUE(bad);
            EXPECT_EQ(bad->turn, 1U) << format.codec->name;
            EXPECT_EQ(bad->element, 63U) << format.codec->name;
        }
    }
}

TEST(Update, NamesAnElementWhoseMasterOverflows) {
    const StateFormat format{&split_codec(), 2};
    const auto adamw = make_adamw({.weight_decay = 0});
    Workers workers(1);
    std::vector<float> masters(100, 0.5F);
    masters[70] = std::numeric_limits<float>::max();
    Tile tile(format, masters);
    const std::vector<float> g(100, -1.0F);
    const GradientView view{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 100};
    EXPECT_EQ(update_tile({&format, adamw.get(), {1, 1e37}, 1.0F}, tile.view(), view, workers),
              std::optional<std::uint64_t>(70));
}

// g² overflows fp32 although g does not: the master hardly moves, now and for ever after.
TEST(Update, NamesAnElementWhoseSecondMomentOverflows) {
    for (const StateFormat& format : formats()) {
        const auto adamw = make_adamw({});
        Workers workers(1);
        Tile tile(format, std::vector<float>(100, 0.5F));
        std::vector<float> g(100, 1.0F);
        g[42] = 1e25F;
        const GradientView view{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 100};
        EXPECT_EQ(update_tile({&format, adamw.get(), {1, 1e-3}, 1.0F}, tile.view(), view, workers),
                  std::optional<std::uint64_t>(42));
        EXPECT_TRUE(std::isfinite(tile.masters()[42]));
    }
}

TEST(Update, InitialTileHoldsTheMastersAndZeroMoments) {
    for (const StateFormat& format : formats()) {
        const auto masters = finite_values(40, 1001);
        Tile tile(format, masters);  // its memory was 0xff before
        const auto decoded = tile.masters();
        for (std::size_t i = 0; i < masters.size(); ++i) {
            const double allowed =
                std::max(format.codec->error.master * std::abs(masters[i]), format.codec->error.master_tiny);
            ASSERT_LE(std::abs(double{decoded[i]} - masters[i]), allowed) << format.codec->name;
        }
        EXPECT_EQ(first_difference(tile.moment(0), std::vector<float>(1001, 0.0F)), -1);
        EXPECT_EQ(first_difference(tile.moment(1), std::vector<float>(1001, 0.0F)), -1);
    }
}

// A user's own optimizer with one moment: sign descent with momentum.
class SignMomentum final : public Optimizer {
   public:
    std::string name() const override { return "sign_momentum"; }
    std::uint32_t moments() const noexcept override { return 1; }
    MomentKind moment_kind(std::uint32_t) const noexcept override { return MomentKind::any_sign; }
    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        for (std::size_t i = 0; i < span.count; ++i) {
            span.moments[0][i] = 0.5F * span.moments[0][i] + span.gradient[i];
            span.master[i] -= static_cast<float>(values.learning_rate) * (span.moments[0][i] > 0 ? 1.0F : -1.0F);
        }
    }
};

TEST(Update, TakesAUsersOwnOptimizer) {
    Workers workers(2);
    const SignMomentum optimizer;
    for (const StateFormat& two_moments : exact_formats()) {
        const StateFormat format = state_format(*two_moments.codec, optimizer);
        EXPECT_EQ(format.moments, 1U);
        const std::string_view name = format.codec->name;
        Tile tile(format, {1.0F, 2.0F, 3.0F});
        const std::vector<float> g{2.0F, -4.0F, 6.0F};
        const GradientView view{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 3};
        EXPECT_EQ(update_tile({&format, &optimizer, {1, 0.25}, 0.5F}, tile.view(), view, workers), std::nullopt);
        EXPECT_EQ(tile.masters(), (std::vector<float>{0.75F, 2.25F, 2.75F})) << name;
        EXPECT_EQ(tile.moment(0), (std::vector<float>{1.0F, -2.0F, 3.0F})) << name;
    }
}

TEST(Update, GivesTheSameBytesInRegistersAndInBlocks) {
    const BlockwiseAdamW blockwise;
    const auto adamw = make_adamw({});
    Workers workers(2);
    const std::size_t count = 131'072 + 5000;
    for (const StateFormat& format : exact_formats()) {
        for (const PlaneType type : {PlaneType::fp32, PlaneType::bf16, PlaneType::fp16}) {
            SCOPED_TRACE(std::string(format.codec->name) + " with gradients of " + word_of(type));
            const auto masters = start_values(60, count);
            Tile one(format, masters), other(format, masters);
            for (std::uint64_t step = 1; step <= 2; ++step) {
                const Gradients gradients(type, 61 + step, count);
                const auto update = [&](const Optimizer& optimizer, Tile& tile) {
                    return update_tile({&format, &optimizer, {step, 1e-3}, 0.3F}, tile.view(), gradients.view(),
                                       workers);
                };
                ASSERT_EQ(update(*adamw, one), std::nullopt);
                ASSERT_EQ(update(blockwise, other), std::nullopt);
            }
            EXPECT_EQ(std::memcmp(one.weights.data(), other.weights.data(), one.weights.size() * 64), 0);
            EXPECT_EQ(std::memcmp(one.states.data(), other.states.data(), one.states.size() * 64), 0);
        }
    }
}

TEST(Update, RefusesPartsThatDoNotFitTogether) {
    Workers workers(1);
    const StateFormat format{&split_codec(), 2};
    const auto adamw = make_adamw({});
    Tile tile(format, std::vector<float>(64, 1.0F));
    const std::vector<float> g(64, 0.0F);
    const GradientView shorter{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 63};
    EXPECT_DEATH(update_tile({&format, adamw.get(), {1, 1e-3}, 1.0F}, tile.view(), shorter, workers), "63 gradients");
    const SignMomentum other;
    const GradientView whole{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, 64};
    EXPECT_DEATH(update_tile({&format, &other, {1, 1e-3}, 1.0F}, tile.view(), whole, workers), "sign_momentum keeps 1");
    const StateFormat squares{&compact_codec(), 1, {MomentKind::square, MomentKind::square}};
    Tile lossy(squares, std::vector<float>(64, 1.0F));
    EXPECT_DEATH(update_tile({&squares, &other, {1, 1e-3}, 1.0F}, lossy.view(), whole, workers), "of another kind");
}

// compact holds less than fp32 does: what it would clip is an error like an infinity, and nothing below is.
TEST(Update, NamesAnElementThatTheCodecCannotHold) {
    const StateFormat format{&compact_codec(), 2};
    const auto adamw = make_adamw({.beta2 = 0.5});
    Workers workers(2);
    const auto bad_element = [&](float gradient) {
        Tile tile(format, std::vector<float>(5000, 0.5F));
        std::vector<float> g(5000, 1.0F);
        g[4321] = gradient;
        const GradientView view{reinterpret_cast<const std::byte*>(g.data()), PlaneType::fp32, g.size()};
        return update_tile({&format, adamw.get(), {1, 1e-3}, 1.0F}, tile.view(), view, workers);
    };
    EXPECT_EQ(bad_element(9.2e4F), std::nullopt);  // v = g² / 2, just below 65504²
    EXPECT_EQ(bad_element(9.3e4F), std::optional<std::uint64_t>(4321));
    const SignMomentum signs;
    const StateFormat one = state_format(compact_codec(), signs);
    for (const float g : {-65504.0F, -65536.0F}) {
        Tile tile(one, std::vector<float>(64, 0.5F));
        const std::vector<float> all(64, g);
        const GradientView view{reinterpret_cast<const std::byte*>(all.data()), PlaneType::fp32, all.size()};
        EXPECT_EQ(update_tile({&one, &signs, {1, 1e-3}, 1.0F}, tile.view(), view, workers).has_value(), g < -65504.0F);
    }
}

}  // namespace
}  // namespace penstock::zero
