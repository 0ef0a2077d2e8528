#include "tests/zero_infinity/engine/snapshot.h"

#include "aio/io.h"
#include "pinned_pool/budget.h"
#include "pinned_pool/region.h"
#include "swap/store/blocking.h"
#include "swap/store/tensor_store.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/layout/unit.h"
#include "zero_infinity/optimizer/update.h"

#include <algorithm>
#include <cstring>

namespace penstock::testing {

Snapshot read_snapshot(const std::vector<std::string>& paths, const std::string& job) {
    std::vector<store::StoreDirectory> directories;
    for (const std::string& path : paths) directories.emplace_back(path, job);
    std::vector<store::StoreDirectory*> pointers;
    for (store::StoreDirectory& directory : directories) pointers.push_back(&directory);
    aio::Io io(aio::open_backend(directories.front().lock_fd(), {}).backend, {});
    const auto store = store::TensorStore::open(io, pointers);
    Snapshot snapshot;
    snapshot.client = store->client();
    snapshot.generation = store->generation().value();
    const auto& objects = store->layout().objects();
    for (std::uint32_t object = 0; object < objects.size(); ++object) {
        std::vector<std::byte>& bytes = snapshot.objects[objects[object].name];
        for (std::uint32_t tile = 0; tile < store->layout().tile_count(object); ++tile) {
            const store::TileId id{object, tile};
            pool::Region memory(store->extent_bytes(id), 1, pool::Registration::none);
            read_blocking(io, *store, id, {memory.data(), store->extent_bytes(id)});
            bytes.insert(bytes.end(), memory.data(), memory.data() + store->layout().tile_bytes(id));
        }
    }
    return snapshot;
}

namespace {

// One unit's masters and moments as flat ranges.
ReferenceState flat_states(const Snapshot& snapshot, const zero::UnitLayout& layout, const zero::StateFormat& format) {
    ReferenceState flat;
    if (layout.trainable_numel() == 0) return flat;
    std::vector<std::byte> weights = snapshot.objects.at(layout.spec().name + ".weights");
    // SGD alone with a codec whose weights are the masters keeps no states.
    const auto stored = snapshot.objects.find(layout.spec().name + ".states");
    std::vector<std::byte> states = stored == snapshot.objects.end() ? std::vector<std::byte>() : stored->second;
    for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile) {
        const std::uint64_t first = tile * layout.tile_numel();
        const std::uint64_t numel = layout.tile_numel(tile);
        // Whole tiles have the same stride in the object, padding included.
        std::byte* tile_states = states.data() + tile * pool::whole_granules(format.states_bytes(layout.tile_numel()));
        const zero::TileView view{weights.data() + first * format.weights_bytes(), tile_states, numel};
        std::vector<float> values(numel);
        decode_masters(format, view, values.data());
        flat.master.insert(flat.master.end(), values.begin(), values.end());
        for (std::uint32_t moment = 0; moment < format.moments; ++moment) {
            std::vector<float>& all = moment == 0 ? flat.m : flat.v;
            decode_moment(format, view, moment, values.data());
            all.insert(all.end(), values.begin(), values.end());
        }
    }
    return flat;
}

}  // namespace

std::map<std::string, ReferenceState> decode_states(const Snapshot& snapshot, const engine::Model& model,
                                                    const std::string& codec, std::uint64_t tile_numel,
                                                    std::uint32_t moments) {
    const zero::StateFormat format{zero::find_codec(codec), moments};
    std::map<std::string, ReferenceState> decoded;
    for (const auto& unit : model.units()) {
        const zero::UnitLayout layout(unit->spec(), {}, tile_numel);
        const ReferenceState flat = flat_states(snapshot, layout, format);
        for (std::size_t index = 0; index < unit->parameters().size(); ++index) {
            const zero::ParameterPlace& place = layout.place(index);
            if (place.training == zero::Training::frozen) continue;
            const auto cut = [&](const std::vector<float>& values) {
                if (values.empty()) return values;  // a moment that is not kept
                const auto first = values.begin() + static_cast<std::ptrdiff_t>(place.first);
                return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(place.numel));
            };
            decoded[unit->name() + "/" + unit->parameters()[index]->spec().name] = {cut(flat.master), cut(flat.m),
                                                                                    cut(flat.v)};
        }
    }
    return decoded;
}

}  // namespace penstock::testing
