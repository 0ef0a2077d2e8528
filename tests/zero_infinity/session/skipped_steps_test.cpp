#include "zero_infinity/session/skipped_steps.h"

#include "aio/words/error.h"
#include "tests/refusal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penstock::testing {
namespace {

// Names that no list of names could tell apart.
std::vector<zero::UnitLayout> layouts() {
    std::vector<zero::UnitLayout> all;
    for (const zero::UnitSpec& unit : {zero::UnitSpec{"a", {{"b.c", {4}}, {"d e", {4}}}},
                                       {"empty", {}},
                                       {"a.b", {{"c", {4}}, {"x", {4}}, {"y", {4}}}}})
        all.emplace_back(unit, zero::Partition{}, 4096);
    return all;
}

TEST(SkippedSteps, AreReadAsTheyWereWritten) {
    const auto units = layouts();
    zero::SkippedSteps written(units);
    EXPECT_TRUE(written.empty());
    EXPECT_EQ(written.text(), "");
    for (int step = 0; step < 3; ++step) written.add({0, 0});
    written.add({0, 1});
    written.add({2, 2});
    EXPECT_EQ(written.text(), "3 1 3:1");
    zero::SkippedSteps read(units);
    read.read(written.text());
    EXPECT_EQ(read.text(), written.text());
    EXPECT_EQ(read.of({0, 0}), 3U);
    EXPECT_EQ(read.of({0, 1}), 1U);
    EXPECT_EQ(read.of({2, 0}), 0U);
    EXPECT_EQ(read.of({2, 2}), 1U);
}

TEST(SkippedSteps, OfTwentyThousandExpertsFitTheClientState) {
    std::vector<zero::UnitLayout> units;
    zero::UnitSpec unit{.name = "experts"};
    for (int expert = 0; expert < 20000; ++expert) unit.parameters.push_back({std::to_string(expert), {1}});
    units.emplace_back(unit, zero::Partition{}, 4096);
    zero::SkippedSteps steps(units);
    for (std::uint32_t expert = 0; expert < 20000; ++expert)
        for (int step = 0; step < 100; ++step) steps.add({0, expert});
    EXPECT_LT(steps.text().size(), 200U << 10);
}

TEST(SkippedSteps, TextThatNoSessionWritesIsRefused) {
    const auto units = layouts();
    for (const char* text :
         {"x", "0", "6:1", "1 1 1 1 1 1", "2:1 4:1", ":1", "1:", "-1", "99999999999999999999", "1  1"}) {
        zero::SkippedSteps steps(units);
        EXPECT_NE(refusal_of(ExitCode::storage, [&] { steps.read(text); }).find("client state was changed"),
                  std::string::npos)
            << text;
    }
}

}  // namespace
}  // namespace penstock::testing
