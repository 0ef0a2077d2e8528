// What a session does with the store that it finds.
#include "aio/words/error.h"
#include "swap/directory/store_directory.h"
#include "swap/store/tensor_store.h"
#include "tests/zero_infinity/engine/run.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace penstock::testing {
namespace {

// One byte of the newest bytes of a tile.
void damage(const std::string& path, const std::string& object) {
    store::TileLocation where;
    {
        store::StoreDirectory directory(path, "toy");
        aio::Io io(aio::open_backend(directory.lock_fd(), {}).backend, {});
        const auto store = store::TensorStore::open(io, {&directory});
        where = store->location({*store->find(object), 0});
    }
    std::fstream file(where.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(where.offset_bytes + 17));
    file.put('\x5a');
}

struct Opened {
    std::string step;
    std::string notes;
    std::vector<std::string> progress;  // what was reported, each once
    int accepted = 0;                   // times that the client state was shown
};

Opened open_session(const RunOptions& options) {
    Opened opened;
    const engine::SessionEvents events{
        .recovered = [&](const store::ClientState&, const std::string&) { ++opened.accepted; },
        .progress =
            [&](const char* what, std::uint64_t, std::uint64_t) {
                if (opened.progress.empty() || opened.progress.back() != what) opened.progress.emplace_back(what);
            }};
    engine::Session session(make_toy_model(options.model), options.optimizers(), options.session, {{"step", "0"}},
                            events);
    opened.step = session.info().client.at("step");
    for (const std::string& note : session.take_notes()) opened.notes += note + "\n";
    return opened;
}

class Resume : public ::testing::Test {
   protected:
    Resume() : options_(toy_run(directory_.path())) {
        options_.steps = 4;
        run_toy(options_);
    }
    TemporaryDirectory directory_;
    RunOptions options_;
};

TEST_F(Resume, VerifiesFirstAndSurvivesDamageByGoingBackACommit) {
    options_.session.verify = store::VerifyScope::all;
    const Opened whole = open_session(options_);
    EXPECT_EQ(whole.step, "4");
    EXPECT_EQ(whole.progress, (std::vector<std::string>{"verifying what was committed"}));
    EXPECT_EQ(whole.accepted, 1);

    damage(options_.session.swap_directories[0], "blocks.1.states");
    const Opened back = open_session(options_);
    EXPECT_EQ(back.step, "3");
    EXPECT_NE(back.notes.find("blocks.1.states"), std::string::npos) << back.notes;
    EXPECT_EQ(back.accepted, 2) << "the state that the run goes on from is shown too";

    const TemporaryDirectory reference;
    RunOptions whole_run = toy_run(reference.path());
    whole_run.steps = options_.steps = 6;
    run_toy(whole_run);
    EXPECT_EQ(run_toy(options_).losses.size(), 3U);
    EXPECT_EQ(read_snapshot(options_.session.swap_directories[0], "toy").objects,
              read_snapshot(whole_run.session.swap_directories[0], "toy").objects);
}

TEST_F(Resume, WithoutVerificationNothingIsReadAtTheStart) {
    damage(options_.session.swap_directories[0], "blocks.1.states");
    const Opened opened = open_session(options_);
    EXPECT_EQ(opened.step, "4");
    EXPECT_TRUE(opened.progress.empty());
    options_.steps = 5;
    EXPECT_THROW(run_toy(options_), Error);
}

TEST_F(Resume, ARunThatMayNotGoOnIsRefusedBeforeTheVerification) {
    options_.session.verify = store::VerifyScope::all;
    options_.session.codec = "plain_fp32";
    bool verified = false;
    const engine::SessionEvents events{.recovered = {},
                                       .progress = [&](const char*, std::uint64_t, std::uint64_t) { verified = true; }};
    EXPECT_THROW(engine::Session(make_toy_model(options_.model), options_.optimizers(), options_.session, {}, events),
                 Error);
    EXPECT_FALSE(verified);
}

// ---------------------------------------------------------------- snapshots

std::unique_ptr<engine::Session> session_of(const RunOptions& options) {
    return std::make_unique<engine::Session>(make_toy_model(options.model), options.optimizers(), options.session,
                                             store::ClientState{{"step", "0"}}, engine::SessionEvents{});
}

void train_step(engine::Session& session, std::uint64_t step, const RunOptions& options) {
    session.engine().train_batch(toy_step(step, options), {.step = step, .learning_rate = options.learning_rate},
                                 [&](const engine::StepReport&) {
                                     return store::ClientState{{"step", std::to_string(step)}};
                                 });
}

void finish_snapshot(engine::Session& session) {
    session.finish_snapshot([](const zero::SnapshotProgress&) { return true; });
    for (const zero::EndedSnapshot& copy : session.take_snapshots()) EXPECT_EQ(copy.problem.value_or(""), "");
}

class Snapshots : public ::testing::Test {
   protected:
    Snapshots() : options_(toy_run(directory_.path())) {
        options_.session.snapshots = true;
        options_.steps = 6;
        const auto session = session_of(options_);
        for (std::uint64_t step = 1; step <= 6; ++step) {
            train_step(*session, step, options_);
            if (step == 3) session->begin_snapshot(kept());
        }
        finish_snapshot(*session);
    }
    std::string kept() const { return store() + "/kept/step-3"; }
    const std::string& store() const { return options_.session.swap_directories[0]; }

