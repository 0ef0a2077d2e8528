#include "zero_infinity/weights/read_out.h"

#include "aio/words/check.h"
#include "swap/store/blocking.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <algorithm>

namespace penstock::zero {
namespace {

// Memory for one tile, and the way of its values to the sink.
class TileValues {
   public:
    TileValues(const ReadOutDeps& parts, const ReadOut& what, WeightSink& sink)
        : parts_(parts), what_(what), sink_(sink), memory_(*parts.layout) {
        for (const ParameterValue value : what.values)
            PENSTOCK_CHECK(value < ParameterValue::moment0 || moment_of(value) < parts.layout->format().moments,
                           "moment {} of {}", moment_of(value), parts.layout->format().moments);
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.tile_numel(tile);
        const auto stretches = wanted_stretches(layout, Training::trainable, tile, numel, what_.wanted);
        if (stretches.empty()) return;
        const TileView view = memory_.view(numel);
        if (parts_.layout->objects(unit).weights && needs_weights())
            read({*parts_.layout->objects(unit).weights, tile}, view.weights);
        if (parts_.layout->objects(unit).states && needs_states())
            read({*parts_.layout->objects(unit).states, tile}, view.states);
        for (const ParameterValue value : what_.values) give(layout, stretches, value, view, Training::trainable);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.frozen_tile_numel(tile);
        const auto stretches = wanted_stretches(layout, Training::frozen, tile, numel, what_.wanted);
        if (stretches.empty() || !asks_for(ParameterValue::weight)) return;
        const TileView view = memory_.view(numel);
        read({*parts_.layout->objects(unit).frozen, tile}, view.weights);
        give(layout, stretches, ParameterValue::weight, view, Training::frozen);
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

    void read(store::TileId tile, std::byte* data) {
        memory_.move(parts_.read, tile, {data, parts_.layout->extent_bytes(tile)});
    }

    void give(const UnitLayout& layout, const std::vector<Stretch>& stretches, ParameterValue value,
              const TileView& view, Training training) {
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
};

}  // namespace

ReadTile blocking_reads(aio::Io& io, store::TensorStore& store) {
    return [&io, &store](store::TileId tile, std::span<std::byte> memory) { read_blocking(io, store, tile, memory); };
}

void read_out(const ReadOutDeps& parts, const ReadOut& what, WeightSink& sink) {
    TileValues values(parts, what, sink);
    for_each_tile(*parts.layout, values);
}

}  // namespace penstock::zero
