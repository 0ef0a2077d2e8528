#include "swap/verify.h"

#include "pinned_pool/region.h"
#include "swap/long_work.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock {
namespace {

constexpr std::uint64_t memory_bytes = 32ULL << 20;
constexpr std::uint64_t max_lanes = 256;  // more small reads at once than any device asks for
constexpr std::uint32_t sampled_one_in = 16;
constexpr std::size_t max_messages = 100;

bool in_scope(const Layout& layout, VerifyScope scope, std::uint32_t index) {
    if (scope != VerifyScope::sample) return scope == VerifyScope::all;
    const TileId tile = layout.tile(index);
    const bool at_an_end = tile.tile == 0 || tile.tile + 1 == layout.tile_count(tile.object);
    return at_an_end || index % sampled_one_in == 0;
}

std::uint64_t longest_extent(const TensorStore& store) {
    std::uint64_t longest = 0;
    for (std::uint32_t object = 0; object < store.layout().objects().size(); ++object) {
        longest = std::max(longest, store.extent_bytes({object, 0}));
    }
    return longest;
}

// Several lanes read tile after tile; the hash of one is taken while the others are with the device.
class Verification final : public LongWork {
   public:
    Verification(TensorStore& store, const VerifyOptions& options);
    void start();
    VerifyReport report();  // in the order of the tiles, whatever order the device answered in

    bool finished() const noexcept override { return in_flight_ == 0; }
    void stop() noexcept override { next_ = tiles_.size(); }
    void abandon() noexcept override { store_.abandon(); }
    std::uint64_t done_bytes() const noexcept override { return report_.bytes; }
    std::uint64_t total_bytes() const noexcept override { return total_bytes_; }

   private:
    struct Damage {
        std::uint32_t tile = 0;  // by index
        std::string message;
    };
    struct Lane final : TileOperation {
        Verification* owner = nullptr;
        std::span<std::byte> memory;
        void tile_done() noexcept override { owner->lane_done(*this); }
    };

    void lane_done(Lane& lane) noexcept;
    void start_next(Lane& lane);

    TensorStore& store_;
    Urgency urgency_;
    std::vector<std::uint32_t> tiles_;  // by index, in their order on the devices
    std::size_t next_ = 0;              // of tiles_
    std::uint64_t total_bytes_ = 0;
    Region memory_;
    std::deque<Lane> lanes_;
    std::size_t in_flight_ = 0;
    std::vector<Damage> damages_;
    VerifyReport report_;
};

Verification::Verification(TensorStore& store, const VerifyOptions& options)
    : store_(store), urgency_(options.urgency) {
    const Layout& layout = store.layout();
    for (std::uint32_t index = 0; index < layout.tile_count(); ++index) {
        const TileId tile = layout.tile(index);
        if (!store.written(tile) || !in_scope(layout, options.scope, index)) continue;
        tiles_.push_back(index);
        total_bytes_ += store.extent_bytes(tile);
    }
    if (tiles_.empty()) return;
    const std::uint64_t lane_bytes = longest_extent(store);
    const std::uint64_t wanted = std::clamp<std::uint64_t>(memory_bytes / lane_bytes, 2, max_lanes);
    const std::uint64_t lanes = std::min<std::uint64_t>(wanted, tiles_.size());
    memory_ = Region(lanes * lane_bytes, 1, Registration::none);
    for (std::uint64_t i = 0; i < lanes; ++i) {
        Lane& lane = lanes_.emplace_back();
        lane.owner = this;
        lane.memory = {memory_.data() + i * lane_bytes, lane_bytes};
    }
}

void Verification::start() {
    for (Lane& lane : lanes_) start_next(lane);
}

void Verification::start_next(Lane& lane) {
    if (next_ == tiles_.size()) return;
    ++in_flight_;
    store_.read(lane, store_.layout().tile(tiles_[next_++]), lane.memory, urgency_);
}

void Verification::lane_done(Lane& lane) noexcept {
    --in_flight_;
    ++report_.tiles;
    report_.bytes += store_.extent_bytes(lane.tile());
    if (lane.error()) {
        ++report_.damaged_tiles;
        damages_.push_back({store_.layout().tile_index(lane.tile()), lane.error()->message});
    }
    start_next(lane);
}

VerifyReport Verification::report() {
    std::sort(damages_.begin(), damages_.end(), [](const Damage& a, const Damage& b) { return a.tile < b.tile; });
    for (Damage& damage : damages_) {
        report_.damaged.push_back(store_.layout().tile(damage.tile));
        if (report_.damages.size() < max_messages) report_.damages.push_back(std::move(damage.message));
    }
    return report_;
}

}  // namespace

VerifyReport verify(Io& io, TensorStore& store, const VerifyOptions& options) {
    auto own = std::make_unique<Verification>(store, options);
    Verification& verification = *own;
    own->start();
    std::unique_ptr<LongWork> work = std::move(own);
    finish_work(io, work, options.progress, options.deadline);
    return verification.report();
}

}  // namespace penstock
