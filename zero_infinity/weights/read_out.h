// Reads a model out of a store by the names of its parameters, tile by tile, without the model in memory: for exports,
// for comparing, for a client that asks for what it trains.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace penstock::zero {

// What a store holds of a parameter. A frozen one has its weight only.
enum class ParameterValue : std::uint8_t {
    weight,   // what compute reads, in the type in which it is stored
    master,   // what the optimizer updates, fp32
    moment0,  // the optimizer's, fp32; decoded where the codec is lossy
    moment1,
};

// Elements [first, first + numel) of a value of one parameter.
struct ValueStretch {
    ParameterValue value = ParameterValue::weight;
    PlaneType type = PlaneType::fp32;
    const std::byte* data = nullptr;  // aligned for the type; valid during the call
    std::uint64_t first = 0;
    std::uint64_t numel = 0;
};

// Where values go. Called on the thread that reads out; may block. What it throws ends the reading and reaches the
// caller.
class WeightSink {
   public:
    virtual ~WeightSink() = default;
    // Unit by unit and tile by tile: of each value of a parameter from lower elements to higher ones, each once; with
    // several ranks so of each rank's part, and the parts by turns. Values of one parameter come side by side, and
    // small parameters one after the other.
    virtual void write(const NamedParameter& parameter, const ValueStretch& stretch) = 0;
};

// Which values of which parameters. Only objects that hold something of them are read, and of those only their tiles.
struct ReadOut {
    std::vector<ParameterValue> values;
    WantedParameters wanted;
};

// Reads one tile into memory of its extent and returns when it is there. Throws Error (storage); if
// the device is stuck it may still write into the memory, which is therefore never given back after a failed read.
using ReadTile = std::function<void(store::TileId tile, std::span<std::byte> memory)>;
ReadTile blocking_reads(aio::Io& io, store::TensorStore& store);

// What each rank has read of its tile of that unit, in their order: all.size() is ranks × mine.size().
using GatherTiles = std::function<void(std::uint32_t unit, std::span<const std::byte> mine, std::span<std::byte> all)>;

struct ReadOutDeps {
    const ModelLayout* layout = nullptr;  // the store has its objects
    ReadTile read;
    GatherTiles gather = {};  // empty: with several ranks the sink gets this one's shard
};

// What is read is the newest generation that is committed. Where it is gathered all ranks call it at once, and each
// sink gets the whole. Takes memory for one tile as it is stored, of each rank, and for one in fp32. REQUIRES: nothing
// was written since the last commit (a session is settled); no moment is asked for that the format does not keep.
// Throws Error (storage), and what the sink throws.
void read_out(const ReadOutDeps& parts, const ReadOut& what, WeightSink& sink);

// The weights that this rank has whole in memory, each parameter in one stretch: nobody else is asked. `whole`: where
// one is, until the next call.
using WholeWeights = std::function<const std::byte*(ParameterId parameter)>;
void read_out_whole(const ModelLayout& layout, const WholeWeights& whole, const WantedParameters& wanted,
                    WeightSink& sink);

}  // namespace penstock::zero
