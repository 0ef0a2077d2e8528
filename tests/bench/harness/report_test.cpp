#include "bench/harness/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <sstream>

namespace penstock::bench {
namespace {

Figure figure(const std::string& name, std::vector<double> rounds, std::optional<Target> target = std::nullopt) {
    return {.name = name, .unit = "", .rounds = std::move(rounds), .target = target};
}

std::string printed(const Report& report) {
    std::ostringstream out;
    report.print(out);
    return out.str();
}

TEST(Figure, TakesTheMiddleOfItsRoundsWhateverTheirOrder) {
    const Figure odd = figure("odd", {9, 1, 5});
    EXPECT_EQ(odd.median(), 5);
    EXPECT_EQ(odd.low(), 1);
    EXPECT_EQ(odd.high(), 9);
    EXPECT_EQ(figure("even", {4, 1, 3, 100}).median(), 3.5);
    EXPECT_DEATH(figure("none", {}).median(), "none has no rounds");
}

TEST(Figure, DividesRoundByRound) {
    const Figure share = ratio("share", figure("a", {2, 9}), figure("b", {4, 3}));
    EXPECT_EQ(share.rounds, (std::vector<double>{0.5, 3}));
    EXPECT_DEATH(ratio("share", figure("a", {2}), figure("b", {4, 3})), "a has 1 rounds, b has 2");
    EXPECT_DEATH(ratio("share", figure("a", {2}), figure("b", {0})), "round 1 of b is 0");
}

TEST(Target, JudgesInBothDirectionsAndABoundIsMet) {
    const Target more{.at_least = 0.95, .aim = 0.98};
    EXPECT_EQ(more.judge(0.98), Verdict::met);
    EXPECT_EQ(more.judge(0.95), Verdict::aim_missed);
    EXPECT_EQ(more.judge(0.949), Verdict::at_least_missed);
    const Target less{.at_least = 1.01, .aim = 1.005, .better = Target::Better::lower};
    EXPECT_EQ(less.judge(1.005), Verdict::met);
    EXPECT_EQ(less.judge(1.01), Verdict::aim_missed);
    EXPECT_EQ(less.judge(1.011), Verdict::at_least_missed);
}

TEST(Report, ShowsTheVerdictOfEachTarget) {
    Report report("io");
    report.add(figure("good", {0.99, 0.99, 0.99, 0.99, 0.99}, Target{.at_least = 0.95, .aim = 0.98}));
    report.add(figure("bad", {2, 2, 2, 2, 2}, Target{1.3, 1.0, Target::Better::lower}));
    const std::string text = printed(report);
    EXPECT_NE(text.find(">= 0.95, aim 0.98: met"), std::string::npos) << text;
    EXPECT_NE(text.find("<= 1.3, aim 1: at least missed"), std::string::npos) << text;
    EXPECT_EQ(text.find("fewer than"), std::string::npos) << text;
    const auto json = nlohmann::json::parse(report.json());
    EXPECT_EQ(json["figures"][0]["target"]["at_least"], 0.95);
    EXPECT_EQ(json["figures"][0]["target"]["verdict"], "met");
    EXPECT_EQ(json["figures"][1]["target"]["at_most"], 1.3);
    EXPECT_EQ(json["figures"][1]["target"]["verdict"], "at least missed");
}

TEST(Report, ShowsThreeDecimalsOfATargetAtMost) {
    Report report("io");
    report.add(figure("long", {3}, Target{.at_least = 2.72745, .aim = 2.8135800000000001}));
    report.add(figure("exact", {3}, Target{1.01, 1.005, Target::Better::lower}));
    report.add(figure("whole", {3}, Target{.at_least = 1.0, .aim = 100}));
    const std::string text = printed(report);
    EXPECT_NE(text.find(">= 2.727, aim 2.814: met"), std::string::npos) << text;
    EXPECT_NE(text.find("<= 1.01, aim 1.005: at least missed"), std::string::npos) << text;
    EXPECT_NE(text.find(">= 1, aim 100: aim missed"), std::string::npos) << text;
}

TEST(Report, MarksFiguresOfTooFewRounds) {
    Report report("io");
    report.add(figure("hasty", {1, 2, 3, 4}));
    report.add(figure("calm", {1, 2, 3, 4, 5}));
    const std::string text = printed(report);
    EXPECT_NE(text.find("     4*  "), std::string::npos) << text;
    EXPECT_NE(text.find("* fewer than 5 rounds"), std::string::npos) << text;
    const auto json = nlohmann::json::parse(report.json());
    EXPECT_EQ(json["figures"][0]["few_rounds"], true);
    EXPECT_FALSE(json["figures"][1].contains("few_rounds"));
}

TEST(Report, IsOneJsonObjectWithEverythingThatWasSaid) {
    Report report("pool");
    report.fact("directory", "\xff odd");
    report.add(figure("share", {1, 2}));
    report.command("fio --rw=read");
    report.note("left out: nothing");
    auto json = nlohmann::json::parse(report.json());
    EXPECT_EQ(json["format"], 1);
    EXPECT_EQ(json["verb"], "pool");
    EXPECT_EQ(json["figures"][0]["rounds"], nlohmann::json({1, 2}));
    EXPECT_EQ(json["commands"], nlohmann::json({"fio --rw=read"}));
    EXPECT_EQ(json["notes"], nlohmann::json({"left out: nothing"}));
    EXPECT_FALSE(json.contains("error"));
    report.fail("disk full");
    json = nlohmann::json::parse(report.json());
    EXPECT_EQ(json["error"], "disk full");
    EXPECT_EQ(json["figures"].size(), 1U);
}

TEST(Report, RefusesAFigureTwiceOrWithoutSense) {
    Report report("io");
    report.add(figure("share", {1}));
    EXPECT_DEATH(report.add(figure("share", {2})), "there is a figure named share already");
    EXPECT_DEATH(report.add(figure("empty", {})), "empty has no rounds");
    EXPECT_DEATH(report.add(figure("odd", {std::nan("")})), "a round of odd");
}

}  // namespace
}  // namespace penstock::bench
