#include "zero_infinity/engine/initialise.h"

#include "pinned_pool/region.h"
#include "swap/blocking.h"
#include "zero_infinity/unit_store.h"
#include "zero_infinity/update.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

#include <algorithm>

namespace penstock {
namespace {

// One unit's ranges in fp32, padding zero.
struct Masters {
    std::vector<float> trainable;
    std::vector<float> frozen;
};

Masters draw(const Unit& unit, const UnitLayout& layout, std::uint64_t seed) {
    Masters masters{std::vector<float>(layout.trainable_numel()), std::vector<float>(layout.frozen_numel())};
    for (std::size_t index = 0; index < unit.parameters().size(); ++index) {
        const ParameterPlace& place = layout.place(index);
        std::vector<float>& range = place.training == Training::trainable ? masters.trainable : masters.frozen;
        draw_initial(*unit.parameters()[index], unit.name(), seed, range.data() + place.first);
    }
    return masters;
}

// Memory for one tile, and the way of its planes into the store.
class TileWriter {
   public:
    TileWriter(Io& io, TensorStore& store, const StateFormat& format, std::uint64_t tile_numel,
               std::chrono::seconds deadline, const ProgressReport& progress)
        : io_(&io),
          store_(&store),
          format_(&format),
          deadline_(deadline),
          progress_(&progress),
          weights_bytes_(whole_granules(tile_numel * format.weights_bytes())),
          memory_(weights_bytes_ + whole_granules(format.states_bytes(tile_numel)), 1, Registration::none) {
        for (const ObjectSpec& object : store.layout().objects()) total_bytes_ += object.bytes;
    }

    void trainable(const UnitObjects& objects, std::uint32_t tile, const float* master, std::uint64_t numel,
                   const TilePieces& pieces) {
        const TileView view{memory_.data(), memory_.data() + weights_bytes_, numel};
        encode_initial(*format_, master, view, pieces);
        if (objects.weights) write({*objects.weights, tile}, view.weights);
        if (objects.states) write({*objects.states, tile}, view.states);
    }

    void frozen(std::uint32_t object, std::uint32_t tile, const float* values, std::uint64_t numel) {
        std::byte* scratch = memory_.data() + weights_bytes_;  // the master's other half has no place to go
        format_->codec->encode_master(values, memory_.data(), scratch, numel);
        write({object, tile}, memory_.data());
    }

   private:
    void write(TileId tile, std::byte* data) {
        write_blocking(*io_, *store_, tile, {data, store_->extent_bytes(tile)}, deadline_);
        done_bytes_ += store_->layout().tile_bytes(tile);
        if (*progress_) (*progress_)(done_bytes_, total_bytes_);
    }

    Io* io_;
    TensorStore* store_;
    const StateFormat* format_;
    std::chrono::seconds deadline_;
    const ProgressReport* progress_;
    std::uint64_t weights_bytes_;
    Region memory_;
    std::uint64_t done_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
};

}  // namespace

void draw_initial(const Parameter& parameter, const std::string& unit, std::uint64_t seed, float* values) {
    const ParameterSpec& spec = parameter.spec();
    const std::string identity = unit + "/" + spec.name;
    at::Tensor tensor = at::from_blob(values, spec.shape, at::kFloat);
    switch (parameter.initial().kind) {
        case Initial::Kind::zeros:
            tensor.zero_();
            break;
        case Initial::Kind::ones:
            tensor.fill_(1);
            break;
        case Initial::Kind::normal: {
            const std::uint64_t own_seed = XXH3_64bits_withSeed(identity.data(), identity.size(), seed);
            tensor.normal_(0, parameter.initial().deviation, at::make_generator<at::CPUGeneratorImpl>(own_seed));
            break;
        }
    }
}

void initialise(Io& io, TensorStore& store, const Model& model, const std::vector<UnitLayout>& layouts,
                const StateFormat& format, const std::vector<std::vector<OptimizerPiece>>& pieces, std::uint64_t seed,
                std::chrono::seconds deadline, const ProgressReport& progress) {
    const std::vector<UnitObjects> objects = find_objects(store, layouts, format);
    std::uint64_t largest_tile = 1;
    for (const UnitLayout& layout : layouts)
        largest_tile = std::max(
            largest_tile, std::min(layout.tile_numel(), std::max(layout.trainable_numel(), layout.frozen_numel())));
    TileWriter writer(io, store, format, largest_tile, deadline, progress);
    for (std::size_t unit = 0; unit < layouts.size(); ++unit) {
        const UnitLayout& layout = layouts[unit];
        const Masters masters = draw(*model.units()[unit], layout, seed);
        for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile) {
            const std::uint64_t first = tile * layout.tile_numel();
            writer.trainable(objects[unit], tile, masters.trainable.data() + first, layout.tile_numel(tile),
                             {pieces[unit], first});
        }
        for (std::uint32_t tile = 0; tile < layout.frozen_tile_count(); ++tile) {
            const std::uint64_t first = tile * layout.tile_numel();
            writer.frozen(*objects[unit].frozen, tile, masters.frozen.data() + first,
                          std::min(layout.tile_numel(), layout.frozen_numel() - first));
        }
    }
}

}  // namespace penstock
