// Tells what is asked of the others by a session of one rank, in which order.
#pragma once

#include "zero_infinity/ranks/call_notice.h"
#include "zero_infinity/ranks/transport.h"
#include "zero_infinity/session/session_ranks.h"

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

// Each call is compared first, and so is named.
class RecordingTransport final : public zero::Transport {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    std::string name() const override { return "recording"; }
    void all_gather(std::span<const std::byte> mine, const zero::RankBlocks& all) override {
        alone_.all_gather(mine, all);
        if (std::exchange(named_, !named_)) {
            newest.assign(mine.begin(), mine.end());
            if (watch) watch();
            return;
        }
        zero::CallNotice notice;
        std::memcpy(&notice, mine.data(), sizeof notice);
        log.emplace_back(notice.what.data());
    }
    void exchange(const zero::ConstRankBlocks& to, const zero::RankBlocks& from) override { alone_.exchange(to, from); }
    void abort(std::string_view) noexcept override {}

    std::vector<std::string> log;   // what each call is for; others may add to it
    std::function<void()> watch;    // called at each call
    std::vector<std::byte> newest;  // what this rank gave
    std::uint64_t committed() const {  // the first of what goes with a norm
        std::uint64_t number = 0;
        std::memcpy(&number, newest.data(), sizeof number);
        return number;
    }

   private:
    zero::TransportAlone alone_;
    bool named_ = false;
};

// Both ways of one rank.
struct RecordedRank {
    RecordingTransport control;
    zero::TransportAlone bulk;
    zero::RankWays ways() { return {&control, &bulk}; }
};

}  // namespace penstock::testing
