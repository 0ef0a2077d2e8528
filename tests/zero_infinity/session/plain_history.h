// A training of the client's units, and what the plain loop comes to in each of its steps.
#pragma once

#include "tests/zero_infinity/session/session_client.h"

#include <cstdint>
#include <map>
#include <vector>

namespace penstock::testing {

struct Course {
    Setting setting;
    std::uint64_t passes = 1;  // of a step
    bool clips = false;        // every other step; not with within

    bool may_clip_within() const {
        return setting.order == zero::UpdateWay::speculative ||
               (setting.order == zero::UpdateWay::balanced && setting.residency.weights == zero::Tier::nvme &&
                setting.residency.states == zero::Tier::nvme && setting.fill_bytes == 0 &&
                setting.durability == zero::Durability::every_step);
    }
    // Else with speculative and balanced it is deferred: some of those that strike and some of the others.
    bool begins(std::uint64_t step) const {
        return is_within_backward(setting.order) && (!clips || (may_clip_within() && step % 3 != 0));
    }
    bool strikes(std::uint64_t step) const { return clips && step % 2 == 0; }
    // Far below the norm, far above it, or none.
    double clip(std::uint64_t step) const {
        if (setting.order == zero::UpdateWay::within) return 0;
        if (setting.order == zero::UpdateWay::balanced && !clips) return 0;
        return strikes(step) ? 1e-3 : 1e9;
    }
};

// The plain loop after each step; of a step that is clipped once its factor is known.
class History {
   public:
    using State = std::map<PlainLoop::Id, PlainLoop::Parameter>;

    explicit History(const Course& course) : course_(course), plain_(units()) {
        states_.push_back(plain_.parameters());
    }

    static std::uint64_t time_of(std::uint64_t step, std::uint64_t pass) { return 10 * step + pass; }
    void set_factor(std::uint64_t step, double factor) { factors_[step] = factor; }

    const State& after(std::uint64_t step) {
        while (states_.size() <= step) {
            const std::uint64_t next = states_.size();
            for (std::uint64_t pass = 0; pass < course_.passes; ++pass) {
                for (std::uint32_t unit = 5; unit-- > 0;) plain_.backward(unit, time_of(next, pass));
                plain_.end_pass();
            }
            const auto factor = factors_.find(next);
            plain_.update(next, factor == factors_.end() ? 1 : factor->second);
            states_.push_back(plain_.parameters());
        }
        return states_[step];
    }

   private:
    Course course_;
    PlainLoop plain_;
    std::vector<State> states_;
    std::map<std::uint64_t, double> factors_;
};

// The passes of a step, all but its update.
inline void train_passes(Client& client, const Course& course, std::uint64_t step, History& history) {
    zero::CoreSession& session = client.session();
    for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
        const bool completes = course.begins(step) && pass + 1 == course.passes;
        if (completes) session.begin_step({.values = {.step = step, .learning_rate = 1e-2}, .clip = course.clip(step)});
        session.begin_pass(Pass::training);
        for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
        for (std::uint32_t unit = 5; unit-- > 0;) {
            client.backward(unit, History::time_of(step, pass));
            const bool leaves = course.setting.gradient_memory == zero::GradientMemory::nvme && unit % 2 == 0;
            if (completes || leaves) session.complete(unit);
        }
        session.end_pass();
    }
    if (course.strikes(step)) history.set_factor(step, zero::clip_factor(session.gradient_norm(), course.clip(step)));
}

}  // namespace penstock::testing
