// How a model's parameters become flat ranges, shards, tiles and objects of the store: pure arithmetic.
//
// A unit's trainable parameters are one flat range of elements, each parameter starting at a multiple of
// parameter_alignment; the range is padded to parameter_alignment × ranks and cut into equal shards over the ranks,
// and a shard into tiles: all of tile_numel but the last, so that tiles read one after the other lie without gaps.
// Example, 1 rank, tiles of 4096: a norm of 768 and a matrix of 100 × 100 start at 0 and 768, trainable_numel 10816,
// tiles of 4096, 4096 and 2624. Per unit the store holds
//   NAME.weights  what compute reads            (trainable)
//   NAME.states   what only the optimizer reads (trainable)
//   NAME.frozen   weights without gradient, state or rewrite
// (Flat partitioning as in ZeRO, Rajbhandari et al. 2020; tiles as the unit of transfer as in ZeRO-Infinity, 2021.)
#pragma once

#include "swap/format/layout.h"
#include "zero_infinity/codec/codec.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

enum class Training : std::uint8_t { trainable, frozen };

// What it means that no gradient comes to a trainable parameter in a step, in any of its passes.
enum class Unused : std::uint8_t {
    refused,  // a mistake: the step ends with an Error that names it
    allowed,  // e.g. an expert that no token was sent to: its gradient is zero, its moments and weight decay go on
    skipped,  // it stays as it is, as in torch.optim: no decay either, and its own count of steps stands still
};

struct ParameterSpec {
    std::string name;  // unique in its unit
    std::vector<std::int64_t> shape;
    Training training = Training::trainable;
    Unused unused = Unused::refused;
    std::uint64_t numel() const;  // 1 for an empty shape. Throws Error (usage) on a negative or overflowing one
};

// A parameter of another unit that a unit reads too (a tied head reads the embedding's weight), with a gradient of its
// own that is added to the owner's: indices into the model's units and the owner's parameters.
struct BorrowedSpec {
    std::uint32_t owner = 0;
    std::uint32_t parameter = 0;
};

// A parameter of a unit; behind the unit's own ones come those that it borrows (UnitSpec::borrowed).
struct ParameterId {
    std::uint32_t unit = 0;
    std::uint32_t index = 0;
};

struct UnitSpec {
    std::string name;  // unique in its model, e.g. "blocks.3"
    std::vector<ParameterSpec> parameters;
    std::vector<BorrowedSpec> borrowed;  // of units before this one
    // How its frozen parameters are stored, bf16, fp16, fp32 or u8 (bytes, given and told as 0 … 255); none: as the
    // codec stores weights.
    std::optional<PlaneType> frozen_type = {};
    bool resident = false;  // its weights stay in host memory, whatever the residency of the others
};

// Elements of a model's parameters, each counted where it is owned.
struct ParameterCount {
    std::uint64_t all = 0;
    std::uint64_t trainable = 0;
};
ParameterCount count_parameters(std::span<const UnitSpec> units);

inline constexpr std::uint64_t parameter_alignment = 64;  // elements: whole vectors of the widest kind for every plane
inline constexpr std::uint64_t tile_alignment = 4096;     // elements: so that tiles of weights are granules

struct Partition {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    bool operator==(const Partition&) const = default;
};

// Where one parameter lies in its unit's trainable or frozen range.
struct ParameterPlace {
    Training training = Training::trainable;
    std::uint64_t first = 0;  // element in the range
    std::uint64_t numel = 0;
};

class UnitLayout {
   public:
    // REQUIRES: tile_numel > 0 and a multiple of tile_alignment, rank < ranks. Throws Error (usage) on a unit without
    // a name, on repeated or empty parameters, on a type that frozen ones cannot have.
    UnitLayout(UnitSpec spec, Partition partition, std::uint64_t tile_numel);

    const UnitSpec& spec() const noexcept { return spec_; }
    Partition partition() const noexcept { return partition_; }
    // Of weights, as they are stored and as compute reads them.
    PlaneType weight_type(Training training, const StateFormat& format) const noexcept {
        return training == Training::frozen ? spec_.frozen_type.value_or(format.codec->weights) : format.codec->weights;
    }
    const ParameterPlace& place(std::size_t parameter) const { return places_.at(parameter); }

    std::uint64_t trainable_numel() const noexcept { return trainable_numel_; }  // padded, of all ranks
    std::uint64_t frozen_numel() const noexcept { return frozen_numel_; }        // padded, of all ranks
    std::uint64_t parameter_numel() const noexcept;                              // without padding
    std::uint64_t shard_numel() const noexcept;                                  // trainable, of this rank
    std::uint64_t shard_first() const noexcept;         // where this rank's shard begins in the trainable range
    std::uint64_t frozen_shard_numel() const noexcept;  // frozen, of this rank
    std::uint64_t frozen_shard_first() const noexcept;  // where it begins in the frozen range

    std::uint64_t tile_numel() const noexcept { return tile_numel_; }
    std::uint32_t tile_count() const noexcept;           // of this rank's trainable shard
    std::uint64_t tile_numel(std::uint32_t tile) const;  // elements of that tile; the last one is shorter
    std::uint32_t frozen_tile_count() const noexcept;
    std::uint64_t frozen_tile_numel(std::uint32_t tile) const;

    // The objects of this rank's shard in the order weights, states, frozen; absent ones (no trainable, no frozen
    // parameter, codec without a separate plane) are left out. A whole tile is padded to granules where the codec's
    // bytes do not give them: compact's states with tiles that are no multiple of 32768 elements.
    std::vector<store::ObjectSpec> objects(const StateFormat& format) const;

   private:
    UnitSpec spec_;
    Partition partition_;
    std::uint64_t tile_numel_;
    std::vector<ParameterPlace> places_;
    std::uint64_t trainable_numel_ = 0;
    std::uint64_t frozen_numel_ = 0;
};

}  // namespace penstock::zero
