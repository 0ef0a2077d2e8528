#include "swap/capi/c_request.h"

#include "aio/words/spare_text.h"
#include "swap/capi/c_error.h"

#include <algorithm>
#include <utility>

namespace penstock::store {
namespace {

// More than any device wants in flight (IoLimits::in_flight), in tiles: the Io always has the next ones at hand.
constexpr std::uint64_t window_bytes = 32ULL << 20;
constexpr std::uint64_t fewest_parts = 2;
constexpr std::uint64_t most_parts = 64;

std::size_t part_count(const Layout& layout, const TileRange& range) {
    const std::uint64_t tile_bytes = layout.objects()[range.object].tile_bytes;
    return std::min<std::uint64_t>(range.count, std::clamp(window_bytes / tile_bytes, fewest_parts, most_parts));
}

}  // namespace

void Request::fail(const std::optional<StoreError>& error) noexcept {
    if (!error || status != PENSTOCK_OK) return;
    status = status_of(error->kind);
    message = text_or_less([&] { return error->message; });
}

RangeRequest::RangeRequest(penstock_kind wanted, void* callers, TensorStore& store, const TileRange& tiles,
                           std::span<std::byte> memory, aio::Urgency urgency, pool::Hold hold,
                           RequestListener& listener)
    : Request(wanted, callers),
      store_(store),
      memory_(memory),
      urgency_(urgency),
      hold_(std::move(hold)),
      listener_(listener),
      part_count_(part_count(store.layout(), tiles)),
      parts_(std::make_unique<Part[]>(part_count_)) {
    range = tiles;
    for (std::size_t i = 0; i < part_count_; ++i) parts_[i].owner = this;
}

void RangeRequest::begin() {
    for (std::size_t i = 0; i < part_count_; ++i) begin_next(parts_[i]);
}

void RangeRequest::begin_next(Part& part) {
    const bool reads = kind == PENSTOCK_READ;
    if (next_ == range.count || (reads && status != PENSTOCK_OK)) return;
    const std::uint32_t index = next_++;
    const TileId tile = range.tile(index);
    const std::uint64_t offset = index * store_.layout().objects()[range.object].tile_bytes;
    const std::span<std::byte> memory = memory_.subspan(offset, store_.extent_bytes(tile));
    ++in_flight_;
    reads ? store_.read(part, tile, memory, urgency_) : store_.write(part, tile, memory, urgency_);
}

void RangeRequest::part_done(Part& part) noexcept {
    --in_flight_;
    fail(part.error());
    begin_next(part);
    if (in_flight_ > 0) return;
    hold_.reset();
    listener_.request_finished(*this);
}

CommitRequest::CommitRequest(void* callers, RequestListener& listener)
    : Request(PENSTOCK_COMMIT, callers), listener_(listener), operation_(*this) {}

void CommitRequest::ended() noexcept {
    fail(operation_.error());
    listener_.request_finished(*this);
}

}  // namespace penstock::store
