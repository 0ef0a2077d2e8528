#include "bench/transfer/transfer_stream.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::bench {

namespace {

// While the drive and a copy are both under way, neither is waited for longer than this.
constexpr std::chrono::microseconds glance{50};
constexpr std::chrono::milliseconds longest_wait{100};
constexpr std::chrono::seconds copy_deadline{60};

}  // namespace

TileTransfer::~TileTransfer() {
    if (orphaned()) lease.orphan();
}

std::uint64_t TransferStream::bytes_of(std::uint64_t tile) const noexcept {
    return std::min(parts_.tile_bytes, parts_.bytes - tile * parts_.tile_bytes);
}

void TransferStream::advance() {
    take_transfers();
    take_copies();
    begin_tiles();
}

void TransferStream::take_transfers() {
    for (TileTransfer& transfer : parts_.transfers) {
        if (!transfer.taken || !transfer.ended) continue;
        transfer.taken = false;
        pool::Lease lease = std::move(transfer.lease);
        if (transfer.error()) throw Error(ExitCode::storage, transfer.error()->message());
        if (way_ == Way::in && links_ == Links::both) {
            start_copy(std::move(lease), transfer.tile);
        } else {
            ++finished_tiles_;
        }
    }
}

void TransferStream::take_copies() {
    while (!copies_.empty() && parts_.device->reached(copies_.front().ticket)) {
        Copy copy = std::move(copies_.front());
        copies_.pop_front();
        if (way_ == Way::out && links_ == Links::both) {
            start_transfer(std::move(copy.lease), copy.tile);
        } else {
            ++finished_tiles_;
        }
    }
}

// The pool is the bound: what has no lease waits.
void TransferStream::begin_tiles() {
    const bool drive_first = links_ == Links::drive || (links_ == Links::both && way_ == Way::in);
    for (; next_tile_ < tile_count(); ++next_tile_) {
        std::optional<pool::Lease> lease = parts_.pool->try_acquire(parts_.use, bytes_of(next_tile_));
        if (!lease) return;
        if (drive_first) {
            start_transfer(std::move(*lease), next_tile_);
        } else {
            start_copy(std::move(*lease), next_tile_);
        }
    }
}

void TransferStream::start_transfer(pool::Lease lease, std::uint64_t tile) {
    const auto free = std::find_if(parts_.transfers.begin(), parts_.transfers.end(),
                                   [](const TileTransfer& transfer) { return !transfer.taken; });
    PENSTOCK_CHECK(free != parts_.transfers.end(), "{} transfers for more leases", parts_.transfers.size());
    free->taken = true;
    free->ended = false;
    free->tile = tile;
    free->lease = std::move(lease);
    // Prefetch and not demand: demand reads would throttle the other direction's writes, as they should.
    parts_.io->start(*free, {.kind = way_ == Way::in ? aio::IoKind::read : aio::IoKind::write,
                             .file = parts_.file,
                             .data = free->lease.data(),
                             .offset_bytes = tile * parts_.tile_bytes,
                             .bytes = bytes_of(tile),
                             .urgency = way_ == Way::in ? aio::Urgency::prefetch : aio::Urgency::write_back});
}

void TransferStream::start_copy(pool::Lease lease, std::uint64_t tile) {
    std::byte* device = parts_.device_memory + tile * parts_.tile_bytes;
    const std::uint64_t bytes = bytes_of(tile);
    Copy copy{.ticket = {}, .tile = tile, .lease = {}, .hold = {}};
    if (way_ == Way::in) {
        copy.ticket = parts_.device->copy_in(device, lease.data(), bytes);
        copy.hold = lease.hold();  // and the lease is dropped here
    } else {
        copy.ticket = parts_.device->copy_out(lease.data(), device, bytes);
        copy.lease = std::move(lease);
    }
    copies_.push_back(std::move(copy));
}

namespace {

// Blocks for a moment: for the drive where it works, for the oldest copy where only copies are under way.
void wait_for_something(std::initializer_list<TransferStream*> streams) {
    aio::Io& io = (*streams.begin())->io();
    const auto copying = std::find_if(streams.begin(), streams.end(),
                                      [](const TransferStream* stream) { return stream->oldest_copy() != nullptr; });
    if (!io.idle()) {
        const auto timeout = copying == streams.end() ? std::chrono::nanoseconds(longest_wait) : glance;
        if (const auto stuck = io.advance(timeout)) throw Error(ExitCode::storage, stuck->message());
    } else if (copying != streams.end()) {
        TransferStream& stream = **copying;
        if (!stream.device()->wait(*stream.oldest_copy(), copy_deadline))
            throw Error(ExitCode::internal, fmt::format("a copy of device '{}' has not come back for {} s",
                                                        stream.device()->name(), copy_deadline.count()));
    }
}

}  // namespace

double run(std::initializer_list<TransferStream*> streams) {
    const auto start = std::chrono::steady_clock::now();
    const auto all_finished = [&] {
        return std::all_of(streams.begin(), streams.end(),
                           [](const TransferStream* stream) { return stream->finished(); });
    };
    while (true) {
        for (TransferStream* stream : streams) stream->advance();
        if (all_finished()) break;
        wait_for_something(streams);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace penstock::bench
