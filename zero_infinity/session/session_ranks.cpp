#include "zero_infinity/session/session_ranks.h"

#include "aio/words/check.h"
#include "aio/words/host_name.h"
#include "zero_infinity/plan/memory_plan.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace penstock::zero {

SessionRanks::SessionRanks(RankWays ways) : ways_(ways) {
    PENSTOCK_CHECK((ways.control == nullptr) == (ways.bulk == nullptr), "one transport of two");
    if (ways.control == nullptr) return;
    partition_ = {ways.control->rank(), ways.control->ranks()};
    opening_.emplace(*ways.control);
    if (ways.board == nullptr || !several()) return;
    watch_.emplace(*ways.board, WatchOptions{.rank = rank(), .ranks = ranks(), .host = aio::host_name()},
                   [this](const RunEnd& end) { abort(Error(ExitCode::peer_lost, end.cause.words())); });
}

SessionRanks::~SessionRanks() {
    end(false);
}

void SessionRanks::all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) {
    if (lane_) return lane_->wait(lane_->post_small(what, mine, all));
    if (opening_) return opening_->all_gather(what, mine, all);
    LocalCommunicator().all_gather(what, mine, all);
}

void SessionRanks::open_lane(const ModelLayout& layout, std::uint64_t piece_bytes, pool::PinnedPool& pool) {
    PENSTOCK_CHECK(several(), "a lane of one rank");
    LaneOptions options{.piece_bytes = piece_bytes};
    for (const UnitLayout& unit : layout.units()) options.units.push_back(unit.spec().name);
    area_ = pool.acquire(pool.use(ranks_use), ranks() * piece_bytes);
    opening_.reset();
    const std::lock_guard lock(of_lane_);
    lane_.emplace(*ways_.bulk, *ways_.control, area_.span(), std::move(options));
}

void SessionRanks::at(std::string_view where) {
    if (watch_) watch_->at(where);
}

void SessionRanks::abort(const Error& cause) noexcept {
    const std::lock_guard lock(of_lane_);
    if (lane_) return lane_->fail(cause);
    if (!several()) return;
    ways_.control->abort(cause.what());
    ways_.bulk->abort(cause.what());
}

Error SessionRanks::failed(const Error& own) noexcept {
    Error told = own;
    try {
        const std::optional<RunEnd> end = watch_ ? std::optional(watch_->failed(own)) : std::nullopt;
        if (end && !end->is_told_here)
            told = Error(ExitCode::peer_lost, fmt::format("the run has ended because of {}", end->cause.words()));
    } catch (const std::exception&) {  // no board: each says its own
    }
    abort(told);
    return told;
}

void SessionRanks::end(bool whole) noexcept {
    if (std::exchange(ended_, true)) return;
    try {
        if (whole && lane_) lane_->finish();
    } catch (const std::exception&) {  // the others find the same, and say it
    }
    if (!whole) abort(Error(ExitCode::peer_lost, "another rank has ended before the end of the run"));
    try {
        if (watch_) watch_->finished();  // what there was to say was said
    } catch (const std::exception&) {    // the board is lost
    }
    watch_.reset();
    const std::lock_guard lock(of_lane_);
    lane_.reset();
    area_ = {};
}

}  // namespace penstock::zero
