#include "zero_infinity/weights/fill_store.h"

#include "swap/store/tiles_in_flight.h"
#include "zero_infinity/weights/stretches.h"
#include "zero_infinity/weights/tile_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {
namespace {

constexpr std::uint64_t memory_max_bytes = 64U << 20;  // of tiles on their way, but two at least

std::uint64_t bytes_of(std::span<const store::ObjectSpec> objects) {
    std::uint64_t bytes = 0;
    for (const store::ObjectSpec& object : objects) bytes += object.bytes;
    return bytes;
}

// The first `numel` values of a tile's; padding is zero.
void read_values(WeightSource& source, const UnitLayout& layout, Training training, std::uint32_t tile,
                 std::uint64_t numel, std::span<float> values) {
    std::fill_n(values.begin(), numel, 0.0F);
    for_each_stretch(layout, layout.partition().rank, training, tile, numel, [&](const Stretch& stretch) {
        source.read({layout.spec(), layout.spec().parameters[stretch.parameter]}, stretch.first,
                    values.subspan(stretch.offset, stretch.count));
    });
}

// `to.states`: memory that is written, too, where a master has another half, which has no place to go.
void encode_as_frozen(const UnitLayout& layout, const StateFormat& format, const float* values, const TileView& to) {
    if (const auto type = layout.spec().frozen_type)
        encode_frozen(values, *type, to.weights, to.numel);
    else
        format.codec->encode_master(values, to.weights, to.states, to.numel);
}

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
        : parts_(parts), source_(source), progress_(progress), total_bytes_(bytes_of(parts.store->layout().objects())) {
        const std::uint64_t each = TileMemory::bytes_for(*parts.layout);
        const std::uint64_t count = std::clamp<std::uint64_t>(memory_max_bytes / each, 2, 8);
        for (std::uint64_t index = 0; index < count; ++index) tiles_.push_back(std::make_unique<TileOnItsWay>(parts));
    }

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.tile_numel(tile);
        TileMemory& memory = next();
        read_values(source_, layout, Training::trainable, tile, numel, memory.values());
        const TileView view = memory.view(numel);
        encode_initial(parts_.layout->format(), memory.values().data(), view, parts_.layout->pieces({unit, tile}));
        if (parts_.layout->objects(unit).weights) write({*parts_.layout->objects(unit).weights, tile}, view.weights);
        if (parts_.layout->objects(unit).states) write({*parts_.layout->objects(unit).states, tile}, view.states);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& layout = parts_.layout->unit(unit);
        const std::uint64_t numel = layout.frozen_tile_numel(tile);
        TileMemory& memory = next();
        read_values(source_, layout, Training::frozen, tile, numel, memory.values());
        const TileView view = memory.view(numel);
        encode_as_frozen(layout, parts_.layout->format(), memory.values().data(), view);
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
    std::uint64_t total_bytes_;
};

// Makes one tile after the other where it is to lie.
class TileMaker {
   public:
    TileMaker(const ModelLayout& layout, const TilePlace& place, WeightSource& source, unsigned threads,
              const store::WorkProgress& progress)
        : layout_(layout),
          place_(place),
          source_(source),
          progress_(progress),
          workers_(threads),
          aside_(layout),
          total_bytes_(bytes_of(layout.objects())) {}

    void trainable(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& of = layout_.unit(unit);
        const std::uint64_t numel = of.tile_numel(tile);
        read_values(source_, of, Training::trainable, tile, numel, aside_.values());
        const UnitObjects& objects = layout_.objects(unit);
        TileView to = aside_.view(numel);
        if (objects.weights) to.weights = place_({*objects.weights, tile});
        if (objects.states) to.states = place_({*objects.states, tile});
        encode_into_zeros(layout_.format(), aside_.values().data(), to, layout_.pieces({unit, tile}), workers_);
        tell(objects.weights, tile);
        tell(objects.states, tile);
    }

    void frozen(std::uint32_t unit, std::uint32_t tile) {
        const UnitLayout& of = layout_.unit(unit);
        const std::uint64_t numel = of.frozen_tile_numel(tile);
        read_values(source_, of, Training::frozen, tile, numel, aside_.values());
        TileView to = aside_.view(numel);
        to.weights = place_({*layout_.objects(unit).frozen, tile});
        encode_as_frozen(of, layout_.format(), aside_.values().data(), to);
        tell(layout_.objects(unit).frozen, tile);
    }

   private:
    void tell(std::optional<std::uint32_t> object, std::uint32_t tile) {
        if (!object) return;
        const store::ObjectSpec& spec = layout_.objects()[*object];
        done_bytes_ += std::min(spec.tile_bytes, spec.bytes - tile * spec.tile_bytes);
        if (progress_) progress_(done_bytes_, total_bytes_);
    }

    const ModelLayout& layout_;
    const TilePlace& place_;
    WeightSource& source_;
    const store::WorkProgress& progress_;
    Workers workers_;
    TileMemory aside_;  // for values, and for what has no place
    std::uint64_t done_bytes_ = 0;
    std::uint64_t total_bytes_;
};

}  // namespace

void fill_memory(const ModelLayout& layout, const TilePlace& place, WeightSource& source, unsigned threads,
                 const store::WorkProgress& progress) {
    TileMaker maker(layout, place, source, threads, progress);
    for_each_tile(layout, maker);
}

void fill_store(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress) {
    TileWriter writer(parts, source, progress);
    for_each_tile(*parts.layout, writer);
    writer.finish();
}

}  // namespace penstock::zero
