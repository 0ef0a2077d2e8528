// Trains on the engine that this program was linked with, and compares with the plain loop and with itself. Arguments:
// what must be said of it.
#include "aio/words/error.h"
#include "tests/control.h"
#include "tests/zero_infinity/engine/reference_loop.h"
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/ranks/recording_transport.h"
#include "zero_infinity/ranks/communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace penstock::testing {
namespace {

using Complaints = std::vector<std::string>;

// One way to train, by a name that its complaints begin with.
struct Training {
    const char* name;
    RunOptions options;
    std::vector<std::uint64_t> stops;  // the run is ended behind these steps, without more ado, and begun again
};

Training with_accumulation(const std::string& directory) {
    Training training{"accumulation", toy_run(directory), {}};
    training.options.micro_batches = 3;
    return training;
}

Training with_a_tie(const std::string& directory) {
    Training training{"tie", toy_run(directory), {}};
    training.options.model.tied_head = true;
    return training;
}

// Every third step is committed, and states that host memory holds are only then written.
Training with_stops(const std::string& directory) {
    Training training{"stops", toy_run(directory), {4}};
    training.options.session.residency = {zero::Tier::nvme, zero::Tier::host};
    training.options.session.durability = {3};
    return training;
}

void compare_states(const Training& training, const ReferenceLoop& reference, Complaints& complaints) {
    const engine::SessionOptions& session = training.options.session;
    const auto model = make_toy_model(training.options.model);
    auto stored =
        decode_states(read_snapshot(session.swap_directories[0], "toy"), *model, session.codec, session.tile_numel);
    for (const auto& [name, expected] : reference.states()) {
        const ReferenceState& found = stored[name];
        const auto compare = [&](const char* what, bool same) {
            if (!same) complaints.push_back(fmt::format("{}: {}: the {} is another one", training.name, name, what));
        };
        compare("master", found.master == expected.master);
        compare("first moment", found.m == expected.m);
        compare("second moment", found.v == expected.v);
    }
}

Complaints against_the_plain_loop(Training training) {
    RunOptions& options = training.options;
    Complaints complaints;
    for (const std::uint64_t stop : training.stops) {
        options.steps = stop;
        run_toy(options, AtEnd::leave);
    }
    options.steps = 7;  // of `stops` the last one is committed out of turn
    const RunResult run = run_toy(options);
    const std::uint64_t skipped = options.steps - run.losses.size();  // before the last stop
    ReferenceLoop reference(make_toy_model(options.model), {.clipping = options.session.engine.gradient_clipping});
    for (std::uint64_t step = 1; step <= options.steps; ++step) {
        const auto expected = reference.train_batch(toy_step(step, options), step, options.learning_rate);
        if (step <= skipped) continue;
        const auto compare = [&](const char* what, double found, double wanted) {
            if (found != wanted)
                complaints.push_back(fmt::format("{}: step {}: the {} is {}, of the plain loop {}", training.name, step,
                                                 what, found, wanted));
        };
        compare("loss", run.losses[step - skipped - 1], expected.loss);
        compare("norm", run.norms[step - skipped - 1], expected.norm);
    }
    compare_states(training, reference, complaints);
    return complaints;
}

// Half of its input is left out, by torch's default generator.
class Drop : public engine::Unit {
   public:
    explicit Drop(std::string name, int* runs = nullptr)
        : engine::Unit(std::move(name)),
          runs_(runs),
          weight_(declare("weight", {8, 8}, engine::Initial::normal(0.3))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        if (runs_ != nullptr) ++*runs_;
        const at::Tensor hidden = at::linear(at::dropout(input.at("hidden"), 0.5, /*train=*/true), weight_.tensor());
        return {{"hidden", hidden}, {"loss", hidden.to(at::kFloat).pow(2).mean()}};
    }

