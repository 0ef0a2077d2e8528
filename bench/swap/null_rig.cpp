#include "bench/swap/null_rig.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "bench/io/null_backend.h"
#include "swap/format/hash.h"
#include "zero_infinity/threads/workers.h"

#include <fmt/format.h>

#include <cstring>

namespace penstock::bench {

// Goes through every `tiles_on_their_way`-th tile.
struct NullRig::Mover final : store::TileOperation {
    explicit Mover(NullRig& its_rig, std::uint32_t first) : rig(its_rig), tile(first) {}
    void start(aio::IoKind next_kind) {
        kind = next_kind;
        const store::TileId id{0, tile};
        if (kind == aio::IoKind::read) {
            rig.store_->read(*this, id, rig.memory(tile), aio::Urgency::prefetch);
        } else {
            rig.store_->write(*this, id, rig.memory(tile), aio::Urgency::write_back);
        }
    }
    void tile_done() noexcept override { rig.moved(*this); }

    NullRig& rig;
    std::uint32_t tile;
    aio::IoKind kind = aio::IoKind::read;
};

NullRig::NullRig(const NullRigOptions& options, unsigned hash_threads)
    : options_(options),
      folder_(options.directory, fmt::format("null-{}", hash_threads)),
      memory_(options.tiles * options.tile_bytes, 1, pool::Registration::none),
      open_({folder_.path() + "/store"}, "penstock bench swap --null") {
    PENSTOCK_CHECK(options.tiles % options.tiles_on_their_way == 0, "{} tiles for {} movers", options.tiles,
                   options.tiles_on_their_way);
    open_.start_io({.hashing = {.threads = hash_threads}},
                   {.backend = std::make_unique<NullBackend>(options.device_bytes_per_second), .note = {}});
    store_ = &open_.create({.objects = {{"tensor", options.tiles * options.tile_bytes, options.tile_bytes}}});
    for (std::uint32_t first = 0; first < options.tiles_on_their_way; ++first)
        movers_.push_back(std::make_unique<Mover>(*this, first));
    while (!store_->written({0, 0})) run(TileWork::write, 0);  // the last ones: see next()
}

NullRig::~NullRig() = default;

std::span<std::byte> NullRig::memory(std::uint32_t tile) const noexcept {
    return {memory_.data() + tile * options_.tile_bytes, options_.tile_bytes};
}

void NullRig::next(Mover& mover) noexcept {
    mover.tile = (mover.tile + options_.tiles_on_their_way) % options_.tiles;
    ++running_;
    mover.start(work_ == TileWork::write ? aio::IoKind::write : aio::IoKind::read);
}

void NullRig::moved(Mover& mover) noexcept {
    bytes_ += options_.tile_bytes;
    if (mover.error()) error_ = mover.error()->message;
    if (work_ == TileWork::update && mover.kind == aio::IoKind::read && !error_) {
        std::memcpy(memory(mover.tile).data(), &++changes_, sizeof(changes_));
        return mover.start(aio::IoKind::write);
    }
    --running_;
    if (!error_ && std::chrono::steady_clock::now() < until_) next(mover);
}

zero::Moved NullRig::run(TileWork work, double seconds) {
    work_ = work;
    bytes_ = 0;
    const zero::Stopwatch watch;
    until_ = watch.begin() + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    for (const auto& mover : movers_) next(*mover);
    while (running_ > 0) {
        const auto stuck = open_.io().advance(std::chrono::seconds(1));
        PENSTOCK_CHECK(!stuck, "{}", stuck->message());
    }
    if (error_) throw Error(ExitCode::storage, *error_);
    return watch.stop(bytes_);
}

zero::Moved NullRig::hash(unsigned threads, double seconds) const {
    zero::Workers workers(threads);
    std::vector<store::TileHash> seen(options_.tiles);
    std::uint64_t bytes = 0;
    const zero::Stopwatch watch;
    do {
        workers.run(options_.tiles, [&](std::size_t tile) {
            seen[tile] = store::hash_tile(memory(static_cast<std::uint32_t>(tile)), {.store = seen[tile].low});
        });
        bytes += memory_.bytes();
    } while (watch.seconds() < seconds);
    return watch.stop(bytes);
}

}  // namespace penstock::bench
