#include "zero_infinity/weights/write_in.h"

#include "aio/words/check.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <vector>

namespace penstock::zero {
namespace {

// Memory for one tile, and the way of values into it.
class TileChange {
   public:
    TileChange(const WriteInDeps& parts, const WriteIn& what, WeightSource& source)
        : parts_(parts), what_(what), source_(source), memory_(*parts.layout) {
        PENSTOCK_CHECK(!is_moment() || moment() < parts.layout->format().moments, "moment {} of {}", moment(),
                       parts.layout->format().moments);
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.tile_numel(tile);
        const auto stretches =
            wanted_stretches(layout, layout.partition().rank, Training::trainable, tile, numel, what_.wanted);
        if (stretches.empty()) return;
        const StateFormat& format = parts_.layout->format();
        const UnitObjects& objects = parts_.layout->objects(unit);
        const TileView view = memory_.view(numel);
        float* values = memory_.values().data();
        if (objects.weights && !is_moment()) move(parts_.read, {*objects.weights, tile}, view.weights);
        if (objects.states) move(parts_.read, {*objects.states, tile}, view.states);
        is_moment() ? decode_moment(format, view, moment(), values) : decode_masters(format, view, values);
        take(layout, stretches);
        is_moment() ? encode_moment(format, values, moment(), view) : encode_masters(format, values, view);
        if (objects.weights && !is_moment()) move(parts_.write, {*objects.weights, tile}, view.weights);
        if (objects.states) move(parts_.write, {*objects.states, tile}, view.states);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.frozen_tile_numel(tile);
        const auto stretches =
            wanted_stretches(layout, layout.partition().rank, Training::frozen, tile, numel, what_.wanted);
        if (stretches.empty() || what_.value != ParameterValue::weight) return;
        const store::TileId id{*parts_.layout->objects(unit).frozen, tile};
        const PlaneType type = layout.weight_type(Training::frozen, parts_.layout->format());
        std::byte* data = memory_.frozen();
        move(parts_.read, id, data);
        take(layout, stretches);
        for (const Stretch& stretch : stretches)
            encode_frozen(memory_.values().data() + stretch.offset, type, data + stretch.offset * bytes_of(type),
                          stretch.count);
        move(parts_.write, id, data);
    }

   private:
    bool is_moment() const { return what_.value >= ParameterValue::moment0; }
    std::uint32_t moment() const { return what_.value == ParameterValue::moment1 ? 1 : 0; }

    void take(const UnitLayout& layout, const std::vector<Stretch>& stretches) {
        for (const Stretch& stretch : stretches)
            source_.read({layout.spec(), layout.spec().parameters[stretch.parameter]}, stretch.first,
                         std::span(memory_.values()).subspan(stretch.offset, stretch.count));
    }

    template <typename Transfer>
    void move(const Transfer& transfer, store::TileId tile, std::byte* data) {
        memory_.move(transfer, tile, {data, parts_.layout->extent_bytes(tile)});
    }

    const WriteInDeps& parts_;
    const WriteIn& what_;
    WeightSource& source_;
    TileMemory memory_;
};

}  // namespace

void write_in(const WriteInDeps& parts, const WriteIn& what, WeightSource& source) {
    TileChange change(parts, what, source);
    for_each_tile(*parts.layout, change);
}

}  // namespace penstock::zero
