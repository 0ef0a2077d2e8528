#include "zero_infinity/ranks/capi/transport_calls.h"

#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace penstock::zero {
namespace {

using store::require;

// An abort takes no memory.
constexpr std::size_t most_cause = 512;

}  // namespace

RankCalls::RankCalls(const penstock_ranks* given)
    : calls_(store::taken(given, least_ranks_bytes, "ranks")), name_(&store::required(calls_.name, "ranks.name")) {
    require(calls_.rank < calls_.ranks, "rank {} of {}: ranks count from 0", calls_.rank, calls_.ranks);
    require(calls_.deadline_ms > 0, "ranks.deadline_ms is 0: every wait has an end");
    require(calls_.all_gather != nullptr && calls_.exchange != nullptr && calls_.abort != nullptr,
            "ranks.all_gather, exchange or abort is NULL");
    require(
        (calls_.put == nullptr) == (calls_.get == nullptr) && (calls_.put_first == nullptr) == (calls_.get == nullptr),
        "one of ranks.put, put_first and get is NULL: a board has all three");
}

void RankCalls::check(penstock_status status, const penstock_error& error) const {
    if (store::number_of(status) == PENSTOCK_OK) return;
    const std::string said(error.message, strnlen(error.message, sizeof error.message));
    throw Error(ExitCode::peer_lost, said.empty() ? name_ + " has failed and says no more" : said);
}

// A library's blocks lie one behind the other.
void CalledTransport::all_gather(std::span<const std::byte> mine, const RankBlocks& all) {
    const penstock_ranks& calls = calls_->calls();
    const bool dense = all.stride_bytes == all.bytes;
    if (!dense) come_.resize(std::max(come_.size(), ranks() * all.bytes));
    std::byte* const place = dense ? all.first : come_.data();
    penstock_error error{};
    calls_->check(calls.all_gather(channel_, mine.data(), place, all.bytes, calls.user, &error), error);
    if (dense) return;
    for (std::uint32_t from = 0; from < ranks(); ++from)
        if (all.of(from) != mine.data()) std::memcpy(all.of(from), place + from * all.bytes, all.bytes);
}

void CalledTransport::exchange(const ConstRankBlocks& to, const RankBlocks& from) {
    const penstock_ranks& calls = calls_->calls();
    const bool packed = to.stride_bytes == to.bytes, unpacked = from.stride_bytes == from.bytes;
    if (!packed) {
        sent_.resize(std::max(sent_.size(), ranks() * to.bytes));
        for (std::uint32_t rank = 0; rank < ranks(); ++rank)
            std::memcpy(sent_.data() + rank * to.bytes, to.of(rank), to.bytes);
    }
    if (!unpacked) come_.resize(std::max(come_.size(), ranks() * from.bytes));
    std::byte* const place = unpacked ? from.first : come_.data();
    penstock_error error{};
    calls_->check(calls.exchange(channel_, packed ? to.first : sent_.data(), place, to.bytes, calls.user, &error),
                  error);
    if (unpacked) return;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
        std::memcpy(from.of(rank), place + rank * from.bytes, from.bytes);
}

void CalledTransport::abort(std::string_view cause) noexcept {
    std::array<char, most_cause> text{};
    std::copy_n(cause.begin(), std::min(cause.size(), text.size() - 1), text.begin());
    calls_->calls().abort(text.data(), calls_->calls().user);
}

}  // namespace penstock::zero
