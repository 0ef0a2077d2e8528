#include "bench/io/comparison.h"

#include <gtest/gtest.h>

namespace penstock::bench {
namespace {

Series series(const std::string& who, double gigabytes_per_second, double cpu_seconds_per_gigabyte) {
    Series made{.who = who, .rounds = {}};
    for (std::uint64_t gigabytes : {1, 2, 3}) {
        const auto amount = static_cast<double>(gigabytes);
        made.rounds.push_back({.bytes = gigabytes * 1'000'000'000,
                               .seconds = amount / gigabytes_per_second,
                               .cpu_seconds = amount * cpu_seconds_per_gigabyte});
    }
    return made;
}

TEST(Comparison, HoldsRatiosAgainstTheirTargets) {
    Report report("io");
    report_comparison(report, "read", series("penstock", 4, 0.02), {series("huge", 5, 0.01), series("usual", 2, 0.04)},
                      {FioMemory::huge_pages, FioMemory::usual}, Promise::bulk);
    const Figure* rate = report.find("read: penstock");
    ASSERT_NE(rate, nullptr);
    EXPECT_EQ(rate->unit, "GB/s");
    EXPECT_DOUBLE_EQ(rate->median(), 4);
    const Figure* huge = report.find("read: penstock ÷ huge");
    ASSERT_NE(huge, nullptr);
    EXPECT_DOUBLE_EQ(huge->median(), 0.8);
    EXPECT_DOUBLE_EQ(huge->target.value().at_least, 0.95);
    EXPECT_DOUBLE_EQ(huge->target->aim, 0.98);
    const Figure* usual = report.find("read: penstock ÷ usual");
    ASSERT_NE(usual, nullptr);
    EXPECT_DOUBLE_EQ(usual->median(), 2);
    EXPECT_DOUBLE_EQ(usual->target.value().at_least, 0.95 * 2.5);  // fio's own two differ by 2.5
    const Figure* cpu = report.find("read: CPU of penstock ÷ huge");
    ASSERT_NE(cpu, nullptr);
    EXPECT_DOUBLE_EQ(cpu->median(), 2);
    EXPECT_DOUBLE_EQ(cpu->target.value().at_least, 1.3);
    EXPECT_EQ(cpu->target->better, Target::Better::lower);
    EXPECT_FALSE(report.find("read: CPU of penstock ÷ usual")->target);
}

TEST(Comparison, TargetsAreJudgedAsTheyAreShown) {
    Report report("io");
    report_comparison(report, "read", series("penstock", 4, 0.02),
                      {series("huge", 2.871, 0.01), series("usual", 1, 0.04)},
                      {FioMemory::huge_pages, FioMemory::usual}, Promise::bulk);
    const Figure* usual = report.find("read: penstock ÷ usual");
    ASSERT_NE(usual, nullptr);
    EXPECT_DOUBLE_EQ(usual->target.value().at_least, 2.727);  // 0.95 x 2.871 = 2.72745
    EXPECT_DOUBLE_EQ(usual->target->aim, 2.814);
}

TEST(Comparison, WithoutAPromiseNothingIsJudged) {
    Report report("io");
    report_comparison(report, "mixed", series("penstock", 4, 0.02), {series("usual", 5, 0.01)}, {FioMemory::usual},
                      Promise::none);
    for (const Figure& figure : report.figures()) EXPECT_FALSE(figure.target) << figure.name;
}

TEST(Comparison, NoCpuTimeIsNoDivisor) {
    Report report("io");
    report_comparison(report, "read", series("penstock", 4, 0.02), {series("huge", 5, 0)}, {FioMemory::huge_pages},
                      Promise::bulk);
    EXPECT_EQ(report.find("read: CPU of penstock ÷ huge"), nullptr);
    EXPECT_NE(report.find("read: penstock ÷ huge"), nullptr);
}

TEST(Comparison, WithoutFioOursStandsAlone) {
    Report report("io");
    report_comparison(report, "read", series("penstock", 4, 0.02), {}, {}, Promise::bulk);
    EXPECT_EQ(report.figures().size(), 2U);
}

}  // namespace
}  // namespace penstock::bench
