#include "bench/harness/measure.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <stdexcept>

namespace penstock::bench {
namespace {

void one_figure(Report& report) {
    report.add({.name = "share", .unit = "", .rounds = {1, 2, 3, 4, 5}});
}

TEST(Measure, WritesTheResultAndNothingElse) {
    std::ostringstream out, log;
    EXPECT_EQ(measure("pool", one_figure, ResultFormat::json, out, log), ExitCode::ok);
    const auto json = nlohmann::json::parse(out.str());
    EXPECT_EQ(json["verb"], "pool");
    EXPECT_TRUE(json["facts"].contains("kernel"));
    EXPECT_FALSE(json.contains("error"));
    EXPECT_EQ(log.str(), "");
}

TEST(Measure, PrintsWhatThereIsBeforeTheError) {
    const auto fails = [](Report& report) {
        one_figure(report);
        throw Error(ExitCode::storage, "the drive is gone");
    };
    std::ostringstream table, json, log;
    EXPECT_EQ(measure("io", fails, ResultFormat::table, table, log), ExitCode::storage);
    EXPECT_NE(table.str().find("share  "), std::string::npos) << table.str();
    EXPECT_EQ(log.str(), "penstock: error: the drive is gone\n");
    EXPECT_EQ(measure("io", fails, ResultFormat::json, json, log), ExitCode::storage);
    EXPECT_EQ(nlohmann::json::parse(json.str())["error"], "the drive is gone");
}

TEST(Measure, WritesNothingOfAReportThatKeepsQuiet) {
    std::ostringstream out, log;
    const auto quiet = [](Report& report) {
        one_figure(report);
        report.keep_quiet();
    };
    EXPECT_EQ(measure("ranks", quiet, ResultFormat::json, out, log), ExitCode::ok);
    const auto told_elsewhere = [&](Report& report) {
        quiet(report);
        throw Error(ExitCode::peer_lost, "rank 1 has ended");
    };
    EXPECT_EQ(measure("ranks", told_elsewhere, ResultFormat::json, out, log), ExitCode::peer_lost);
    EXPECT_EQ(out.str() + log.str(), "");
}

TEST(Measure, WritesNoResultWithoutFigures) {
    std::ostringstream out, log;
    const auto usage = [](Report&) { throw Error(ExitCode::usage, "no such directory"); };
    EXPECT_EQ(measure("io", usage, ResultFormat::json, out, log), ExitCode::usage);
    const auto broken = [](Report&) { throw std::runtime_error("a surprise"); };
    EXPECT_EQ(measure("io", broken, ResultFormat::json, out, log), ExitCode::internal);
    EXPECT_EQ(out.str(), "");
    EXPECT_EQ(log.str(), "penstock: error: no such directory\npenstock: error: a surprise\n");
}

TEST(Measure, FailsWhenTheResultCannotBeWritten) {
    std::ostringstream log;
    std::ostream out(nullptr);
    EXPECT_EQ(measure("io", one_figure, ResultFormat::table, out, log), ExitCode::storage);
    EXPECT_NE(log.str().find("cannot write the result"), std::string::npos);
}

}  // namespace
}  // namespace penstock::bench
