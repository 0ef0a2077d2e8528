#include "zero_infinity/ranks/collectives.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/ranks/call_notice.h"
#include "zero_infinity/ranks/in_pieces.h"

#include <algorithm>

namespace penstock::zero {
namespace {

constexpr std::size_t element_bytes = 8;  // the largest: pieces end between elements

std::size_t whole_elements(std::size_t bytes) {
    return std::max(bytes / element_bytes * element_bytes, element_bytes);
}

}  // namespace

Collectives::Collectives(Transport& transport, std::size_t piece_bytes)
    : transport_(&transport), piece_bytes_(whole_elements(piece_bytes)) {}

void Collectives::compare(const char* what, std::size_t bytes, std::uint64_t form) {
    if (ranks() == 1) return;
    CallNotice own{.number = ++calls_, .bytes = bytes, .kind = CallKind::small, .form = form};
    set_what(own, what);
    if (const std::string found = difference_at(*transport_, own, {}); !found.empty())
        throw Error(ExitCode::usage, found);
}

std::span<std::byte> Collectives::area(std::size_t block_bytes) {
    area_.resize(std::max(area_.size(), ranks() * block_bytes));
    return std::span(area_).first(ranks() * block_bytes);
}

void Collectives::all_gather(std::span<const std::byte> shard, std::span<std::byte> all) {
    PENSTOCK_CHECK(all.size() == ranks() * shard.size(), "{} bytes for {} of each of {} ranks", all.size(),
                   shard.size(), ranks());
    compare("a gather", shard.size());
    gather_in_pieces(*transport_, shard, all, piece_bytes_);
}

void Collectives::reduce_scatter(std::span<const std::byte> all, PlaneType type, std::span<std::byte> shard) {
    PENSTOCK_CHECK(all.size() == ranks() * shard.size(), "{} bytes for {} of each of {} ranks", all.size(),
                   shard.size(), ranks());
    PENSTOCK_CHECK(shard.size() % bytes_of(type) == 0, "{} bytes are no whole elements of {}", shard.size(),
                   word_of(type));
    compare("a sum of parts", shard.size(), static_cast<std::uint64_t>(type));
    reduce_in_pieces(*transport_, {.addend = all, .wire = type, .type = type, .sum = shard},
                     area(std::min(piece_bytes_, shard.size())), piece_bytes_);
}

// All values of all ranks come to each, which adds them.
void Collectives::all_reduce(std::span<double> values) {
    const std::size_t bytes = values.size_bytes();
    const auto* all = reinterpret_cast<const double*>(area(bytes).data());
    all_gather(std::as_bytes(values), area(bytes));
    std::copy_n(all, values.size(), values.begin());
    for (std::uint32_t rank = 1; rank < ranks(); ++rank)
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += all[rank * values.size() + i];
}

// A gather of which one block is wanted: it is for what is small.
void Collectives::broadcast(std::span<std::byte> bytes, std::uint32_t root) {
    PENSTOCK_CHECK(root < ranks(), "root {} of {} ranks", root, ranks());
    compare("a broadcast", bytes.size(), root);
    for (std::size_t at = 0; at < bytes.size(); at += piece_bytes_) {
        const std::span<std::byte> piece = bytes.subspan(at, std::min(piece_bytes_, bytes.size() - at));
        const RankBlocks come{area(piece.size()).data(), piece.size(), piece.size()};
        transport_->all_gather(piece, come);
        if (rank() != root) std::copy_n(come.of(root), piece.size(), piece.data());
    }
}

// Whoever has compared has come.
void Collectives::barrier() {
    compare("a barrier", 0);
}

}  // namespace penstock::zero
