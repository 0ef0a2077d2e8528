#include "zero_infinity/update.h"

#include "aio/check.h"
#include "zero_infinity/kernels.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace penstock {
namespace {

constexpr std::uint64_t block_numel = 2048;   // master and gradient as fp32 on the stack: 16 KiB, stays in the L1 cache
constexpr std::uint64_t chunk_numel = 65536;  // one piece of work for a thread: some 40 µs
constexpr std::uint64_t all_finite = std::numeric_limits<std::uint64_t>::max();

// The planes of one tile, as the codec and the optimizer see them.
struct Planes {
    std::byte* weights = nullptr;
    std::byte* master = nullptr;  // null when the codec keeps none
    float* moments[2] = {nullptr, nullptr};
    std::uint64_t weights_bytes = 0;  // per element
    std::uint64_t master_bytes = 0;   // per element

    std::byte* weights_at(std::uint64_t element) const noexcept { return weights + element * weights_bytes; }
    std::byte* master_at(std::uint64_t element) const noexcept {
        return master == nullptr ? nullptr : master + element * master_bytes;
    }
};

Planes planes_of(const StateFormat& format, const TileView& tile) noexcept {
    const Codec& codec = *format.codec;
    PENSTOCK_CHECK(codec.moments == PlaneType::fp32 && format.moments <= 2, "{} moments of type {}", format.moments,
                   to_string(codec.moments));
    Planes planes;
    planes.weights = tile.weights;
    planes.weights_bytes = format.weights_bytes();
    if (codec.has_master_plane) {
        planes.master = tile.states + format.master_offset_bytes(tile.numel);
        planes.master_bytes = bytes_of(codec.master_plane);
    }
    for (std::uint32_t moment = 0; moment < format.moments; ++moment)
        planes.moments[moment] = reinterpret_cast<float*>(tile.states + format.moment_offset_bytes(moment, tile.numel));
    return planes;
}

std::uint64_t first_non_finite(const float* value, std::uint64_t count) noexcept {
    if (kernels().all_finite(value, count)) return all_finite;
    for (std::uint64_t i = 0; i < count; ++i)
        if (!kernels().all_finite(value + i, 1)) return i;
    return all_finite;
}

// Hands the tile's elements [first, first + span.count), which the span holds, to those who update them.
void optimize(const TileUpdate& update, const UpdateSpan& span, std::uint64_t first) noexcept {
    if (update.pieces.shard.empty()) {
        update.optimizer->update(span, update.values);
        return;
    }
    for_each_piece(
        update.pieces, first, span.count, [&](const OptimizerPiece& piece, std::uint64_t begin, std::uint64_t count) {
            const std::uint64_t offset = begin - first;
            UpdateSpan part{.master = span.master + offset, .gradient = span.gradient + offset, .count = count};
            for (std::uint32_t moment = 0; moment < update.format->moments; ++moment)
                part.moments[moment] = span.moments[moment] + offset;
            const double rate = update.values.learning_rate * piece.learning_rate_factor;
            piece.optimizer->update(part, {update.values.step, rate});
        });
}

void check_moments(const Optimizer& optimizer, const StateFormat& format) {
    PENSTOCK_CHECK(optimizer.moments() == format.moments, "optimizer {} keeps {} moments, the tile {}",
                   optimizer.name(), optimizer.moments(), format.moments);
}

// Updates elements [first, first + count) of the tile; returns the first of them that is not finite, or all_finite.
std::uint64_t update_block(const TileUpdate& update, const Planes& planes, const GradientView& gradient,
                           std::uint64_t first, std::uint64_t count) noexcept {
    alignas(64) float master[block_numel];
    alignas(64) float scaled[block_numel];
    const Codec& codec = *update.format->codec;

    codec.decode(planes.weights_at(first), planes.master_at(first), master, count);
    const GradientView piece{gradient.data + first * bytes_of(gradient.type), gradient.type, count};
    scaled_to_fp32(piece, update.gradient_scale, scaled);

    UpdateSpan span{.master = master, .gradient = scaled, .count = count};
    for (std::uint32_t moment = 0; moment < update.format->moments; ++moment)
        span.moments[moment] = planes.moments[moment] + first;
    optimize(update, span, first);

    std::uint64_t bad = first_non_finite(master, count);
    for (std::uint32_t moment = 0; moment < update.format->moments; ++moment)
        bad = std::min(bad, first_non_finite(span.moments[moment], count));
    codec.encode(master, planes.weights_at(first), planes.master_at(first), count);
    return bad == all_finite ? all_finite : first + bad;
}

void lower(std::atomic<std::uint64_t>& minimum, std::uint64_t value) noexcept {
    std::uint64_t seen = minimum.load(std::memory_order_relaxed);
    while (value < seen && !minimum.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

}  // namespace

std::optional<std::uint64_t> update_tile(const TileUpdate& update, const TileView& tile, const GradientView& gradient,
                                         Workers& workers) {
    PENSTOCK_CHECK(gradient.numel == tile.numel, "{} gradients for {} elements", gradient.numel, tile.numel);
    if (update.pieces.shard.empty()) check_moments(*update.optimizer, *update.format);
    for (const OptimizerPiece& piece : update.pieces.shard) check_moments(*piece.optimizer, *update.format);
    const Planes planes = planes_of(*update.format, tile);

    std::atomic<std::uint64_t> bad{all_finite};
    workers.run((tile.numel + chunk_numel - 1) / chunk_numel, [&](std::size_t chunk) {
        const std::uint64_t end = std::min((chunk + 1) * chunk_numel, tile.numel);
        for (std::uint64_t first = chunk * chunk_numel; first < end; first += block_numel) {
            const std::uint64_t count = std::min(block_numel, end - first);
            const std::uint64_t element = update_block(update, planes, gradient, first, count);
            if (element != all_finite) lower(bad, element);
        }
    });
    const std::uint64_t element = bad.load(std::memory_order_relaxed);
    if (element == all_finite) return std::nullopt;
    return element;
}

void encode_initial(const StateFormat& format, const float* master, const TileView& tile,
                    const TilePieces& pieces) noexcept {
    const Planes planes = planes_of(format, tile);
    format.codec->encode(master, planes.weights, planes.master, tile.numel);
    for (std::uint32_t moment = 0; moment < format.moments; ++moment)
        std::fill_n(planes.moments[moment], tile.numel, 0.0F);
    if (pieces.shard.empty()) return;
    for_each_piece(pieces, 0, tile.numel, [&](const OptimizerPiece& piece, std::uint64_t begin, std::uint64_t count) {
        for (std::uint32_t moment = 0; moment < format.moments; ++moment)
            std::fill_n(planes.moments[moment] + begin, count, piece.optimizer->initial_moment(moment));
    });
}

void decode_masters(const StateFormat& format, const TileView& tile, float* master) noexcept {
    const Planes planes = planes_of(format, tile);
    format.codec->decode(planes.weights, planes.master, master, tile.numel);
}

}  // namespace penstock
