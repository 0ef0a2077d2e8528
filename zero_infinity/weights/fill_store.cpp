#include "zero_infinity/weights/fill_store.h"

#include "swap/store/blocking.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <algorithm>

namespace penstock::zero {
namespace {

// Memory for one tile, and the way of its planes into the store.
class TileWriter {
   public:
    TileWriter(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress)
        : parts_(parts), source_(source), progress_(progress), memory_(*parts.layout) {
        for (const store::ObjectSpec& object : parts.store->layout().objects()) total_bytes_ += object.bytes;
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.tile_numel(tile);
        read(layout, Training::trainable, tile, numel);
        const TileView view = memory_.view(numel);
        encode_initial(parts_.layout->format(), memory_.values().data(), view, parts_.layout->pieces({unit, tile}));
        if (parts_.layout->objects(unit).weights) write({*parts_.layout->objects(unit).weights, tile}, view.weights);
        if (parts_.layout->objects(unit).states) write({*parts_.layout->objects(unit).states, tile}, view.states);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.frozen_tile_numel(tile);
        read(layout, Training::frozen, tile, numel);
        const StateFormat& format = parts_.layout->format();
        const float* values = memory_.values().data();
        const TileView view = memory_.view(numel);
        if (const auto type = layout.spec().frozen_type)
            encode_frozen(values, *type, view.weights, numel);
        else  // the master's other half has no place to go
            format.codec->encode_master(values, view.weights, view.states, numel);
        write({*parts_.layout->objects(unit).frozen, tile}, view.weights);
    }

   private:
    void read(const UnitLayout& layout, Training training, std::uint32_t tile, std::uint64_t numel) {
        std::fill_n(memory_.values().begin(), numel, 0.0F);  // padding
        for_each_stretch(layout, training, tile, numel, [&](const Stretch& stretch) {
            source_.read({layout.spec(), layout.spec().parameters[stretch.parameter]}, stretch.first,
                         std::span(memory_.values()).subspan(stretch.offset, stretch.count));
        });
    }

    void write(store::TileId tile, std::byte* data) {
        write_blocking(*parts_.io, *parts_.store, tile, {data, parts_.store->extent_bytes(tile)});
        done_bytes_ += parts_.store->layout().tile_bytes(tile);
        if (progress_) progress_(done_bytes_, total_bytes_);
    }

    const FillDeps& parts_;
    WeightSource& source_;
    const store::WorkProgress& progress_;
    TileMemory memory_;
    std::uint64_t done_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
};

}  // namespace

void fill_store(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress) {
    TileWriter writer(parts, source, progress);
    for_each_tile(*parts.layout, writer);
}

}  // namespace penstock::zero
