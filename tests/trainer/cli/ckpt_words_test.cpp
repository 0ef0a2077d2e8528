#include "trainer/cli/ckpt_words.h"

#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace penstock::trainer {
namespace {

TEST(CkptWords, BytesAreCountedAsDrivesCountThem) {
    EXPECT_EQ(size_text(0), "0 B");
    EXPECT_EQ(size_text(999), "999 B");
    EXPECT_EQ(size_text(1000), "1.00 kB");
    EXPECT_EQ(size_text(999'999), "1.00 MB");
    EXPECT_EQ(size_text(1'520'000'000), "1.52 GB");
    EXPECT_EQ(size_text(UINT64_MAX), "18446.74 PB");
}

TEST(CkptWords, TimesAreUtcAndAnyNumberIsTaken) {
    EXPECT_EQ(time_text(0), "1970-01-01 00:00:00 UTC");
    EXPECT_EQ(time_text(1'795'233'252), "2026-11-21 03:54:12 UTC");
    EXPECT_EQ(time_text(UINT64_MAX), "at an impossible time");
}

TEST(CkptWords, ValuesAreShortAndNeverControlTheTerminal) {
    EXPECT_EQ(value_text("42"), "42");
    EXPECT_EQ(value_text(""), "");
    EXPECT_EQ(value_text("\x1b[2J"), "<4 bytes>");
    EXPECT_EQ(value_text("\xff"), "<1 bytes>");
    EXPECT_EQ(value_text("\xc2\x9b"
                         "2J"),
              "<4 bytes>");
    EXPECT_EQ(value_text("\xc2\xa0"), "\xc2\xa0");
    EXPECT_EQ(value_text(std::string(60, 'x')), std::string(60, 'x'));
    EXPECT_EQ(value_text(std::string(61, 'x')), std::string(60, 'x') + "… <61 bytes>");
    EXPECT_EQ(value_text(std::string(59, 'x') + "éé"), std::string(59, 'x') + "… <63 bytes>");
}

TEST(CkptWords, JsonTakesAnyBytes) {
    EXPECT_EQ(json_of_value("é"), "é");
    EXPECT_EQ(json_of_value("\x01"), "\x01");
    EXPECT_EQ(json_of_value("\xff\x0a")["hex"], "ff0a");
    EXPECT_EQ(nlohmann::json::parse(dump({{"\xff", 1}})).size(), 1U);
    EXPECT_EQ(json_of_step({{"step", "12"}}), 12);
    EXPECT_TRUE(json_of_step({{"step", "12a"}}).is_null());
    EXPECT_EQ(json_of_step({{"micro_steps", "24"}, {"updates", "12"}}), 12);  // of the Python package
    EXPECT_TRUE(json_of_step({}).is_null());
}

TEST(CkptWords, ColumnsAreAligned) {
    EXPECT_EQ(table_text({{"A", "BB", "C"}, {"long", "b", "c"}}), "A     BB  C\nlong  b   c\n");
}

TEST(CkptWords, ProgressHasABarARateAndATimeLeft) {
    EXPECT_EQ(progress_text({.done_bytes = 0, .total_bytes = 4'000'000'000, .seconds = 0}),
              "[....................]   0 %  0 B of 4.00 GB  0.00 GB/s  ETA ?");
    EXPECT_EQ(progress_text({.done_bytes = 1'000'000'000, .total_bytes = 4'000'000'000, .seconds = 2}),
              "[#####...............]  25 %  1.00 GB of 4.00 GB  0.50 GB/s  ETA 6 s");
    EXPECT_EQ(progress_text({.done_bytes = 7, .total_bytes = 7, .seconds = 1}),
              "[####################] 100 %  7 B of 7 B  7 B/s  ETA 0 s");
    EXPECT_EQ(progress_text({}).substr(0, 28), "[####################] 100 %");
}

TEST(CkptWords, InAFileProgressIsALinePerTenth) {
    std::ostringstream text;
    spdlog::logger logger("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text));
    Console console(logger, Console::Kind::file);
    ProgressLine line(console, "verify");
    for (std::uint64_t done = 1; done <= 1000; ++done) line.show(done, 1000);
    const std::string all = text.str();
    EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 10);
    EXPECT_NE(all.find("] 100 %"), std::string::npos) << all;
}

}  // namespace
}  // namespace penstock::trainer
