#include "trainer/run/summary.h"

#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace penstock::trainer {
namespace {

Summary example() {
    return {.steps = 20,
            .steps_run = 10,
            .resumed_from_step = 10,
            .committed = 20,
            .params = 100,
            .trainable_params = 80,
            .first_loss = 5.5,
            .final_loss = 0.1 + 0.2,
            .tokens_per_step = 64,
            .step_seconds_total = 2,
            .step_seconds_p50 = 0.2,
            .nvme_read_bytes = 12800,
            .nvme_write_bytes = 9600,
            .steps_updated_again = 3,
            .checkpoint = "swap",
            .store = "uuid",
            .log = "log",
            .sample = "text \xff"};
}

TEST(Summary, DividesTrafficByTrainableParametersAndOwnSteps) {
    EXPECT_EQ(example().bytes_per_param_step(), 28);
    EXPECT_EQ(example().tokens_per_second(), 320);
    EXPECT_EQ(Summary{}.bytes_per_param_step(), 0);
    EXPECT_EQ(Summary{}.tokens_per_second(), 0);
}

TEST(Summary, IsOneJsonObjectWithThePromisedKeys) {
    const std::string text = json_of(example());
    EXPECT_EQ(text.find('\n'), std::string::npos);
    const auto object = nlohmann::json::parse(text);
    for (const char* key :
         {"steps", "params", "first_loss", "final_loss", "tokens_per_s", "step_seconds_p50", "nvme_read_bytes",
          "nvme_write_bytes", "bytes_per_param_step", "pool_peak_bytes", "pool_budget_bytes", "activation_peak_bytes",
          "resumed_from_step", "committed", "steps_updated_again", "checkpoint", "sample"}) {
        EXPECT_TRUE(object.contains(key)) << key;
    }
}

TEST(Summary, ComesBackFromItsFile) {
    const TemporaryDirectory directory;
    Summary summary = example();
    summary.sample = "text";
    save(summary, directory / "summary.json");
    const auto back = load_summary(directory / "summary.json");
    ASSERT_TRUE(back);
    EXPECT_EQ(json_of(*back), json_of(summary));
    summary.final_loss.reset();
    summary.committed.reset();
    save(summary, directory / "summary.json");
    EXPECT_FALSE(load_summary(directory / "summary.json")->final_loss);
    EXPECT_FALSE(load_summary(directory / "summary.json")->committed);
}

TEST(Summary, IsNotReadFromABrokenFile) {
    const TemporaryDirectory directory;
    EXPECT_FALSE(load_summary(directory / "summary.json"));
    testing::write_file(directory / "summary.json", json_of(example()).substr(0, 50));
    EXPECT_FALSE(load_summary(directory / "summary.json"));
    testing::write_file(directory / "summary.json", "{\"steps\": \"many\"}");
    EXPECT_FALSE(load_summary(directory / "summary.json"));
}

TEST(Summary, MedianIsTheMiddle) {
    EXPECT_EQ(median({}), 0);
    EXPECT_EQ(median({3, 1, 2}), 2);
    EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(Summary, PeakRssIsRead) {
    EXPECT_GT(peak_rss_bytes(), 1U << 20);
}

}  // namespace
}  // namespace penstock::trainer
