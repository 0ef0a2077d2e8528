#include "aio/statistics.h"
#include "aio/words/io_error.h"

#include <gtest/gtest.h>

#include <memory>

namespace penstock::aio {
namespace {

TEST(IoStatistics, SumsItsLanesPerDirection) {
    const auto statistics = std::make_unique<IoStatistics>();
    for (std::size_t i = 0; i < urgency_count; ++i) {
        statistics->read[i].bytes = 1ULL << i;
        statistics->write[i].bytes = 100ULL << i;
        statistics->read[i].attempts = i;
        statistics->write[i].attempts = 10;
        statistics->read[i].resumed = 1;
        statistics->write[i].resumed = 2;
        statistics->read[i].retried = 3;
        statistics->write[i].retried = 4;
    }
    EXPECT_EQ(statistics->total_read_bytes(), 15U);
    EXPECT_EQ(statistics->total_write_bytes(), 1500U);
    EXPECT_EQ(statistics->total_attempts(), 46U);
    EXPECT_EQ(statistics->total_resumed(), 12U);
    EXPECT_EQ(statistics->total_retried(), 28U);
}

TEST(IoStatistics, FindsALaneByKindAndClass) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto statistics = std::make_unique<IoStatistics>();
    EXPECT_EQ(&statistics->lane(IoKind::read, Urgency::prefetch), &statistics->read[1]);
    EXPECT_EQ(&statistics->lane(IoKind::write, Urgency::write_back), &statistics->write[2]);
    EXPECT_DEATH(statistics->lane(IoKind::flush, Urgency::demand), "a flush belongs to no class");
}

}  // namespace
}  // namespace penstock::aio
