#include "trainer/run/run_log.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::trainer {
namespace {

std::string line(int step) {
    return json_of({.step = step, .committed = step, .loss = 6.0 - step}) + "\n";
}

class RunLogs : public ::testing::Test {
   protected:
    std::string cut(const std::string& before, std::int64_t committed) {
        testing::write_file(path_, before);
        const RunLog log(path_, committed);
        return testing::read_file(path_);
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_ / "log.jsonl";
};

TEST_F(RunLogs, AppendOneObjectPerStep) {
    {
        RunLog log(path_, 0);
        log.append({.step = 1, .committed = 1, .loss = 5.5, .read_bytes = 7});
        log.append({.step = 2, .committed = 2, .loss = 5.25});
    }
    std::istringstream lines(testing::read_file(path_));
    std::string text;
    for (int step = 1; step <= 2; ++step) {
        ASSERT_TRUE(std::getline(lines, text));
        const auto object = nlohmann::json::parse(text);
        EXPECT_EQ(object["step"], step);
        EXPECT_EQ(object["committed"], step);
    }
    EXPECT_FALSE(std::getline(lines, text));
}

TEST_F(RunLogs, AreCutBackToTheCommittedStep) {
    EXPECT_EQ(cut(line(1) + line(2) + line(3), 2), line(1) + line(2));
    EXPECT_EQ(cut(line(1) + line(2), 2), line(1) + line(2));
    EXPECT_EQ(cut(line(1), 0), "");
}

TEST_F(RunLogs, LoseAHalfWrittenLastLine) {
    EXPECT_EQ(cut(line(1) + line(2).substr(0, 20), 2), line(1));
    std::string without_end = line(2);
    without_end.pop_back();
    EXPECT_EQ(cut(line(1) + without_end, 2), line(1) + line(2)) << "all of it is there";
    EXPECT_EQ(cut(line(1) + std::string(100, '\0'), 2), line(1));
}

TEST_F(RunLogs, GoOnAfterTheCut) {
    cut(line(1) + line(2) + "garbage", 1);
    RunLog(path_, 1).append({.step = 2, .committed = 2, .loss = 3.5});
    const std::string text = testing::read_file(path_);
    ASSERT_TRUE(text.starts_with(line(1))) << text;
    EXPECT_EQ(nlohmann::json::parse(text.substr(line(1).size()))["loss"], 3.5);
}

TEST_F(RunLogs, ReadLogsLongerThanOnePiece) {
    std::string text;
    for (int step = 1; step <= 6000; ++step) text += line(step);
    ASSERT_GT(text.size(), 2U << 20);
    const std::string kept = cut(text, 5000);
    EXPECT_EQ(kept, text.substr(0, kept.size()));
    EXPECT_TRUE(kept.ends_with(line(5000)));
    EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 5000);
}

TEST_F(RunLogs, GetTheLineBackOfACommitThatOutlivedIt) {
    testing::write_file(path_, line(1) + line(2));
    {
        RunLog log(path_, 3);
        log.restore({.step = 3, .loss = 1.5, .gradient_norm = 2.5, .learning_rate = 0.5, .tokens = 8});
        EXPECT_TRUE(log.take_notes().empty());
        log.append({.step = 4, .committed = 4});
    }
    std::istringstream lines(testing::read_file(path_).substr(2 * line(1).size()));
    std::string text;
    ASSERT_TRUE(std::getline(lines, text));
    EXPECT_EQ(nlohmann::json::parse(text), nlohmann::json::parse(R"({"step": 3, "committed": 3, "loss": 1.5,
        "grad_norm": 2.5, "lr": 0.5, "tokens": 8, "restored": true})"));
    ASSERT_TRUE(std::getline(lines, text));
    EXPECT_EQ(nlohmann::json::parse(text)["step"], 4);
    const std::string before = testing::read_file(path_);
    RunLog(path_, 4).restore({.step = 4});
    EXPECT_EQ(testing::read_file(path_), before) << "it was there";
    RunLog(path_, 9).restore({.step = 9});
    EXPECT_EQ(testing::read_file(path_), before) << "a line that does not follow is no account";
}

// None of the lines that are good is lost, and the damaged file stays.
TEST_F(RunLogs, WithDoubledShuffledOrForeignLinesArePutAsideAndTheirGoodLinesKept) {
    const std::string all = line(1) + line(2) + line(3);
    const std::pair<std::string, std::string> broken[] = {
        {line(1) + line(2) + line(2) + line(3), all},
        {line(1) + line(2) + "{}\n" + line(3) + line(4), all},
        {line(1) + "\n" + line(2) + line(3), all},
        {"somebody's notes\n" + all, all},
        {line(1) + line(2) + line(1) + line(3), all},
        {line(2) + line(1) + line(3), line(2) + line(3)},
        {line(1) + line(2).substr(1) + line(3), line(1) + line(3)},
        {line(1) + line(999) + line(2) + line(3), all},
    };
    for (const auto& [before, after] : broken) {
        SCOPED_TRACE(before);
        testing::write_file(path_, before);
        RunLog log(path_, 3);
        const std::vector<std::string> notes = log.take_notes();
        ASSERT_FALSE(notes.empty());
        EXPECT_NE(notes[0].find("it is " + (directory_ / "log.1.jsonl") + " now"), std::string::npos) << notes[0];
        EXPECT_EQ(testing::read_file(path_), after);
        EXPECT_EQ(testing::read_file(directory_ / "log.1.jsonl"), before);
        log.append({.step = 4, .committed = 4});
        EXPECT_TRUE(testing::read_file(path_).starts_with(after));
        std::filesystem::remove(directory_ / "log.1.jsonl");
    }
    testing::write_file(path_, all + "no step at all\n" + line(7));
    EXPECT_TRUE(RunLog(path_, 3).take_notes().empty()) << "it would be cut off anyway";
    EXPECT_EQ(testing::read_file(path_), all);
}

TEST_F(RunLogs, SayHowManyStepsTheyLack) {
    testing::write_file(path_, line(1) + line(4));
    EXPECT_EQ(RunLog(path_, 9).take_notes(), std::vector{path_ + " lacks 6 of the steps up to 9"});
    testing::write_file(path_, "");
    EXPECT_EQ(RunLog(path_, 9).take_notes(), std::vector{path_ + " has no lines of the steps up to 9"});
    testing::write_file(path_, line(3) + line(4));
    EXPECT_EQ(RunLog(path_, 4).take_notes(), std::vector{path_ + " lacks 2 of the steps up to 4"});
    EXPECT_TRUE(RunLog(path_, 4, RunLog::Begin::later).take_notes().empty()) << "of a run from a snapshot";
    EXPECT_TRUE(RunLog(path_, 5, RunLog::Begin::later).take_notes().empty()) << "one is restored";
}

// Who reads it first says what helps, as who writes to it does.
TEST_F(RunLogs, InWhosePlaceIsADirectoryHaveARemedy) {
    std::filesystem::create_directory(path_);
    for (const bool reads : {true, false}) {
        const std::string words = refusal_of(ExitCode::usage, [&] {
            if (reads) {
                static_cast<void>(read_log(path_, RunState{.step = 1}));
            } else {
                static_cast<void>(RunLog(path_, 1));
            }
        });
        EXPECT_NE(words.find(path_), std::string::npos) << words;
        EXPECT_NE(words.find("move it away"), std::string::npos) << words;
    }
}

TEST_F(RunLogs, TellWhatWasReportedAsCommitted) {
    EXPECT_EQ(read_log(path_, RunState{.step = 5}).committed, std::nullopt);
    testing::write_file(path_, line(1) + line(2) + json_of({.step = 3, .committed = 2}) + "\n" + line(4));
    EXPECT_EQ(read_log(path_, RunState{.step = 1}).committed, 4);
    EXPECT_EQ(read_log(path_, RunState{.step = 1}).one_before, 2);
    testing::write_file(path_, line(1) + line(2) + line(2) + line(4));
    EXPECT_EQ(read_log(path_, RunState{.step = 1}).committed, 4)
        << "a doubled line does not count, and those after it do";
    testing::write_file(path_, json_of({.step = 1}) + "\n");
    EXPECT_EQ(read_log(path_, RunState{.step = 1}).committed, std::nullopt) << "scratch";
}

TEST_F(RunLogs, AreKnownByWhatTheStoreKnowsOfAStep) {
    const auto logged = [](std::int64_t step, double loss, double norm) {
        return json_of({.step = step, .committed = step, .loss = loss, .gradient_norm = norm}) + "\n";
    };
    testing::write_file(path_, logged(1, 5.1, 0.25) + logged(2, 1.0 / 3, 0.1) + logged(3, 9, 9));
    const RunState state{.step = 2, .first_loss = 5.1, .last_loss = 1.0 / 3, .last_norm = 0.1};
    const auto kin = [&](const RunState& other) { return read_log(path_, other).kin; };
    EXPECT_EQ(kin(state), LogKin::same);
    RunState changed = state;
    changed.last_loss = 0.3333;
    EXPECT_EQ(kin(changed), LogKin::same) << "one of the two may be damaged";
    changed.last_norm = 0.2;
    EXPECT_EQ(kin(changed), LogKin::other) << "whatever the first line says";
    changed.last_loss = changed.last_norm = {};
    EXPECT_EQ(kin(changed), LogKin::unknown);
    changed.step = 7;
    EXPECT_EQ(kin(changed), LogKin::same) << "the first line";
    changed.first_loss = 5;
    EXPECT_EQ(kin(changed), LogKin::other);
    EXPECT_EQ(kin({.step = 0}), LogKin::unknown);
    testing::write_file(path_, "");
    EXPECT_EQ(kin(state), LogKin::unknown);
}

TEST_F(RunLogs, OfAnotherRunAreSetAside) {
    EXPECT_EQ(set_aside(path_), "");
    testing::write_file(path_, "old");
    EXPECT_EQ(set_aside(path_), directory_ / "log.1.jsonl");
    testing::write_file(path_, "newer");
    EXPECT_EQ(set_aside(path_), directory_ / "log.2.jsonl");
    EXPECT_EQ(testing::read_file(directory_ / "log.1.jsonl"), "old");
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST(StepRecord, AnObjectSaysWhenTheStepEnded) {
    EXPECT_EQ(nlohmann::json::parse(json_of({.time_s = 1000000000}))["time"], "2001-09-09T01:46:40Z");
}

TEST(StepRecord, LinesShowWhatAPersonNeeds) {
    const StepRecord record{.step = 7,
                            .steps = 100,
                            .committed = 7,
                            .loss = 3.25,
                            .smooth_loss = 3.5,
                            .tokens = 1000,
                            .seconds = 2,
                            .wait_weights_seconds = 0.5,
                            .read_bytes = 3000000000,
                            .pool_peak_bytes = 50 << 20,
                            .pool_budget_bytes = 60 << 20,
                            .seconds_left = 186};
    const std::string line = line_of(record);
    for (const char* part : {"step 7/100", "loss 3.2500 mean 3.5000", "500 tok/s", "ETA 3 min 06 s",
                             "r 1.50 w 0.00 GB/s", "waited 25 %", "pool 50/60 MiB", "committed 7"}) {
        EXPECT_NE(line.find(part), std::string::npos) << part << " in " << line;
    }
    const std::string live = live_line_of(record, 200);
    for (const char* part : {"7/100 loss 3.2500 mean 3.5000", "500 tok/s", "ETA 3 min 06 s", "1.50+0.00 GB/s",
                             "wait 25%", "pool 50/60 MiB"}) {
        EXPECT_NE(live.find(part), std::string::npos) << part << " in " << live;
    }
    for (const std::string& text : {line, live, json_of(record)})
        EXPECT_EQ(text.find("updated"), std::string::npos) << text;
}

TEST(StepRecord, SaysThatAStepWasUpdatedAgain) {
    const StepRecord record{.step = 7, .steps = 100, .updated_again = true};
    EXPECT_NE(line_of(record).find("  updated again"), std::string::npos);
    EXPECT_NE(live_line_of(record, 79).find("  updated again  "), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(json_of(record))["updated_again"], true);
}

TEST(StepRecord, ANarrowTerminalGetsWholeFieldsAndTheMostWanted) {
    const StepRecord record{.step = 12345,
                            .steps = 100000,
                            .committed = 12345,
                            .loss = 3.25,
                            .smooth_loss = 3.5,
                            .learning_rate = 6e-4,
                            .tokens = 1000,
                            .seconds = 2,
                            .wait_weights_seconds = 0.5,
                            .seconds_left = 7200};
    EXPECT_EQ(live_line_of(record, 79),
              "12345/100000 loss 3.2500 mean 3.5000  lr 0.0006  0.00+0.00 GB/s  ETA 2 h 00 min");
    EXPECT_EQ(live_line_of(record, 78), "12345/100000 loss 3.2500 mean 3.5000  lr 0.0006  0.00+0.00 GB/s");
    EXPECT_EQ(live_line_of(record, 10), "12345/100000 loss 3.2500 mean 3.5000")
        << "the console cuts what has no field to lose";
}

TEST(StepRecord, ALiveLineNamesTheCommittedStepWhereItIsAnother) {
    StepRecord record{.step = 8, .steps = 100, .committed = 5};
    EXPECT_NE(live_line_of(record, 79).find("  committed 5  "), std::string::npos);
    record.committed = 8;
    EXPECT_EQ(live_line_of(record, 79).find("committed"), std::string::npos);
    record.committed.reset();
    EXPECT_NE(live_line_of(record, 79).find("  scratch  "), std::string::npos);
}

TEST(StepRecord, DurationsAreRounded) {
    EXPECT_EQ(duration_text(0.4), "0 s");
    EXPECT_EQ(duration_text(59.4), "59 s");
    EXPECT_EQ(duration_text(59.6), "1 min 00 s");
    EXPECT_EQ(duration_text(7384), "2 h 03 min");
}

}  // namespace
}  // namespace penstock::trainer
