#include "swap/store/tile_stream.h"

#include "aio/words/io_error.h"

#include <algorithm>
#include <utility>

namespace penstock::store {
namespace {

constexpr std::uint64_t ring_bytes = 8ULL << 20;
constexpr std::uint64_t usual_part_bytes = 512ULL << 10;
constexpr std::uint64_t max_parts = 256;  // more small reads at once than any device asks for

}  // namespace

TileStream::TileStream(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency,
                       TileStreamListener& listener)
    : io_(io), store_(store), tiles_(std::move(tiles)), urgency_(urgency), listener_(listener) {
    std::uint64_t longest = 0;
    for (const std::uint32_t tile : tiles_) {
        const std::uint64_t bytes = stored(tile).bytes;
        longest = std::max(longest, bytes);
        total_bytes_ += bytes;
    }
    if (tiles_.empty()) return;
    part_bytes_ = std::min(longest, std::max(usual_part_bytes, store.granule_bytes()));
    const std::uint64_t parts = std::min(ring_bytes / part_bytes_, max_parts);
    memory_ = pool::Region(parts * part_bytes_, 1, pool::Registration::none);
    for (std::uint64_t i = 0; i < parts; ++i) {
        Part& part = ring_.emplace_back();
        part.owner = this;
        part.memory = memory_.data() + i * part_bytes_;
    }
}

void TileStream::start() {
    for (Part& part : ring_) start_next(part);
}

void TileStream::abandon() noexcept {
    abandoned_ = true;
    store_.abandon();
}

void TileStream::start_next(Part& part) {
    part.back = false;
    if (next_ == tiles_.size()) return;
    part.tile = tiles_[next_];
    part.offset_bytes = next_offset_bytes_;
    const StoredTile source = stored(part.tile);
    const std::uint64_t bytes = std::min(part_bytes_, source.bytes - next_offset_bytes_);
    next_offset_bytes_ += bytes;
    if (next_offset_bytes_ == source.bytes) {
        ++next_;
        next_offset_bytes_ = 0;
    }
    ++in_flight_;
    io_.start(part, {.kind = aio::IoKind::read,
                     .file = source.file,
                     .data = part.memory,
                     .offset_bytes = source.offset_bytes + part.offset_bytes,
                     .bytes = bytes,
                     .urgency = urgency_});
}

// The devices answer in any order; the hash goes by the stream's.
void TileStream::part_done(Part& part) noexcept {
    if (abandoned_) return;  // the store may be gone
    --in_flight_;
    part.back = true;
    while (ring_[oldest_].back) {
        Part& oldest = ring_[oldest_];
        oldest_ = (oldest_ + 1) % ring_.size();
        take(oldest);
        start_next(oldest);
        if (part_bytes_ >= long_hash_bytes) io_.hand_over();
    }
}

void TileStream::take(const Part& part) noexcept {
    if (part.tile == given_up_) return;
    if (part.error()) return give_up(part);
    const StoredTile source = stored(part.tile);
    const std::uint64_t bytes = part.request().bytes;
    if (part.offset_bytes == 0) hasher_.begin(source.identity);
    hasher_.add({part.memory, bytes});
    if (part.offset_bytes + bytes < source.bytes) return;
    const bool right = hasher_.hash() == source.hash;
    if (right) right_bytes_ += source.bytes;
    listener_.tile_checked(part.tile, right, std::nullopt);
}

// The rest of its tile could not make it right, and may be as long as a manifest that nobody vouches for says.
void TileStream::give_up(const Part& part) noexcept {
    given_up_ = part.tile;
    if (next_ < tiles_.size() && tiles_[next_] == part.tile) {
        ++next_;
        next_offset_bytes_ = 0;
    }
    listener_.tile_checked(part.tile, false, part.error());
}

}  // namespace penstock::store
