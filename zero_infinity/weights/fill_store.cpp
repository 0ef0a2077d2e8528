#include "zero_infinity/weights/fill_store.h"

#include "swap/store/tiles_in_flight.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace penstock::zero {
namespace {

constexpr std::uint64_t memory_max_bytes = 64U << 20;  // of tiles on their way, but two at least

// Memory for one tile and the writes from it.
class TileOnItsWay {
   public:
    explicit TileOnItsWay(const FillDeps& parts)
        : memory_(std::make_unique<TileMemory>(*parts.layout)), writes_(*parts.io, *parts.store, 2) {}
    ~TileOnItsWay() {
        if (!writes_.end()) static_cast<void>(memory_.release());  // a stuck device may still be at it
    }

    TileMemory& memory() noexcept { return *memory_; }
    void write(store::TileId tile, std::span<std::byte> extent) { writes_.write(tile, extent); }
    void finish() { writes_.finish(); }

   private:
    std::unique_ptr<TileMemory> memory_;
    store::TilesInFlight writes_;
};

// Brings one tile after the other into the store: while some are written the next one is made.
class TileWriter {
   public:
    TileWriter(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress)
        : parts_(parts), source_(source), progress_(progress) {
        for (const store::ObjectSpec& object : parts.store->layout().objects()) total_bytes_ += object.bytes;
        const std::uint64_t each = TileMemory::bytes_for(*parts.layout);
        const std::uint64_t count = std::clamp<std::uint64_t>(memory_max_bytes / each, 2, 8);
        for (std::uint64_t index = 0; index < count; ++index) tiles_.push_back(std::make_unique<TileOnItsWay>(parts));
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.tile_numel(tile);
        TileMemory& memory = next();
        read(layout, Training::trainable, tile, numel, memory);
        const TileView view = memory.view(numel);
        encode_initial(parts_.layout->format(), memory.values().data(), view, parts_.layout->pieces({unit, tile}));
        if (parts_.layout->objects(unit).weights) write({*parts_.layout->objects(unit).weights, tile}, view.weights);
        if (parts_.layout->objects(unit).states) write({*parts_.layout->objects(unit).states, tile}, view.states);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.frozen_tile_numel(tile);
        TileMemory& memory = next();
        read(layout, Training::frozen, tile, numel, memory);
        const StateFormat& format = parts_.layout->format();
        const float* values = memory.values().data();
        const TileView view = memory.view(numel);
        if (const auto type = layout.spec().frozen_type)
            encode_frozen(values, *type, view.weights, numel);
        else  // the master's other half has no place to go
            format.codec->encode_master(values, view.weights, view.states, numel);
        write({*parts_.layout->objects(unit).frozen, tile}, view.weights);
    }

    void finish() {
        for (const std::unique_ptr<TileOnItsWay>& tile : tiles_) tile->finish();
    }

   private:
    // Whose writes have ended.
    TileMemory& next() {
        current_ = (current_ + 1) % tiles_.size();
        tiles_[current_]->finish();
        return tiles_[current_]->memory();
    }

    void read(const UnitLayout& layout, Training training, std::uint32_t tile, std::uint64_t numel,
              TileMemory& memory) {
        std::fill_n(memory.values().begin(), numel, 0.0F);  // padding
        for_each_stretch(layout, training, tile, numel, [&](const Stretch& stretch) {
            source_.read({layout.spec(), layout.spec().parameters[stretch.parameter]}, stretch.first,
                         std::span(memory.values()).subspan(stretch.offset, stretch.count));
        });
    }

    void write(store::TileId tile, std::byte* data) {
        tiles_[current_]->write(tile, {data, parts_.store->extent_bytes(tile)});
        done_bytes_ += parts_.store->layout().tile_bytes(tile);
        if (progress_) progress_(done_bytes_, total_bytes_);
    }

    const FillDeps& parts_;
    WeightSource& source_;
    const store::WorkProgress& progress_;
    std::vector<std::unique_ptr<TileOnItsWay>> tiles_;
    std::size_t current_ = 0;
    std::uint64_t done_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
};

}  // namespace

void fill_store(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress) {
    TileWriter writer(parts, source, progress);
    for_each_tile(*parts.layout, writer);
    writer.finish();
}

}  // namespace penstock::zero
