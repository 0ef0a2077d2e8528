#include "swap/store/verify.h"

#include "aio/words/io_error.h"
#include "swap/store/long_work.h"
#include "swap/store/tile_stream.h"

#include <algorithm>
#include <memory>
#include <optional>
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

// Which tiles were not right, found where nothing may throw.
class FirstReading final : public TileStreamListener {
   public:
    explicit FirstReading(std::size_t tiles) { doubtful_.reserve(tiles); }
    void tile_checked(std::uint32_t tile, bool right, const std::optional<aio::IoError>&) noexcept override {
        if (!right) doubtful_.push_back(tile);
    }
    std::vector<std::uint32_t>& doubtful() noexcept { return doubtful_; }

   private:
    std::vector<std::uint32_t> doubtful_;
};

// The second reading, of tiles that were not right the first time: in parts as well, for a tile may be longer than any
// memory, and nobody vouches for what a manifest says of it.
class SecondReading final : public LongWork, private TileStreamListener {
   public:
    SecondReading(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency);
    void start() { stream_.start(); }
    void take(VerifyReport& report);

    bool finished() const noexcept override { return stream_.finished(); }
    void stop() noexcept override { stream_.stop(); }
    void abandon() noexcept override { stream_.abandon(); }
    std::uint64_t done_bytes() const noexcept override { return done_bytes_; }
    std::uint64_t total_bytes() const noexcept override { return stream_.total_bytes(); }

   private:
    void tile_checked(std::uint32_t index, bool right, const std::optional<aio::IoError>& error) noexcept override;

    TensorStore& store_;
    std::vector<TileId> damaged_;
    std::vector<std::string> messages_;  // of the first ones
    std::uint64_t unread_tiles_ = 0;
    std::uint64_t done_bytes_ = 0;
    TileStream stream_;
};

SecondReading::SecondReading(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency)
    : store_(store), stream_(io, store, std::move(tiles), urgency, *this) {
    damaged_.reserve(stream_.tile_count());
    messages_.reserve(std::min(stream_.tile_count(), max_messages));
}

void SecondReading::tile_checked(std::uint32_t index, bool right, const std::optional<aio::IoError>& error) noexcept {
    const TileId tile = store_.layout().tile(index);
    done_bytes_ += store_.extent_bytes(tile);
    StoreError problem = store_.second_reading(tile, right, error);
    if (right) return;
    damaged_.push_back(tile);
    if (problem.kind != StoreError::Kind::damaged) ++unread_tiles_;
    if (messages_.size() < max_messages) messages_.push_back(std::move(problem.message));
}

void SecondReading::take(VerifyReport& report) {
    report.damaged_tiles = damaged_.size();
    report.unread_tiles = unread_tiles_;
    report.damaged = std::move(damaged_);
    report.damages = std::move(messages_);
}

// Returns the tiles that were not right.
std::vector<std::uint32_t> read_once(aio::Io& io, TensorStore& store, const VerifyOptions& options,
                                     VerifyReport& report) {
    std::vector<std::uint32_t> tiles = tiles_in_scope(store, options.scope);
    FirstReading first(tiles.size());
    auto work = std::make_unique<TileStream>(io, store, std::move(tiles), options.urgency, first);
    const auto stream = start_and_finish(io, std::move(work), options.progress);
    report.tiles = stream->tile_count();
    report.bytes = stream->total_bytes();
    return std::move(first.doubtful());
}

void read_again(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, const VerifyOptions& options,
                VerifyReport& report) {
    auto reading = std::make_unique<SecondReading>(io, store, std::move(tiles), options.urgency);
    const std::uint64_t right_bytes = report.bytes - reading->total_bytes();
    const auto progress = [&](std::uint64_t done_bytes, std::uint64_t) {
        if (options.progress) options.progress(right_bytes + done_bytes, report.bytes);
    };
    start_and_finish(io, std::move(reading), progress)->take(report);
}

}  // namespace

VerifyReport verify(aio::Io& io, TensorStore& store, const VerifyOptions& options) {
    VerifyReport report;
    std::vector<std::uint32_t> doubtful = read_once(io, store, options, report);
    if (!doubtful.empty()) read_again(io, store, std::move(doubtful), options, report);
    return report;
}

}  // namespace penstock::store
