#include "zero_infinity/ranks/mpi/transport_mpi.h"

#include "aio/words/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

// A thread that waits looks again and again at first, as a message between two looks is the common case, and lets
// others run meanwhile; then it sleeps, a sixteenth of what it has waited, so that it is late by no more than that.
constexpr std::chrono::microseconds awake{200};
constexpr Clock::duration longest_sleep = std::chrono::milliseconds(1);
// Ranks that wait for a silent one have begun to within moments of each other. One gives up before the next does, so
// that it is heard, and one rank tells.
constexpr std::chrono::milliseconds between_ranks{50};

// As a failure of MPI's own, in its words.
void check_mpi(int code) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw Error(ExitCode::peer_lost, fmt::format("MPI: {}", text.data()));
}

}  // namespace

// A gather is an exchange that gives everybody the same block.
struct TransportMpi::Call {
    std::string_view kind;
    ConstRankBlocks to;
    RankBlocks from;

    bool same_to_all() const noexcept { return to.stride_bytes == 0; }
};

TransportMpi::TransportMpi(MPI_Comm ranks, Options options, LastWords& words)
    : comm_(ranks), options_(std::move(options)), words_(&words), area_(std::make_unique<Area>()) {
    int rank = 0, count = 0;
    MPI_Comm_rank(ranks, &rank);
    MPI_Comm_size(ranks, &count);
    rank_ = static_cast<std::uint32_t>(rank);
    ranks_ = static_cast<std::uint32_t>(count);
    for (Slot& slot : *area_) {
        slot.sent.resize(ranks_ * options_.chunk_bytes);
        slot.come.resize(ranks_ * options_.chunk_bytes);
        slot.requests.assign(std::size_t{2} * ranks_, MPI_REQUEST_NULL);
        slot.done.resize(slot.requests.size());
        slot.ends.resize(slot.requests.size());
    }
}

TransportMpi::~TransportMpi() {
    const bool idle = std::ranges::all_of(*area_, [](const Slot& slot) {
        return std::ranges::all_of(slot.requests, [](MPI_Request each) { return each == MPI_REQUEST_NULL; });
    });
    if (!idle) static_cast<void>(area_.release());
}

void TransportMpi::all_gather(std::span<const std::byte> mine, const RankBlocks& all) {
    PENSTOCK_CHECK(mine.size() == all.bytes, "{} bytes into blocks of {}", mine.size(), all.bytes);
    make({"a gather", {mine.data(), 0, mine.size()}, all});
}

void TransportMpi::exchange(const ConstRankBlocks& to, const RankBlocks& from) {
    PENSTOCK_CHECK(to.bytes == from.bytes, "blocks of {} bytes into those of {}", to.bytes, from.bytes);
    make({"an exchange", to, from});
}

void TransportMpi::make(const Call& call) {
    if (words_->said()) throw words_->error();
    const std::byte* const own = call.to.of(rank_);
    if (own != call.from.of(rank_)) std::memcpy(call.from.of(rank_), own, call.to.bytes);
    const std::size_t chunks = (call.to.bytes + options_.chunk_bytes - 1) / options_.chunk_bytes;
    const std::size_t ahead = std::min(chunks, area_->size());
    try {
        for (std::size_t chunk = 0; chunk < ahead; ++chunk) begin_chunk(call, chunk);
        for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
            end_chunk(call, chunk);
            if (chunk + ahead < chunks) begin_chunk(call, chunk + ahead);
        }
    } catch (const Error& error) {
        words_->say(error.what());
        throw;
    }
}

void TransportMpi::begin_chunk(const Call& call, std::size_t chunk) {
    Slot& slot = slot_of(chunk);
    const std::size_t first = chunk * options_.chunk_bytes,
                      bytes = std::min(options_.chunk_bytes, call.to.bytes - first);
    const int count = static_cast<int>(bytes);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer)
        if (peer != rank_)
            check_mpi(MPI_Irecv(slot.come.data() + peer * options_.chunk_bytes, count, MPI_BYTE, static_cast<int>(peer),
                                0, comm_, &slot.requests[peer]));
    if (call.same_to_all()) std::memcpy(slot.sent.data(), call.to.first + first, bytes);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        std::byte* const place = slot.sent.data() + (call.same_to_all() ? 0 : peer * options_.chunk_bytes);
        if (!call.same_to_all()) std::memcpy(place, call.to.of(peer) + first, bytes);
        check_mpi(MPI_Isend(place, count, MPI_BYTE, static_cast<int>(peer), 0, comm_, &slot.requests[ranks_ + peer]));
    }
}

void TransportMpi::end_chunk(const Call& call, std::size_t chunk) {
    Slot& slot = slot_of(chunk);
    const std::size_t first = chunk * options_.chunk_bytes,
                      bytes = std::min(options_.chunk_bytes, call.to.bytes - first);
    wait_for(call, slot, bytes);
    for (std::uint32_t peer = 0; peer < ranks_; ++peer)
        if (peer != rank_)
            std::memcpy(call.from.of(peer) + first, slot.come.data() + peer * options_.chunk_bytes, bytes);
}

void TransportMpi::wait_for(const Call& call, Slot& slot, std::size_t bytes) {
    if (words_->said()) throw words_->error();
    Clock::time_point last = Clock::now();
    for (bool some = false; !all_done(slot, bytes, some);) {
        const Clock::time_point now = Clock::now();
        if (some) last = now;
        const Clock::duration waited = now - last;
        if (waited < awake) {
            std::this_thread::yield();
            continue;
        }
        if (words_->listen()) throw words_->error();
        if (waited > options_.deadline + rank_ * between_ranks) throw lost(call, slot);
        std::this_thread::sleep_for(std::min(waited / 16, longest_sleep));
    }
}

// `some`: one more has ended than at the last look.
bool TransportMpi::all_done(Slot& slot, std::size_t bytes, bool& some) {
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(slot.requests.size()), slot.requests.data(), &done, slot.done.data(),
                                  slot.ends.data());
    some = done != MPI_UNDEFINED && done > 0;
    for (int i = 0; some && i < done; ++i) {
        const MPI_Status& end = slot.ends[static_cast<std::size_t>(i)];
        if (code == MPI_ERR_IN_STATUS) check_mpi(end.MPI_ERROR);
        const auto place = static_cast<std::uint32_t>(slot.done[static_cast<std::size_t>(i)]);
        int count = 0;
        if (place < ranks_) MPI_Get_count(&end, MPI_BYTE, &count);
        if (place < ranks_ && static_cast<std::size_t>(count) != bytes)
            throw Error(ExitCode::internal,
                        fmt::format("rank {} gives {} bytes where {} were to come: it is at another "
                                    "call, or has blocks of other bytes",
                                    place, count, bytes));
    }
    check_mpi(code);
    return done == MPI_UNDEFINED;
}

Error TransportMpi::lost(const Call& call, const Slot& slot) const {
    std::vector<std::uint32_t> late;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer)
        if (slot.requests[peer] != MPI_REQUEST_NULL) late.push_back(peer);
    for (std::uint32_t peer = 0; late.empty() && peer < ranks_; ++peer)  // it gives, but does not take
        if (slot.requests[ranks_ + peer] != MPI_REQUEST_NULL) late.push_back(peer);
    return {
        ExitCode::peer_lost,
        fmt::format("nothing has come from rank{} {} for {} s, in {} of {} bytes a rank: stopped, much slower, or at "
                    "something else",
                    late.size() > 1 ? "s" : "", fmt::join(late, ", "),
                    std::chrono::duration<double>(options_.deadline).count(), call.kind, call.to.bytes)};
}

}  // namespace penstock::zero
