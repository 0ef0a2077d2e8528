// The update of one tile: decode, unscale and clip, optimizer, finiteness check, encode, in one pass over the tile:
// in registers where the optimizer has a kernel for the codec, otherwise in blocks that stay in the first cache.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/optimizer/optimizer.h"
#include "zero_infinity/optimizer/optimizer_piece.h"
#include "zero_infinity/threads/workers.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock::zero {

// One tile of a unit's shard in host memory, aligned to 64 bytes. Updated in place. `weights` is not read when the
// codec's master_needs_weights is false, but always written; `states` holds the planes as StateFormat places them for
// `numel`.
struct TileView {
    std::byte* weights = nullptr;
    std::byte* states = nullptr;
    std::uint64_t numel = 0;
};

struct TileUpdate {
    const StateFormat* format = nullptr;
    const Optimizer* optimizer = nullptr;  // of all elements when there are no pieces
    StepValues values;
    float gradient_scale = 1;  // 1 / loss scale × clip factor; each gradient is multiplied by it in fp32, rounded once
    TilePieces pieces;         // who updates which elements of the tile; the others' stay as they are
};

// The format of an optimizer's tiles under a codec.
StateFormat state_format(const Codec& codec, const Optimizer& optimizer) noexcept;

// Returns the first element (in the tile) whose new master or moments are not finite, or larger than the codec's
// moment_limit; the tile's contents are then undefined. (An overflowing second moment leaves the master finite but
// would stop its parameter for ever, silently.)
// Cuts the tile into blocks over the workers; allocates nothing. The result does not depend on their number.
// REQUIRES: as many gradients as elements; update.format is state_format of the optimizers.
std::optional<std::uint64_t> update_tile(const TileUpdate& update, const TileView& tile, const GradientView& gradient,
                                         Workers& workers);

// One of several tiles that are updated with the same values.
struct TileTurn {
    TileView view;
    GradientView gradient;
    TilePieces pieces;  // as TileUpdate's
};
struct TileElement {
    std::size_t turn = 0;       // whose tile it is of
    std::uint64_t element = 0;  // in that tile
};
// As update_tile() of each, with one call of the workers: returns the first such element of the first such tile, and
// the contents of all are then undefined. The update's own pieces are of none of them.
std::optional<TileElement> update_tiles(const TileUpdate& update, std::span<const TileTurn> turns, Workers& workers);

// Fills a tile with initial masters: weights and master plane from `master` (numel elements); each moment is what its
// optimizer begins with, zero without pieces.
void encode_initial(const StateFormat& format, const float* master, const TileView& tile,
                    const TilePieces& pieces = {}) noexcept;
// The same where the states are zero bytes already, by the workers.
void encode_into_zeros(const StateFormat& format, const float* master, const TileView& tile, const TilePieces& pieces,
                       Workers& workers);
// The fp32 masters of a tile, and one of its moments: for export, tests and plain inspection; and back: weights and
// master plane, or the moment's planes, are written, all else stays.
void decode_masters(const StateFormat& format, const TileView& tile, float* master) noexcept;
void decode_moment(const StateFormat& format, const TileView& tile, std::uint32_t moment, float* values) noexcept;
void encode_masters(const StateFormat& format, const float* master, const TileView& tile) noexcept;
void encode_moment(const StateFormat& format, const float* values, std::uint32_t moment, const TileView& tile) noexcept;

}  // namespace penstock::zero
