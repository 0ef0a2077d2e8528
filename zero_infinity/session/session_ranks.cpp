#include "zero_infinity/session/session_ranks.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/memory_plan.h"

#include <cstring>
#include <string>

namespace penstock::zero {

SessionRanks::SessionRanks(RankWays ways) : ways_(ways) {
    PENSTOCK_CHECK((ways.control == nullptr) == (ways.bulk == nullptr), "one transport of two");
    if (ways.control == nullptr) return;
    partition_ = {ways.control->rank(), ways.control->ranks()};
    opening_.emplace(*ways.control);
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
    lane_.emplace(*ways_.bulk, *ways_.control, area_.span(), std::move(options));
}

void SessionRanks::fail(const Error& cause) noexcept {
    if (lane_) return lane_->fail(cause);
    if (!several()) return;
    ways_.control->abort(cause.what());
    ways_.bulk->abort(cause.what());
}

void SessionRanks::end(bool whole) noexcept {
    if (std::exchange(ended_, true)) return;
    if (whole && lane_) {
        try {
            lane_->finish();
        } catch (const std::exception&) {  // the others know, or have ended
        }
    } else if (!whole) {
        fail(Error(ExitCode::peer_lost, "another rank has ended"));
    }
    lane_.reset();
    area_ = {};
}

}  // namespace penstock::zero
