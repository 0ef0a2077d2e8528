#include "tests/zero_infinity/ranks/lane_program.h"

#include "tests/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

namespace penstock::testing {
namespace {

using zero::Inputs;
using zero::Lane;
using zero::SumStart;
using Floats = std::vector<float>;

std::span<const std::byte> bytes_of(const Floats& values) {
    return std::as_bytes(std::span(values));
}
std::span<std::byte> bytes_of(Floats& values) {
    return std::as_writable_bytes(std::span(values));
}

Floats drawn(std::uint64_t seed, std::uint32_t rank, std::size_t numel) {
    std::mt19937_64 random(seed + rank);
    Floats values(numel);
    for (float& each : values) each = static_cast<float>(static_cast<double>(random() % 2000001) - 1e6) * 1e-3F;
    return values;
}

// One call's memory, and what it must become.
struct Made {
    Lane::Number number = 0;
    LaneStep step{};
    Floats in, out, expected;
    bool ready = false;
};

Floats expected_of(const LaneStep& step, std::uint32_t rank, std::uint32_t ranks, Floats out) {
    if (step.kind != LaneStep::Kind::reduce) {
        out.clear();
        for (std::uint32_t other = 0; other < ranks; ++other) {
            const Floats theirs = drawn(step.seed, other, step.numel);
            out.insert(out.end(), theirs.begin(), theirs.end());
        }
        return out;
    }
    for (std::size_t i = 0; i < step.numel; ++i) {
        volatile float acc = drawn(step.seed, 0, step.numel * ranks)[rank * step.numel + i];
        for (std::uint32_t other = 1; other < ranks; ++other)
            acc = acc + drawn(step.seed, other, step.numel * ranks)[rank * step.numel + i];
        if (step.start == SumStart::carried) acc = out[i] + acc;
        out[i] = acc;
    }
    return out;
}

// Posts a program, and says what is ready in an order of this rank's own: one thread owns, another has arrivals.
class RandomRank {
   public:
    RandomRank(zero::Transport& bulk, zero::Transport& control, std::uint64_t seed)
        : rank_(bulk.rank()), ranks_(bulk.ranks()), mood_(mix(seed) + rank_), own_(bulk, control) {}

    void run(const std::vector<LaneStep>& steps) {
        for (const LaneStep& step : steps) {
            post(step);
            if (mood_() % 3 == 0) arrive();
            if (mood_() % 4 == 0) wait_for_any();
        }
        arrive_all();
        const bool finished = mood_() % 2 == 0;
        if (finished) lane().finish();
        for (Made& each : made_) check(each);
        if (!finished) lane().finish();
    }
    Lane& lane() { return own_.lane; }

   private:
    void post(const LaneStep& step) {
        Made& made = made_.emplace_back();
        made.step = step;
        const bool reduce = step.kind == LaneStep::Kind::reduce;
        made.in = drawn(step.seed, rank_, reduce ? step.numel * ranks_ : step.numel);
        made.out = drawn(step.seed + 99, rank_, reduce ? step.numel : step.numel * ranks_);
        made.expected = expected_of(step, rank_, ranks_, made.out);
        if (step.kind == LaneStep::Kind::small) {
            made.number = lane().post_small("a small one", bytes_of(std::as_const(made.in)), bytes_of(made.out));
            made.ready = true;
            return;
        }
        made.ready = mood_() % 2 == 0;
        const Inputs inputs = made.ready ? Inputs::there : Inputs::from_other;
        if (!made.ready) std::fill(made.in.begin(), made.in.end(), -7.0F);  // until it says that they are there
        made.number =
            reduce ? lane().post_reduce(
                         step.unit,
                         {.addend = bytes_of(std::as_const(made.in)), .start = step.start, .sum = bytes_of(made.out)},
                         inputs)
                   : lane().post_gather(step.unit, {bytes_of(std::as_const(made.in)), bytes_of(made.out)}, inputs);
    }
    void arrive(Made& made) {
        std::ranges::copy(drawn(made.step.seed, rank_, made.in.size()), made.in.begin());  // its place is posted
        made.ready = true;
        lane().ready(made.number);
    }
    void arrive() {
        std::vector<Made*> late;
        for (Made& each : made_)
            if (!each.ready) late.push_back(&each);
        if (!late.empty()) arrive(*late[mood_() % late.size()]);
    }
    void arrive_all() {
        for (Made& each : made_)
            if (!each.ready) arrive(each);
    }
    // Whatever it waits for, another thread brings what is late.
    void wait_for_any() {
        const Lane::Number number = 1 + mood_() % made_.size();
        const std::jthread arrivals([&] { arrive_all(); });
        lane().wait(number);
        if (!lane().done(number)) throw std::runtime_error(fmt::format("call {} is waited for and not done", number));
    }
    void check(Made& made) {
        lane().wait(made.number);
        if (made.out != made.expected) throw std::runtime_error(fmt::format("call {} gives other values", made.number));
    }

    std::uint32_t rank_, ranks_;
    std::mt19937_64 mood_;
    std::deque<Made> made_;  // places stay; before the lane, which ends first
    RankLane own_;
};

}  // namespace

std::vector<LaneStep> lane_program(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<LaneStep> steps(1 + random() % 24);
    for (LaneStep& each : steps)
        each = {static_cast<LaneStep::Kind>(random() % 3), static_cast<std::uint32_t>(random() % 3), random() % 60,
                random() % 2 == 0 ? SumStart::carried : SumStart::fresh, random()};
    return steps;
}

void run_lane_program(zero::Transport& bulk, zero::Transport& control, const std::vector<LaneStep>& steps,
                      std::uint64_t seed) {
    RandomRank(bulk, control, seed).run(steps);
}

}  // namespace penstock::testing
