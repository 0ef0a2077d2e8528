#include "zero_infinity/weights/read_out.h"

#include "aio/words/check.h"
#include "swap/store/blocking.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace penstock::zero {
namespace {

// Memory for one tile, and the way of its values to the sink.
class TileValues {
   public:
    TileValues(const ReadOutDeps& parts, const ReadOut& what, WeightSink& sink)
        : parts_(parts),
          what_(what),
          sink_(sink),
          memory_(*parts.layout),
          stretches_(parts.gather ? parts.layout->partition().ranks : 1) {
        for (const ParameterValue value : what.values)
            PENSTOCK_CHECK(value < ParameterValue::moment0 || moment_of(value) < parts.layout->format().moments,
                           "moment {} of {}", moment_of(value), parts.layout->format().moments);
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const std::uint64_t numel = parts_.layout->unit(unit).tile_numel(tile);
        if (!holds_wanted(unit, Training::trainable, tile, numel)) return;
        const UnitObjects& objects = parts_.layout->objects(unit);
        const TileView view = memory_.view(numel);
        if (objects.weights && needs_weights()) read({*objects.weights, tile}, view.weights, unit, weights_);
        if (objects.states && needs_states()) read({*objects.states, tile}, view.states, unit, states_);
        for (std::size_t rank = 0; rank < stretches_.size(); ++rank) {
            put(weights_, rank, view.weights);
            put(states_, rank, view.states);
            for (const ParameterValue value : what_.values)
                give(unit, stretches_[rank], value, view, Training::trainable);
        }
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const std::uint64_t numel = parts_.layout->unit(unit).frozen_tile_numel(tile);
        if (!asks_for(ParameterValue::weight) || !holds_wanted(unit, Training::frozen, tile, numel)) return;
        const TileView view = memory_.view(numel);
        read({*parts_.layout->objects(unit).frozen, tile}, view.weights, unit, weights_);
        for (std::size_t rank = 0; rank < stretches_.size(); ++rank) {
            put(weights_, rank, view.weights);
            give(unit, stretches_[rank], ParameterValue::weight, view, Training::frozen);
        }
    }

   private:
    static std::uint32_t moment_of(ParameterValue value) { return value == ParameterValue::moment1 ? 1 : 0; }
    bool asks_for(ParameterValue value) const {
        return std::find(what_.values.begin(), what_.values.end(), value) != what_.values.end();
    }
    bool needs_weights() const {
        return asks_for(ParameterValue::weight) ||
               (parts_.layout->format().codec->master_needs_weights && asks_for(ParameterValue::master));
    }
    bool needs_states() const {
        const bool master = parts_.layout->format().codec->plane(PlaneOf::master) != nullptr;
        return asks_for(ParameterValue::moment0) || asks_for(ParameterValue::moment1) ||
               (master && asks_for(ParameterValue::master));
    }

    // One of the ranks whose tiles are given has something there. All ranks find the same.
    bool holds_wanted(std::uint32_t unit, Training training, std::uint32_t tile, std::uint64_t numel) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        for (std::size_t given = 0; given < stretches_.size(); ++given) {
            const auto rank = parts_.gather ? static_cast<std::uint32_t>(given) : layout.partition().rank;
            stretches_[given] = wanted_stretches(layout, rank, training, tile, numel, what_.wanted);
        }
        return std::ranges::any_of(stretches_, [](const auto& each) { return !each.empty(); });
    }

    void read(store::TileId tile, std::byte* data, std::uint32_t unit, std::vector<std::byte>& of_all) {
        const std::span<std::byte> extent(data, parts_.layout->extent_bytes(tile));
        memory_.move(parts_.read, tile, extent);
        if (!parts_.gather) return;
        of_all.resize(stretches_.size() * extent.size());
        parts_.gather(unit, extent, of_all);
    }

    void put(const std::vector<std::byte>& of_all, std::size_t rank, std::byte* data) const {
        const std::size_t bytes = of_all.size() / stretches_.size();
        if (bytes > 0) std::memcpy(data, of_all.data() + rank * bytes, bytes);
    }

    void give(std::uint32_t unit, const std::vector<Stretch>& stretches, ParameterValue value, const TileView& view,
              Training training) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const StateFormat& format = parts_.layout->format();
        float* decoded = memory_.values().data();
        const std::byte* data = reinterpret_cast<const std::byte*>(decoded);
        PlaneType type = PlaneType::fp32;
        if (value == ParameterValue::weight) {
            data = view.weights;
            type = layout.weight_type(training, format);
        } else if (value == ParameterValue::master) {
            decode_masters(format, view, decoded);
        } else {
            decode_moment(format, view, moment_of(value), decoded);
        }
        for (const Stretch& stretch : stretches)
            sink_.write({layout.spec(), layout.spec().parameters[stretch.parameter]},
                        {value, type, data + stretch.offset * bytes_of(type), stretch.first, stretch.count});
    }

    const ReadOutDeps& parts_;
    const ReadOut& what_;
    WeightSink& sink_;
    TileMemory memory_;
    std::vector<std::vector<Stretch>> stretches_;  // by rank whose tile is given
    std::vector<std::byte> weights_, states_;      // of all of them; empty where nothing is gathered
};

}  // namespace

ReadTile blocking_reads(aio::Io& io, store::TensorStore& store) {
    return [&io, &store](store::TileId tile, std::span<std::byte> memory) { read_blocking(io, store, tile, memory); };
}

void read_out(const ReadOutDeps& parts, const ReadOut& what, WeightSink& sink) {
    TileValues values(parts, what, sink);
    for_each_tile(*parts.layout, values);
}

void read_out_whole(const ModelLayout& layout, const WholeWeights& whole, const WantedParameters& wanted,
                    WeightSink& sink) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const UnitSpec& spec = layout.unit(unit).spec();
        for (std::uint32_t index = 0; index < spec.parameters.size(); ++index) {
            const ParameterSpec& parameter = spec.parameters[index];
            if (wanted && !wanted({spec, parameter})) continue;
            sink.write({spec, parameter}, {.value = ParameterValue::weight,
                                           .type = layout.unit(unit).weight_type(parameter.training, layout.format()),
                                           .data = whole({unit, index}),
                                           .numel = parameter.numel()});
        }
    }
}

}  // namespace penstock::zero
