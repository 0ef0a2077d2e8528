#include "zero_infinity/optimizer/update.h"

#include "aio/words/check.h"
#include "zero_infinity/kernels/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

namespace penstock::zero {
namespace {

constexpr std::uint64_t block_numel = 2048;  // as fp32 on the stack, with coded moments 32 KiB: stays in the L1 cache
constexpr std::uint64_t longest_chunk_numel = 65536;  // one piece of work for a thread: some 200 us
constexpr std::uint64_t all_finite = std::numeric_limits<std::uint64_t>::max();

// A plane of a tile: one value of `bytes` for every `elements` elements. Null where the codec keeps none.
struct PlaneView {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t elements = 1;

    std::byte* at(std::uint64_t element) const noexcept {
        return data == nullptr ? nullptr : data + element / elements * bytes;
    }
};

struct MomentPlanes {
    PlaneView values;
    PlaneView scales;
};

// The planes of one tile, as the codec and the optimizer see them.
struct Planes {
    PlaneView weights;
    PlaneView master;
    MomentPlanes moments[2];
};

PlaneView plane_view(const StateFormat& format, const TileView& tile, const StatePlane* plane) noexcept {
    if (plane == nullptr) return {};
    PENSTOCK_CHECK(block_numel % plane->elements == 0, "scales for {} elements in blocks of {}", plane->elements,
                   block_numel);
    return {tile.states + format.offset_bytes(*plane, tile.numel), bytes_of(plane->type), plane->elements};
}

Planes planes_of(const StateFormat& format, const TileView& tile) noexcept {
    const Codec& codec = *format.codec;
    PENSTOCK_CHECK(format.moments <= 2, "{} moments", format.moments);
    Planes planes;
    planes.weights = {tile.weights, format.weights_bytes()};
    planes.master = plane_view(format, tile, codec.plane(PlaneOf::master));
    for (std::uint32_t moment = 0; moment < format.moments; ++moment) {
        const PlaneOf of = plane_of_moment(moment);
        planes.moments[moment] = {plane_view(format, tile, codec.plane(of)),
                                  plane_view(format, tile, codec.scales(of))};
    }
    return planes;
}

float* as_fp32(const PlaneView& plane, std::uint64_t element) noexcept {
    return reinterpret_cast<float*>(plane.at(element));
}

CodedMoment coded_moment(const MomentPlanes& planes, std::uint64_t element) noexcept {
    return {reinterpret_cast<std::uint8_t*>(planes.values.at(element)),
            reinterpret_cast<std::uint16_t*>(planes.scales.at(element))};
}

std::uint64_t first_beyond(const float* value, float limit, std::uint64_t count) noexcept {
    if (kernels().all_within(value, limit, count)) return all_finite;
    for (std::uint64_t i = 0; i < count; ++i)
        if (!kernels().all_within(value + i, limit, 1)) return i;
    return all_finite;
}

// The largest |moment| that the codec holds; a square is held by its root.
float moment_limit(const StateFormat& format, std::uint32_t moment) noexcept {
    const float limit = format.codec->error.moment_limit;
    if (format.codec->exact || format.kinds[moment] == MomentKind::any_sign) return limit;
    return limit * limit;
}

std::uint64_t first_beyond_limits(const StateFormat& format, const UpdateSpan& span) noexcept {
    std::uint64_t bad = first_beyond(span.master, std::numeric_limits<float>::max(), span.count);
    for (std::uint32_t moment = 0; moment < format.moments; ++moment)
        bad = std::min(bad, first_beyond(span.moments[moment], moment_limit(format, moment), span.count));
    return bad;
}

// A part of the tile with one optimizer: elements [first, first + count). REQUIRES: first is where a scale begins.
struct Part {
    const TileUpdate* update;
    const TileTurn* turn;
    const Planes* planes;
    const Optimizer* optimizer;
    StepValues values;
    std::uint64_t first;
    std::uint64_t count;

