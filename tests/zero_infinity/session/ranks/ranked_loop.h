// What several ranks train, in one process and in plain memory: gradients are added in the order of the ranks.
#pragma once

#include "tests/zero_infinity/session/session_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

// N models in one process, each with the gradients of its rank.
class RankedLoop {
   public:
    RankedLoop(std::uint32_t ranks, zero::SumOrder order, zero::Unused unused)
        : RankedLoop(ranks, order, units(unused)) {}
    RankedLoop(std::uint32_t ranks, zero::SumOrder order, const std::vector<zero::UnitSpec>& all) : order_(order) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank) loops_.emplace_back(all);
    }

    PlainLoop& of(std::uint32_t rank) { return loops_[rank]; }
    void end_pass() {
        for (PlainLoop& each : loops_) each.end_pass();
        if (order_ == zero::SumOrder::ranks_first) add_ranks();
    }
    void update(std::uint64_t step, double scale = 1) {
        add_ranks();
        for (PlainLoop& each : loops_) {
            each.sums() = sums_;
            each.update(step, scale);
        }
        sums_.clear();
    }
    const std::map<PlainLoop::Id, PlainLoop::Parameter>& parameters() const { return loops_.front().parameters(); }
    // Those of all ranks, behind add_ranks().
    std::map<PlainLoop::Id, Values>& sums() { return sums_; }

    // Their mean, in the order of the ranks; where nothing came, zero.
    void add_ranks() {
        for (std::uint32_t unit = 0; unit < loops_.front().units().size(); ++unit)
            for (const ParameterId id : parameters_of(loops_.front().units(), unit)) {
                const PlainLoop::Id key{id.unit, id.index};
                const bool came = std::any_of(loops_.begin(), loops_.end(),
                                              [&](PlainLoop& each) { return each.sums().contains(key); });
                if (!came) continue;
                Values mean;
                for (PlainLoop& each : loops_) {
                    Values addend = each.sums()[key];
                    addend.resize(numel_of(loops_.front().units(), id));
                    add(mean, addend);
                }
                for (float& each : mean) each /= static_cast<float>(loops_.size());
                add(sums_[key], mean);
            }
        for (PlainLoop& each : loops_) each.sums().clear();
    }

   private:
    static void add(Values& sum, const Values& addend) {
        if (sum.empty())
            sum = addend;
        else
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
    }

    zero::SumOrder order_;
    std::vector<PlainLoop> loops_;
    std::map<PlainLoop::Id, Values> sums_;
};

struct RankCourse {
    std::uint32_t ranks = 2;
    Setting setting;
    std::uint64_t steps = 6;
    std::uint64_t passes = 1;

    std::string name() const {
        return fmt::format("{} ranks, {}, {}, {} passes, states {}", ranks, word_of(setting.device),
                           word_of(setting.sum_order), passes, word_of(setting.residency.states));
    }
    std::uint64_t time(std::uint64_t step, std::uint64_t pass, std::uint32_t rank) const {
        return (step * passes + pass) * ranks + rank;
    }
    // Which units a rank has gradients of: the expert's not on all, and in some steps on none.
    bool comes(std::uint32_t unit, std::uint64_t step, std::uint32_t rank) const {
        return setting.unused == zero::Unused::refused || unit != 2 || (step % 3 != 0 && (rank + step) % 2 == 0);
    }
};

// What is done behind each pass, by a rank and by the loop.
using BehindPass = std::function<void(Client&, std::uint64_t step, std::uint64_t pass)>;
using LoopBehindPass = std::function<void(RankedLoop&, std::uint64_t step, std::uint64_t pass)>;

// What a rank does from step `first` to `last`.
inline void train_rank(Client& client, const RankCourse& course, std::uint64_t first, std::uint64_t last,
                       std::uint32_t rank, const BehindPass& behind_pass = {}) {
    for (std::uint64_t step = first; step <= last; ++step) {
        for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 0;)
                if (course.comes(unit, step, rank)) client.backward(unit, course.time(step, pass, rank));
            client.session().end_pass();
            if (behind_pass) behind_pass(client, step, pass);
        }
        client.update(step);
    }
}

inline RankedLoop plain(const RankCourse& course, const LoopBehindPass& behind_pass = {}) {
    RankedLoop loop(course.ranks, course.setting.sum_order, course.setting.unused);
    for (std::uint64_t step = 1; step <= course.steps; ++step) {
        for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
            for (std::uint32_t rank = 0; rank < course.ranks; ++rank)
                for (std::uint32_t unit = 5; unit-- > 0;)
                    if (course.comes(unit, step, rank)) loop.of(rank).backward(unit, course.time(step, pass, rank));
            loop.end_pass();
            if (behind_pass) behind_pass(loop, step, pass);
        }
        loop.update(step);
    }
    return loop;
}

}  // namespace penstock::testing
