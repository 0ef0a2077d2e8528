// What a session takes from outside, and what it gives: weights by name, both ways, and the words of its ranks.
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/engine/run.h"
#include "tests/zero_infinity/ranks/recording_transport.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>

namespace penstock::testing {
namespace {

// fp32 values by "UNIT/PARAMETER value", weights as they are stored.
class Collected final : public zero::WeightSink {
   public:
    void write(const zero::NamedParameter& parameter, const zero::ValueStretch& stretch) override {
        const std::string name = parameter.unit.name + "/" + parameter.spec.name;
        if (stretch.value == zero::ParameterValue::weight) {
            weights[name].append(reinterpret_cast<const char*>(stretch.data),
                                 stretch.numel * zero::bytes_of(stretch.type));
            return;
        }
        ReferenceState& state = states[name];
        std::vector<float>& values = stretch.value == zero::ParameterValue::master    ? state.master
                                     : stretch.value == zero::ParameterValue::moment0 ? state.m
                                                                                      : state.v;
        EXPECT_EQ(values.size(), stretch.first) << name;
        const auto* data = reinterpret_cast<const float*>(stretch.data);
        values.insert(values.end(), data, data + stretch.numel);
    }
    std::map<std::string, std::string> weights;
    std::map<std::string, ReferenceState> states;
};

const zero::ReadOut everything{.values = {zero::ParameterValue::weight, zero::ParameterValue::master,
                                          zero::ParameterValue::moment0, zero::ParameterValue::moment1}};

engine::Session session_of(const RunOptions& options, const engine::SessionSeams& seams = {}) {
    return {make_toy_model(options.model), options.optimizers(), options.session, {{"step", "0"}}, {}, seams};
}

void train_step(engine::Session& session, std::uint64_t step, const RunOptions& options) {
    session.engine().train_batch(toy_step(step, options), {.step = step, .learning_rate = options.learning_rate},
                                 [&](const engine::StepReport&) {
                                     return store::ClientState{{"step", std::to_string(step)}};
                                 });
}

TEST(ReadOut, GivesWhatTheStoreHoldsAndTrainingGoesOn) {
    for (const char* codec : {"split", "plain_fp32", "compact"}) {
        SCOPED_TRACE(codec);
        const TemporaryDirectory directory, reference;
        RunOptions options = toy_run(directory.path());
        options.model.frozen_gain = true;
        options.session.codec = codec;
        options.session.durability = {3};  // what is held back in host memory is committed first
        options.session.residency = {zero::Tier::host, zero::Tier::nvme};
        Collected first, second;
        {
            engine::Session session = session_of(options);
            for (std::uint64_t step = 1; step <= 4; ++step) train_step(session, step, options);
            session.read_out(everything, first);
            session.read_out(everything, second);  // reading changes nothing
            EXPECT_EQ(first.states, second.states);
            EXPECT_EQ(first.weights, second.weights);
        }
        const auto model = make_toy_model(options.model);
        const Snapshot stored = read_snapshot(options.session.swap_directories[0], "toy");
        EXPECT_EQ(stored.client.at("step"), "4");
        EXPECT_EQ(first.states, decode_states(stored, *model, codec, options.session.tile_numel));
        std::size_t parameters = 0;
        for (const auto& unit : model->units()) parameters += unit->parameters().size();
        EXPECT_EQ(first.weights.size(), parameters) << "frozen ones too";

        {
            engine::Session session = session_of(options);
            for (std::uint64_t step = 5; step <= 6; ++step) train_step(session, step, options);
            session.engine().settle();
        }
        RunOptions whole = options;
        whole.session.swap_directories = {reference.path() + "/swap"};
        whole.steps = 6;
        run_toy(whole);
        EXPECT_EQ(read_snapshot(options.session.swap_directories[0], "toy").objects,
                  read_snapshot(whole.session.swap_directories[0], "toy").objects);
    }
}

TEST(WeightSource, ADrawnModelIsWhatEachOfItsParametersIsDrawnAs) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.codec = "plain_fp32";
    engine::Session session = session_of(options);
    Collected out;
    session.read_out(everything, out);
    for (const auto& unit : session.model().units()) {
        for (const auto& parameter : unit->parameters()) {
            const std::vector<float> first = first_weights(*parameter, unit->name(), options.session.seed);
            EXPECT_EQ(out.states[unit->name() + "/" + parameter->spec().name].master, first);
        }
    }
}

// A session's weights, read out, are another one's first weights: the same model then, whatever its seed.
TEST(WeightSource, OfTheCallerIsTakenInThePlaceOfDrawing) {
    const TemporaryDirectory one, other;
    RunOptions drawn = toy_run(one.path());
    drawn.steps = 0;
    engine::Session first = session_of(drawn);
    Collected out;
    first.read_out(everything, out);

    zero::WeightFunction source(
        [&](const zero::NamedParameter& parameter, std::uint64_t begin, std::span<float> values) {
            const std::vector<float>& master = out.states.at(parameter.unit.name + "/" + parameter.spec.name).master;
            std::copy_n(master.begin() + static_cast<std::ptrdiff_t>(begin), values.size(), values.begin());
        });
    RunOptions given = toy_run(other.path());
    given.session.seed = 77;
    engine::Session second = session_of(given, {.weights = &source});
    Collected copied;
    second.read_out(everything, copied);
    EXPECT_EQ(copied.states, out.states);
    EXPECT_EQ(copied.weights, out.weights);
}

TEST(WeightSource, IsAskedBeforeTheStoreIsMade) {
    struct Lacking final : zero::WeightSource {
        void check(std::span<const zero::UnitLayout>) override {
            throw Error(ExitCode::usage, "there is no tensor 'blocks.0.gain'");
        }
        void read(const zero::NamedParameter&, std::uint64_t, std::span<float>) override { ADD_FAILURE(); }
    } lacking;
    const TemporaryDirectory directory;
    const RunOptions options = toy_run(directory.path());
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { session_of(options, {.weights = &lacking}); }),
              "there is no tensor 'blocks.0.gain'");
    EXPECT_FALSE(std::filesystem::exists(options.session.swap_directories[0] + "/data"));
}