    TemporaryDirectory directory_;
    RunOptions options_;
};

// What a run that never went back has.
store::ClientState without_mark(store::ClientState client) {
    EXPECT_EQ(client.erase(zero::went_on_from_key), 1U);
    return client;
}

TEST_F(Snapshots, ARunGoesBackToOneAndComesToTheSameBits) {
    const Snapshot before = read_snapshot(store(), "toy");
    EXPECT_EQ(before.client.at("step"), "6");
    EXPECT_EQ(read_snapshot(kept(), "toy").client.at("step"), "3");
    options_.session.resume_from = kept();
    const RunResult again = run_toy(options_);
    EXPECT_TRUE(again.resumed);
    EXPECT_EQ(again.losses.size(), 3U);
    const Snapshot after = read_snapshot(store(), "toy");
    EXPECT_EQ(after.objects, before.objects);
    EXPECT_EQ(without_mark(after.client), before.client);
    EXPECT_GT(after.generation, before.generation) << "no generation is ever used twice";
}

TEST_F(Snapshots, OneThatWasMovedFillsAnEmptyStore) {
    const Snapshot before = read_snapshot(store(), "toy");
    const TemporaryDirectory other;
    std::filesystem::rename(kept(), other.path() + "/moved");
    RunOptions elsewhere = toy_run(other.path());
    elsewhere.steps = 6;
    elsewhere.session.resume_from = other.path() + "/moved";
    EXPECT_EQ(run_toy(elsewhere).losses.size(), 3U);
    const Snapshot after = read_snapshot(elsewhere.session.swap_directories[0], "toy");
    EXPECT_EQ(after.objects, before.objects);
    EXPECT_EQ(without_mark(after.client), before.client);
    EXPECT_EQ(after.generation, 3U) << "the snapshot is generation 0 there";
}

TEST_F(Snapshots, OneThatDoesNotFitIsRefusedAndTheStoreStaysAsItWas) {
    const Snapshot before = read_snapshot(store(), "toy");
    options_.session.resume_from = kept();
    RunOptions other = options_;
    other.session.codec = "plain_fp32";
    EXPECT_THROW(run_toy(other), Error);
    other = options_;
    other.session.tile_numel = 8192;
    EXPECT_THROW(run_toy(other), Error);
    other = options_;
    other.optimizers = [] { return zero::ParameterGroups(zero::make_adam({})); };  // objects of the same sizes
    EXPECT_THROW(run_toy(other), Error);
    other = options_;
    other.session.resume_from = store() + "/kept/step-4";
    EXPECT_THROW(run_toy(other), Error);
    damage(kept(), "blocks.1.states");
    EXPECT_THROW(run_toy(options_), Error);
    EXPECT_EQ(read_snapshot(store(), "toy"), before);
}

TEST_F(Snapshots, KeepingCommitsTheStepThatItKeeps) {
    options_.session.durability = {100};
    {
        const auto session = session_of(options_);
        train_step(*session, 7, options_);
        train_step(*session, 8, options_);
        session->begin_snapshot(store() + "/kept/step-8");
        train_step(*session, 9, options_);
        finish_snapshot(*session);
    }
    EXPECT_EQ(read_snapshot(store(), "toy").client.at("step"), "8");
    EXPECT_EQ(read_snapshot(store() + "/kept/step-8", "toy").objects, read_snapshot(store(), "toy").objects);
}

TEST_F(Snapshots, AScratchRunKeepsNothing) {
    options_.session.durability = zero::Durability::scratch;
    EXPECT_THROW(session_of(options_), Error);
}

// ---------------------------------------------------------------- client state

TEST_F(Resume, TheUsersOwnStateComesBack) {
    options_.session.durability = {2};
    {
        const auto session = session_of(options_);
        session->engine().user_state()["user.note"] = std::string("any\0bytes", 9);
        session->engine().user_state()["user.both"] = "of the session";
        session->engine().train_batch(toy_step(5, options_), {.step = 5, .learning_rate = options_.learning_rate},
                                      [](const engine::StepReport&) {
                                          return store::ClientState{{"step", "5"}, {"user.both", "of the step"}};
                                      });
        session->engine().user_state()["user.late"] = "after the step";
        session->engine().settle();
    }
    const auto session = session_of(options_);
    EXPECT_EQ(session->info().client.at("step"), "5");
    EXPECT_EQ(session->engine().user_state(), (store::ClientState{{"user.note", std::string("any\0bytes", 9)},
                                                                  {"user.both", "of the step"},
                                                                  {"user.late", "after the step"}}));
    session->engine().user_state().erase("user.late");
    session->engine().user_state()["step"] = "99";
    EXPECT_THROW(train_step(*session, 6, options_), Error);
}

// Half of its input is left out, as torch's default generator says.
class Noisy : public engine::Unit {
   public:
    Noisy() : engine::Unit("noisy"), weight_(declare("weight", {8, 8}, engine::Initial::normal(1))) {}
    engine::Bundle forward(const engine::Bundle& input) const override {
        const at::Tensor mask = at::rand({8}).gt(0.5).to(at::kBFloat16);
        const at::Tensor hidden = at::linear(input.at("hidden") * mask, weight_.tensor());
        return {{"hidden", hidden}, {"loss", hidden.to(at::kFloat).pow(2).mean()}};
    }