   private:
    int* runs_;
    const engine::Parameter& weight_;
};

using Runs = std::array<int, 3>;

std::vector<double> drop_until(RunOptions options, std::uint64_t last, Runs* runs = nullptr) {
    std::vector<std::unique_ptr<engine::Unit>> units;
    for (const char* name : {"one", "two", "three"})
        units.push_back(std::make_unique<Drop>(name, runs == nullptr ? nullptr : &runs->at(units.size())));
    engine::Session session(std::make_unique<engine::Model>(std::move(units)), options.optimizers(), options.session,
                            {{"step", "0"}}, {});
    const std::vector<engine::Bundle> batch{{{"hidden", at::ones({2, 8}, at::kBFloat16)}}};
    std::vector<double> losses;
    for (std::uint64_t step = std::stoull(session.info().client.at("step")) + 1; step <= last; ++step)
        losses.push_back(session.engine()
                             .train_batch(batch, {.step = step, .learning_rate = 0.01},
                                          [&](const engine::StepReport&) {
                                              return store::ClientState{{"step", std::to_string(step)}};
                                          })
                             .loss);
    return losses;
}

Complaints of_draws() {
    const TemporaryDirectory one, two, three;
    RunOptions kept = toy_run(one.path());
    kept.session.engine.activations = engine::Activations::retain;
    at::manual_seed(7);
    const std::vector<double> whole = drop_until(kept, 6);
    at::manual_seed(7);
    RunOptions recomputed = toy_run(two.path());
    recomputed.session.engine.activations = engine::Activations::recompute;
    const std::vector<double> again = drop_until(recomputed, 6);
    at::manual_seed(7);
    std::vector<double> stopped = drop_until(toy_run(three.path()), 3);
    at::manual_seed(99);  // as a new process would have another
    for (const double loss : drop_until(toy_run(three.path()), 6)) stopped.push_back(loss);
    Complaints complaints;
    if (again != whole) complaints.emplace_back("draws: units that are run again give other losses");
    if (stopped != again) complaints.emplace_back("draws: a run that was stopped gives other losses");
    return complaints;
}

// Room is asked for before the forward of one and two, the loss of three, and the backward of two and one. It is short
// at the loss, and again before the backward of two.
Complaints of_graphs() {
    const TemporaryDirectory one, two, three;
    RunOptions recomputed = toy_run(one.path()), given_up = toy_run(two.path()), short_twice = toy_run(three.path());
    recomputed.session.engine.activations = engine::Activations::recompute;
    given_up.session.engine.room = [](std::uint64_t) { return std::uint64_t{0}; };
    std::uint64_t asked = 0, reserve = 0;
    short_twice.session.engine.room = [&](std::uint64_t bytes) {
        reserve = bytes;
        const std::uint64_t ask = asked++;
        return ask == 2 || ask == 4 ? 0 : std::numeric_limits<std::uint64_t>::max();
    };
    at::manual_seed(7);
    const std::vector<double> losses = drop_until(recomputed, 3);
    at::manual_seed(7);
    Complaints complaints;
    if (drop_until(given_up, 3) != losses) complaints.emplace_back("graphs: what is given up gives other losses");
    Runs runs{};
    drop_until(short_twice, 1, &runs);
    if (runs != Runs{2, 1, 1})
        complaints.push_back(fmt::format("graphs: units ran {}, {} and {} times", runs[0], runs[1], runs[2]));
    if (reserve == 0) complaints.emplace_back("graphs: nothing is to stay free");
    return complaints;
}

// All that it has heard of the other rank is a larger number than its own.
class TwoRanks final : public zero::Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 2; }
    void all_gather(std::string_view, std::span<const std::byte> shard, std::span<std::byte> all) override {
        std::copy(shard.begin(), shard.end(), all.begin());
        const std::uint64_t other = 9;
        std::copy_n(reinterpret_cast<const std::byte*>(&other), sizeof other, all.begin() + sizeof other);
    }
};

Complaints of_ranks() {
    TwoRanks communicator;
    const std::uint64_t agreed = zero::agree_on_largest(communicator, "a number", 4);
    if (agreed == 9) return {};
    return {fmt::format("ranks: {} was agreed on, of 4 and 9", agreed)};
}

// Nothing is written before this rank has heard of the others since its last commit: each of two steps is committed, or
// none, and what host memory holds is held back until the run settles.
Complaints of_commits(const char* what, zero::Tier states, std::uint64_t every) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.residency = {zero::Tier::host, states};
    options.session.durability = {every};
    RecordedRank rank;
    engine::Session session(make_toy_model(options.model), options.optimizers(), options.session, {{"step", "0"}}, {},
                            {.ranks = rank.ways()});
    bool late = false;
    bool heard = false;
    std::uint64_t committed_bytes = session.counters().write_bytes;
    const auto look = [&] { late = late || (!heard && session.counters().write_bytes != committed_bytes); };
    rank.control.watch = [&] {
        look();
        heard = true;
    };
    const auto committed = [&] {
        look();
        heard = false;
        committed_bytes = session.counters().write_bytes;
    };
    for (std::uint64_t step = 1; step <= 2; ++step) {
        const engine::StepReport report = session.engine().train_batch(
            toy_step(step, options), {.step = step, .learning_rate = options.learning_rate},
            [&](const engine::StepReport&) {
                return store::ClientState{{"step", std::to_string(step)}};
            });
        if (report.committed) committed();
    }
    session.engine().settle();
    look();
    if (!late) return {};
    return {fmt::format("commits: {} was written before all ranks had committed", what)};
}

Complaints run_all() {
    Complaints complaints;
    const auto add = [&](const char* name, const auto& run) {
        try {
            for (std::string& complaint : run()) complaints.push_back(std::move(complaint));
        } catch (const Error& error) {
            complaints.push_back(fmt::format("{}: {}", name, error.what()));
        }
    };
    for (const auto& make : {with_accumulation, with_a_tie, with_stops}) {
        const TemporaryDirectory directory;
        add("training", [&] { return against_the_plain_loop(make(directory.path())); });
    }
    add("draws", of_draws);
    add("graphs", of_graphs);
    add("ranks", of_ranks);
    add("commits", [] { return of_commits("an update", zero::Tier::nvme, 1); });
    add("commits", [] { return of_commits("what was held back", zero::Tier::host, 3); });
    return complaints;
}

}  // namespace
}  // namespace penstock::testing

int main(int argc, char** argv) {
    return penstock::find_mutant(argc > 1 ? argv[1] : "", 1,
                                 [](std::uint64_t) { return penstock::testing::run_all(); });
}
