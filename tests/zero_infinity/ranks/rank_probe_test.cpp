#include "zero_infinity/ranks/rank_probe.h"

#include "tests/zero_infinity/ranks/thread_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::testing {
namespace {

using zero::ConstRankBlocks;
using zero::RankBlocks;

TEST(RankProbe, MeasuresEveryWay) {
    ThreadRanks bulk(3), control(3);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        const zero::RankRates rates = probe_ranks(bulk.of(rank), control.of(rank), 1 << 18);
        for (const double each : {rates.small_seconds, rates.gather_rate, rates.exchange_rate, rates.sum_rate})
            EXPECT_GT(each, 0);
    });
    EXPECT_EQ(thrown, std::vector<std::string>(3));
}

TEST(RankProbe, OneRankHasNobodyToSpeakTo) {
    zero::TransportAlone bulk, control;
    const zero::RankRates rates = probe_ranks(bulk, control, 1 << 12);
    EXPECT_EQ(rates.gather_rate + rates.exchange_rate + rates.small_seconds, 0);
    EXPECT_GT(rates.sum_rate, 0);
}

// A library that gives the right blocks in another order: with two ranks no sum would show it.
class Turned final : public zero::Transport {
   public:
    explicit Turned(zero::Transport& given) : given_(&given) {}
    std::uint32_t rank() const noexcept override { return given_->rank(); }
    std::uint32_t ranks() const noexcept override { return given_->ranks(); }
    std::string name() const override { return "turned"; }
    void all_gather(std::span<const std::byte> mine, const RankBlocks& all) override { given_->all_gather(mine, all); }
    void exchange(const ConstRankBlocks& to, const RankBlocks& from) override {
        given_->exchange(to, from);
        std::swap_ranges(from.of(0), from.of(0) + from.bytes, from.of(ranks() - 1));
    }
    void abort(std::string_view cause) noexcept override { given_->abort(cause); }

   private:
    zero::Transport* given_;
};

TEST(RankProbe, AWrongOrderIsFound) {
    ThreadRanks bulk(3), control(3);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        Turned turned(bulk.of(rank));
        probe_ranks(turned, control.of(rank), 1 << 12);
    });
    for (const std::string& each : thrown) EXPECT_NE(each.find("has mixed them up"), std::string::npos) << each;
}

}  // namespace
}  // namespace penstock::testing