    const StateFormat& format() const noexcept { return *update->format; }
    const Codec& codec() const noexcept { return *update->format->codec; }
    GradientView gradient() const noexcept {
        const GradientView& whole = turn->gradient;
        return {whole.data + first * bytes_of(whole.type), whole.type, count};
    }
    Part block(std::uint64_t offset) const noexcept {
        Part part = *this;
        part.first = first + offset;
        part.count = std::min(block_numel, count - offset);
        return part;
    }
};

// Decodes, updates, checks and encodes at most block_numel elements.
std::uint64_t update_block(const Part& part) noexcept {
    alignas(64) float master[block_numel];
    alignas(64) float scaled[block_numel];
    alignas(64) float decoded[2][block_numel];  // of codecs whose moments are not planes of fp32
    const Codec& codec = part.codec();
    std::byte* weights = part.planes->weights.at(part.first);
    std::byte* own = part.planes->master.at(part.first);

    codec.decode_master(weights, own, master, part.count);
    scaled_to_fp32(part.gradient(), part.update->gradient_scale, scaled);
    UpdateSpan span{.master = master, .gradient = scaled, .count = part.count};
    for (std::uint32_t i = 0; i < part.format().moments; ++i) {
        const MomentPlanes& planes = part.planes->moments[i];
        span.moments[i] = codec.decode_moment == nullptr ? as_fp32(planes.values, part.first) : decoded[i];
        if (codec.decode_moment != nullptr)
            codec.decode_moment(part.format().kinds[i], planes.values.at(part.first), planes.scales.at(part.first),
                                decoded[i], part.count);
    }
    part.optimizer->update(span, part.values);

    const std::uint64_t bad = first_beyond_limits(part.format(), span);
    codec.encode_master(master, weights, own, part.count);
    if (codec.encode_moment != nullptr)
        for (std::uint32_t i = 0; i < part.format().moments; ++i) {
            const MomentPlanes& planes = part.planes->moments[i];
            codec.encode_moment(part.format().kinds[i], decoded[i], planes.values.at(part.first),
                                planes.scales.at(part.first), part.count);
        }
    return bad == all_finite ? all_finite : part.first + bad;
}

// What is not finite is still so when it is decoded: the forms of the master are exact for every bit pattern.
std::uint64_t find_non_finite(const Part& whole) noexcept {
    alignas(64) float master[block_numel];
    for (std::uint64_t offset = 0; offset < whole.count; offset += block_numel) {
        const Part part = whole.block(offset);
        part.codec().decode_master(part.planes->weights.at(part.first), part.planes->master.at(part.first), master,
                                   part.count);
        UpdateSpan span{.master = master, .count = part.count};
        for (std::uint32_t i = 0; i < part.format().moments; ++i)
            span.moments[i] = as_fp32(part.planes->moments[i].values, part.first);
        const std::uint64_t bad = first_beyond_limits(part.format(), span);
        if (bad != all_finite) return part.first + bad;
    }
    PENSTOCK_CHECK(false, "optimizer {} found a value that is not finite, but there is none", whole.optimizer->name());
}

// In registers, when the optimizer can. Coded moments do not show what was refused: then `bad` takes its place.
EncodedUpdate update_encoded(const Part& part, std::size_t& bad) noexcept {
    if (part.codec().form == EncodedForm::none) return EncodedUpdate::unsupported;
    EncodedSpan span{.form = part.codec().form,
                     .weights = part.planes->weights.at(part.first),
                     .master = part.planes->master.at(part.first),
                     .gradient = part.gradient().data,
                     .gradient_type = part.turn->gradient.type,
                     .gradient_scale = part.update->gradient_scale,
                     .count = part.count,
                     .first_bad = &bad};
    const bool coded = part.codec().decode_moment != nullptr;
    for (std::uint32_t i = 0; i < part.format().moments; ++i) {
        const MomentPlanes& planes = part.planes->moments[i];
        if (coded)
            span.coded[i] = coded_moment(planes, part.first);
        else
            span.moments[i] = as_fp32(planes.values, part.first);
    }
    return part.optimizer->update_encoded(span, part.values);
}

// Returns the first element that is not finite, or all_finite.
std::uint64_t update_part(const Part& part) noexcept {
    std::size_t refused = 0;
    switch (update_encoded(part, refused)) {
        case EncodedUpdate::finite:
            return all_finite;
        case EncodedUpdate::non_finite:
            return part.codec().decode_moment == nullptr ? find_non_finite(part) : part.first + refused;
        case EncodedUpdate::unsupported:
            break;
    }
    std::uint64_t bad = all_finite;
    for (std::uint64_t offset = 0; offset < part.count; offset += block_numel)
        bad = std::min(bad, update_block(part.block(offset)));
    return bad;
}

// Hands each stretch of one piece to its optimizer. Pieces begin at multiples of parameter_alignment, as scales do.
std::uint64_t update_pieces(const Part& whole) noexcept {
    const TilePieces& pieces = whole.turn->pieces;
    if (pieces.shard.empty()) return update_part(whole);
    std::uint64_t bad = all_finite;
    for_each_piece(pieces, whole.first, whole.count,
                   [&](const OptimizerPiece& piece, std::uint64_t first, std::uint64_t count) {
                       if (piece.optimizer == nullptr) return;
                       Part part = whole;
                       part.optimizer = piece.optimizer;
                       part.values = values_of(piece, whole.values);
                       part.first = first;
                       part.count = count;
                       bad = std::min(bad, update_part(part));
                   });
    return bad;
}

void check_moments(const Optimizer& optimizer, const StateFormat& format) {
    PENSTOCK_CHECK(optimizer.moments() == format.moments, "optimizer {} keeps {} moments, the tile {}",
                   optimizer.name(), optimizer.moments(), format.moments);
    for (std::uint32_t moment = 0; moment < format.moments; ++moment)
        PENSTOCK_CHECK(format.codec->exact || optimizer.moment_kind(moment) == format.kinds[moment],
                       "optimizer {}: the tile's moment {} is of another kind", optimizer.name(), moment);
}

// Fills one stretch of a moment with one value.
void fill_moment(const StateFormat& format, const Planes& planes, std::uint32_t moment, float value,
                 std::uint64_t first, std::uint64_t count) noexcept {
    const MomentPlanes& to = planes.moments[moment];
    if (format.codec->encode_moment == nullptr) {
        std::fill_n(as_fp32(to.values, first), count, value);
        return;
    }
    float values[block_numel];
    std::fill_n(values, std::min(count, block_numel), value);
    for (const std::uint64_t end = first + count; first < end; first += block_numel)
        format.codec->encode_moment(format.kinds[moment], values, to.values.at(first), to.scales.at(first),
                                    std::min(block_numel, end - first));
}

// Zero bytes are zero moments in every codec, and so are those of the gaps between planes.
void encode_first(const StateFormat& format, const float* master, const Planes& planes, const TilePieces& pieces,
                  std::uint64_t first, std::uint64_t count) noexcept {
    format.codec->encode_master(master + first, planes.weights.at(first), planes.master.at(first), count);
    if (pieces.shard.empty()) return;
    for_each_piece(pieces, first, count, [&](const OptimizerPiece& piece, std::uint64_t begin, std::uint64_t length) {
        for (std::uint32_t moment = 0; moment < format.moments; ++moment) {
            const float value = piece.optimizer->initial_moment(moment);
            if (value != 0) fill_moment(format, planes, moment, value, begin, length);
        }
    });
}

// Several pieces for each of many threads, so that none waits long for the last one.
std::uint64_t chunk_numel(std::uint64_t numel, unsigned threads) noexcept {
    const std::uint64_t even = numel / (4 * std::uint64_t{threads}) / block_numel * block_numel;
    return std::clamp(even, 2 * block_numel, longest_chunk_numel);
}

void check_turn(const TileUpdate& update, const TileTurn& turn) {
    PENSTOCK_CHECK(turn.gradient.numel == turn.view.numel, "{} gradients for {} elements", turn.gradient.numel,
                   turn.view.numel);
    if (turn.pieces.shard.empty()) check_moments(*update.optimizer, *update.format);
    for (const OptimizerPiece& piece : turn.pieces.shard)
        if (piece.optimizer != nullptr) check_moments(*piece.optimizer, *update.format);
}

void lower(std::atomic<std::uint64_t>& minimum, std::uint64_t value) noexcept {
    std::uint64_t seen = minimum.load(std::memory_order_relaxed);
    while (value < seen && !minimum.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
}

}  // namespace

StateFormat state_format(const Codec& codec, const Optimizer& optimizer) noexcept {
    StateFormat format{&codec, optimizer.moments()};
    for (std::uint32_t moment = 0; moment < format.moments; ++moment)
        format.kinds[moment] = optimizer.moment_kind(moment);
    return format;
}

std::optional<std::uint64_t> update_tile(const TileUpdate& update, const TileView& tile, const GradientView& gradient,
                                         Workers& workers) {
    const TileTurn turn{tile, gradient, update.pieces};
    const auto bad = update_tiles(update, {&turn, 1}, workers);
    if (!bad) return std::nullopt;
    return bad->element;
}

// The lowest one of all is the first of the first tile.
std::optional<TileElement> update_tiles(const TileUpdate& update, std::span<const TileTurn> turns, Workers& workers) {
    std::uint64_t numel = 0, longest_tile = 0;
    for (const TileTurn& turn : turns) {
        check_turn(update, turn);
        numel += turn.view.numel;
        longest_tile = std::max(longest_tile, turn.view.numel);
    }
    const std::uint64_t longest = chunk_numel(numel, workers.thread_count());
    const std::uint64_t chunks = (longest_tile + longest - 1) / longest;  // of each tile; a shorter one has fewer
    std::atomic<std::uint64_t> bad{all_finite};
    workers.run(turns.size() * chunks, [&](std::size_t index) {
        const std::size_t at = index / chunks;
        const TileTurn& turn = turns[at];
        const std::uint64_t first = index % chunks * longest;
        if (first >= turn.view.numel) return;
        const Planes planes = planes_of(*update.format, turn.view);
        const std::uint64_t element = update_pieces({.update = &update,
                                                     .turn = &turn,
                                                     .planes = &planes,
                                                     .optimizer = update.optimizer,
                                                     .values = update.values,
                                                     .first = first,
                                                     .count = std::min(longest, turn.view.numel - first)});
        if (element != all_finite) lower(bad, at * longest_tile + element);
    });
    const std::uint64_t element = bad.load(std::memory_order_relaxed);
    if (element == all_finite) return std::nullopt;
    return TileElement{element / longest_tile, element % longest_tile};
}

void encode_initial(const StateFormat& format, const float* master, const TileView& tile,
                    const TilePieces& pieces) noexcept {
    std::memset(tile.states, 0, format.states_bytes(tile.numel));
    encode_first(format, master, planes_of(format, tile), pieces, 0, tile.numel);
}

void encode_into_zeros(const StateFormat& format, const float* master, const TileView& tile, const TilePieces& pieces,
                       Workers& workers) {
    const Planes planes = planes_of(format, tile);
    const std::uint64_t longest = chunk_numel(tile.numel, workers.thread_count());
    workers.run((tile.numel + longest - 1) / longest, [&](std::size_t chunk) {
        const std::uint64_t first = chunk * longest;
        encode_first(format, master, planes, pieces, first, std::min(longest, tile.numel - first));
    });
}

void decode_masters(const StateFormat& format, const TileView& tile, float* master) noexcept {
    const Planes planes = planes_of(format, tile);
    format.codec->decode_master(planes.weights.data, planes.master.data, master, tile.numel);
}

void decode_moment(const StateFormat& format, const TileView& tile, std::uint32_t moment, float* values) noexcept {
    PENSTOCK_CHECK(moment < format.moments, "moment {} of {}", moment, format.moments);
    const MomentPlanes planes = planes_of(format, tile).moments[moment];
    if (format.codec->decode_moment == nullptr)
        std::copy_n(as_fp32(planes.values, 0), tile.numel, values);
    else
        format.codec->decode_moment(format.kinds[moment], planes.values.data, planes.scales.data, values, tile.numel);
}

void encode_masters(const StateFormat& format, const float* master, const TileView& tile) noexcept {
    const Planes planes = planes_of(format, tile);
    format.codec->encode_master(master, planes.weights.data, planes.master.data, tile.numel);
}

void encode_moment(const StateFormat& format, const float* values, std::uint32_t moment,
                   const TileView& tile) noexcept {
    PENSTOCK_CHECK(moment < format.moments, "moment {} of {}", moment, format.moments);
    const MomentPlanes planes = planes_of(format, tile).moments[moment];
    if (format.codec->encode_moment == nullptr)
        std::copy_n(values, tile.numel, as_fp32(planes.values, 0));
    else
        format.codec->encode_moment(format.kinds[moment], values, planes.values.data, planes.scales.data, tile.numel);
}

}  // namespace penstock::zero