   private:
    const engine::Parameter& weight_;
};

std::vector<double> noisy_losses(RunOptions options, std::uint64_t last) {
    std::vector<std::unique_ptr<engine::Unit>> units;
    units.push_back(std::make_unique<Noisy>());
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

TEST(Generator, AUnitThatDrawsWhileItRunsDrawsTheSameAfterAResume) {
    const TemporaryDirectory one, other;
    RunOptions whole = toy_run(one.path());
    RunOptions parts = toy_run(other.path());
    whole.session.engine.activations = parts.session.engine.activations = engine::Activations::retain;
    at::manual_seed(7);
    const std::vector<double> expected = noisy_losses(whole, 8);
    at::manual_seed(7);
    std::vector<double> losses = noisy_losses(parts, 3);
    at::manual_seed(99);  // as a new process would have another
    for (const double loss : noisy_losses(parts, 8)) losses.push_back(loss);
    EXPECT_EQ(losses, expected);
}

TEST(Striping, SeveralDirectoriesHoldTheStoreInTheirShares) {
    const TemporaryDirectory one, other;
    RunOptions single = toy_run(one.path());
    RunOptions several = toy_run(other.path());
    single.steps = 6;
    run_toy(single);
    several.session.swap_directories = {other.path() + "/fast", other.path() + "/slow"};
    several.session.swap_shares = {3, 1};
    several.steps = 3;
    run_toy(several);
    several.session.swap_shares = {1, 1};  // those of the store count
    several.steps = 6;
    run_toy(several);
    {
        store::StoreDirectory fast(several.session.swap_directories[0], "toy"),
            slow(several.session.swap_directories[1], "toy");
        aio::Io io(aio::open_backend(fast.lock_fd(), {}).backend, {});
        EXPECT_EQ(store::TensorStore::open(io, {&fast, &slow})->layout().geometry().shares,
                  (std::vector<std::uint16_t>{3, 1}));
    }
    EXPECT_EQ(read_snapshot(several.session.swap_directories, "toy").objects,
              read_snapshot(single.session.swap_directories[0], "toy").objects);
    std::swap(several.session.swap_directories[0], several.session.swap_directories[1]);
    EXPECT_THROW(session_of(several), Error);
}

}  // namespace
}  // namespace penstock::testing
