#include "swap/store/verify.h"

#include "pinned_pool/region.h"
#include "swap/store/long_work.h"
#include "swap/store/tile_stream.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace penstock::store {
namespace {

constexpr std::uint32_t sampled_one_in = 16;
constexpr std::size_t max_messages = 100;

bool in_scope(const Layout& layout, VerifyScope scope, std::uint32_t index) {
    if (scope != VerifyScope::sample) return scope == VerifyScope::all;
    const TileId tile = layout.tile(index);
    const bool at_an_end = tile.tile == 0 || tile.tile + 1 == layout.tile_count(tile.object);
    return at_an_end || index % sampled_one_in == 0;
}

// By index, in their order on the devices.
std::vector<std::uint32_t> tiles_in_scope(const TensorStore& store, VerifyScope scope) {
    std::vector<std::uint32_t> tiles;
    for (std::uint32_t index = 0; index < store.layout().tile_count(); ++index) {
        if (store.written(store.layout().tile(index)) && in_scope(store.layout(), scope, index)) tiles.push_back(index);
    }
    return tiles;
}

// The second reading of tiles that were not right the first time, one after the other.
class SecondReading final : public LongWork {
   public:
    SecondReading(TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency);
    void start() { start_next(); }
    const std::vector<TileId>& damaged() const noexcept { return damaged_; }
    std::uint64_t unread_tiles() const noexcept { return unread_tiles_; }
    const std::vector<std::string>& messages() const noexcept { return messages_; }

    bool finished() const noexcept override { return operation_.idle(); }
    void stop() noexcept override { next_ = tiles_.size(); }
    void abandon() noexcept override { store_.abandon(); }
    std::uint64_t done_bytes() const noexcept override { return done_bytes_; }
    std::uint64_t total_bytes() const noexcept override { return total_bytes_; }

   private:
    struct Operation final : TileOperation {
        SecondReading* owner = nullptr;
        void tile_done() noexcept override { owner->tile_done(); }
    };

    void start_next();
    void tile_done() noexcept;

    TensorStore& store_;
    std::vector<std::uint32_t> tiles_;
    aio::Urgency urgency_;
    std::uint64_t total_bytes_ = 0;
    pool::Region memory_;
    Operation operation_;
    std::size_t next_ = 0;
    std::uint64_t done_bytes_ = 0;
    std::vector<TileId> damaged_;
    std::uint64_t unread_tiles_ = 0;
    std::vector<std::string> messages_;  // of the first ones
};

SecondReading::SecondReading(TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency)
    : store_(store), tiles_(std::move(tiles)), urgency_(urgency) {
    std::uint64_t longest = 0;
    for (const std::uint32_t index : tiles_) {
        const std::uint64_t bytes = store.extent_bytes(store.layout().tile(index));
        longest = std::max(longest, bytes);
        total_bytes_ += bytes;
    }
    memory_ = pool::Region(longest, 1, pool::Registration::none);
    operation_.owner = this;
}

void SecondReading::start_next() {
    if (next_ == tiles_.size()) return;
    const TileId tile = store_.layout().tile(tiles_[next_++]);
    store_.read_again(operation_, tile, {memory_.data(), memory_.bytes()}, urgency_);
}

void SecondReading::tile_done() noexcept {
    done_bytes_ += store_.extent_bytes(operation_.tile());
    if (operation_.error()) {
        damaged_.push_back(operation_.tile());
        if (operation_.error()->kind == StoreError::Kind::io) ++unread_tiles_;
        if (messages_.size() < max_messages) messages_.push_back(operation_.error()->message);
    }
    start_next();
}

// Returns the tiles that were not right.
std::vector<std::uint32_t> read_once(aio::Io& io, TensorStore& store, const VerifyOptions& options,
                                     VerifyReport& report) {
    auto tiles = std::make_unique<TileStream>(io, store, tiles_in_scope(store, options.scope), options.urgency);
    const auto stream = start_and_finish(io, std::move(tiles), options.progress);
    report.tiles = stream->tile_count();
    report.bytes = stream->total_bytes();
    return stream->doubtful();
}

void read_again(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, const VerifyOptions& options,
                VerifyReport& report) {
    auto reading = std::make_unique<SecondReading>(store, std::move(tiles), options.urgency);
    const std::uint64_t right_bytes = report.bytes - reading->total_bytes();
    const auto progress = [&](std::uint64_t done_bytes, std::uint64_t) {
        if (options.progress) options.progress(right_bytes + done_bytes, report.bytes);
    };
    const auto second = start_and_finish(io, std::move(reading), progress);
    report.damaged = second->damaged();
    report.damages = second->messages();
    report.unread_tiles = second->unread_tiles();
    report.damaged_tiles = report.damaged.size();
}

}  // namespace

VerifyReport verify(aio::Io& io, TensorStore& store, const VerifyOptions& options) {
    VerifyReport report;
    std::vector<std::uint32_t> doubtful = read_once(io, store, options, report);
    if (!doubtful.empty()) read_again(io, store, std::move(doubtful), options, report);
    return report;
}

}  // namespace penstock::store
