// `penstock train --trace`: the picture shows what the run did.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using nlohmann::json;

struct Slice {
    std::string name;
    double begin = 0;  // microseconds
    double end = 0;
};

class Trace : public ::testing::Test {
   protected:
    Trace() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more) {
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        more.insert(more.begin(), {"train", "config.json", "--json"});
        return run(directory_.path(), more);
    }
    json picture() {
        std::ifstream file(directory_ / "trace.json");
        return json::parse(file);
    }
    static std::uint64_t bytes_of(const json& picture, const std::string& lane) {
        std::uint64_t bytes = 0;
        for (const json& event : picture.at("traceEvents"))
            if (event.value("cat", "") == lane) bytes += event.at("args").at("bytes").get<std::uint64_t>();
        return bytes;
    }
    static std::vector<Slice> slices_of(const json& picture, const std::string& beginning, int step) {
        std::vector<Slice> slices;
        for (const json& event : picture.at("traceEvents")) {
            const std::string name = event.at("name");
            if (event.at("ph") != "X" || !name.starts_with(beginning) || event.at("args").at("step") != step) continue;
            const double begin = event.at("ts");
            slices.push_back({name, begin, begin + event.at("dur").get<double>()});
        }
        return slices;
    }

    TemporaryDirectory directory_;
};

// In each order, to the byte: reads as the log counts them, writes as the plan does, without the manifests.
TEST_F(Trace, EveryByteOfEveryOrderIsInIt) {
    const std::vector<std::vector<std::string>> orders = {
        {"--set", "run.update_order=after_backward"},
        {"--set", "run.update_order=deferred"},
        {"--set", "run.update_order=within", "--set", "gradient_clipping=0"},
        {"--set", "run.update_order=speculative", "--set", "gradient_clipping=1000"},
    };
    for (std::vector<std::string> order : orders) {
        SCOPED_TRACE(order[1]);
        std::vector<std::string> plan = {"plan", "config.json", "--bytes-only", "--json"};
        plan.insert(plan.end(), order.begin(), order.end());
        const json planned = json::parse(run(directory_.path(), plan).output);
        order.insert(order.end(), {"--trace", "trace.json", "--trace-steps", "1..6"});
        const Ended ended = train(order);
        ASSERT_EQ(ended.code, 0) << ended.errors;
        const json summary = json::parse(ended.output);
        const json picture = this->picture();
        EXPECT_EQ(picture.at("penstock.left_out"), 0);
        EXPECT_EQ(bytes_of(picture, "NVMe write"), 6 * planned["nvme_write_bytes"].get<std::uint64_t>());
        // The last deferred update belongs to no step of the log.
        const std::uint64_t read = bytes_of(picture, "NVMe read");
        if (planned["update_order"] == "deferred") {
            EXPECT_GT(read, summary["nvme_read_bytes"].get<std::uint64_t>());
        } else {
            EXPECT_EQ(read, summary["nvme_read_bytes"].get<std::uint64_t>());
        }
        for (const json& event : picture.at("traceEvents")) EXPECT_GE(event.value("dur", 0.0), 0) << event;
    }
}

TEST_F(Trace, ShowsWhatComesBeforeWhat) {
    ASSERT_EQ(train({"--trace", "trace.json", "--trace-steps", "1..6"}).code, 0);
    const json picture = this->picture();
    for (int step = 1; step <= 6; ++step)
        for (const std::string unit : {"embedding", "blocks.0", "blocks.1", "head"}) {
            SCOPED_TRACE(unit + " in step " + std::to_string(step));
            const std::vector<Slice> computes = slices_of(picture, "compute " + unit, step);
            const std::vector<Slice> reads = slices_of(picture, "NVMe read " + unit + ".weights", step);
            ASSERT_FALSE(computes.empty());
            ASSERT_FALSE(reads.empty());
            EXPECT_LE(reads.front().end, computes.front().begin);
            std::map<std::string, double> updated;  // by tile
            for (const Slice& update : slices_of(picture, "update " + unit, step))
                updated[update.name.substr(update.name.find('['))] = update.end;
            ASSERT_FALSE(updated.empty());
            for (const Slice& write : slices_of(picture, "NVMe write " + unit, step))
                EXPECT_GE(write.begin, updated.at(write.name.substr(write.name.find('[')))) << write.name;
        }
}

TEST_F(Trace, ChangesNoBitAndHoldsTheStepsThatWereAskedFor) {
    const json traced = json::parse(train({"--trace", "trace.json"}).output);
    const json usual = json::parse(train({}).output);
    EXPECT_EQ(traced["final_loss"], usual["final_loss"]);
    const json picture = this->picture();
    for (int step = 1; step <= 6; ++step)
        EXPECT_EQ(slices_of(picture, "compute ", step).empty(), step < 3 || step > 5) << step;
}

TEST_F(Trace, OfARunThatIsStoppedIsWhole) {
    Program program(directory_.path(), penstock({"train", "config.json", "--steps", "100000", "--trace", "trace.json",
                                                 "--trace-steps", "2..100000"}));
    ASSERT_TRUE(program.says("step 5"));
    kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 75) << ended.errors;
    EXPECT_FALSE(slices_of(picture(), "compute ", 3).empty());
    EXPECT_FALSE(std::filesystem::exists(directory_ / "trace.json.partial"));
}

TEST_F(Trace, WhatIsNoFileOrNoRangeIsRefusedBeforeAnythingBegins) {
    const std::vector<std::vector<std::string>> wrong = {
        {"--trace", "nowhere/trace.json"},
        {"--trace", "."},
        {"--trace-steps", "3"},
        {"--trace", "trace.json", "--trace-steps", "5..3"},
        {"--trace", "trace.json", "--trace-steps", "0"},
        {"--trace", "trace.json", "--trace-steps", "1-3"},
    };
    for (const std::vector<std::string>& arguments : wrong) {
        const Ended refused = train(arguments);
        EXPECT_EQ(refused.code, 2) << arguments.back();
        EXPECT_NE(refused.errors.find(arguments[0]), std::string::npos) << refused.errors;
        EXPECT_FALSE(std::filesystem::exists(directory_ / "swap"));
        EXPECT_FALSE(std::filesystem::exists(directory_ / "trace.json"));
    }
}

TEST_F(Trace, AStepIsDrawnAsText) {
    ASSERT_EQ(train({"--trace", "trace.json", "--trace-steps", "1..6"}).code, 0);
    const auto drawn = [&](const std::string& step) {
        return run_command(directory_.path(), {"/usr/bin/env", "python3", PENSTOCK_SOURCE_DIR "/bench/trace_picture.py",
                                               "trace.json", "--step", step, "--width", "60"});
    };
    const Ended third = drawn("3");
    ASSERT_EQ(third.code, 0) << third.errors;
    std::istringstream lines(third.output);
    for (const std::string name : {"step 3: ", "compute", "update", "wait", "NVMe read", "NVMe write", "commit"}) {
        std::string line;
        std::getline(lines, line);
        EXPECT_TRUE(line.starts_with(name)) << line;
    }
    EXPECT_NE(drawn("7").code, 0);
}

}  // namespace
}  // namespace penstock::testing