// The incarnation is agreed on before anything is written; each step's first write comes after a norm that all ranks
// have joined with the step before committed, as each has said there by its store's number of it.
TEST(Communicator, IncarnationNormAndCommitGoThroughIt) {
    const TemporaryDirectory directory;
    const RunOptions options = toy_run(directory.path());
    for (const bool resumed : {false, true}) {
        RecordedRank rank;
        std::vector<std::string>& log = rank.control.log;
        engine::Session session = session_of(options, {.ranks = rank.ways()});
        EXPECT_EQ(session.info().resumed, resumed);
        EXPECT_EQ(log, (std::vector<std::string>{"the incarnation"}));
        log.clear();
        std::uint64_t committed_bytes = session.counters().write_bytes;
        rank.control.watch = [&] {
            EXPECT_EQ(session.counters().write_bytes, committed_bytes) << "written before the norm";
        };
        for (std::uint64_t step = 1; step <= 2; ++step) {
            session.engine().train_batch(toy_step(step, options), {.step = step, .learning_rate = 1e-3},
                                         [&](const engine::StepReport& report) {
                                             log.push_back(report.gradient_norm > 0 ? "norm" : "no norm");
                                             return store::ClientState{{"step", std::to_string(step)}};
                                         });
            EXPECT_EQ(rank.control.committed(), (resumed ? 2 : 0) + step - 1) << "what was committed before";
            log.emplace_back("committed");
            committed_bytes = session.counters().write_bytes;
        }
        ASSERT_EQ(log.size(), 6U) << fmt::format("{}", fmt::join(log, ", "));
        EXPECT_EQ(log[0], "the norm");
        EXPECT_EQ(log[1], "norm");
        EXPECT_EQ(log[2], "committed");
        EXPECT_EQ(log[3], log[0]);
    }
}

}  // namespace
}  // namespace penstock::testing
