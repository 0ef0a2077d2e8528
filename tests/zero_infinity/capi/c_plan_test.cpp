// What the C interface says of a session before there is one.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/capi/penstock_look.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace penstock::testing {
namespace {

class CPlanTest : public ::testing::Test {
   protected:
    std::string path() const { return parent_ / "store"; }
    const TemporaryDirectory parent_;
};

penstock_status ask(SessionCaller& caller, penstock_plan& plan) {
    return penstock_session_plan(&caller.model, &caller.options, &plan, &caller.error);
}

// What a plan says is what the session that is opened then has; and asking touches nothing.
TEST_F(CPlanTest, APlanIsWhatAnOpenSessionReports) {
    SessionCaller caller(path());
    caller.options.states = PENSTOCK_HOST;
    caller.options.commit_steps = 4;
    penstock_plan plan = {.struct_bytes = sizeof plan};
    ASSERT_EQ(ask(caller, plan), PENSTOCK_OK) << caller.error.message;
    EXPECT_FALSE(std::filesystem::exists(path()));
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
    penstock_session_info info = {.struct_bytes = sizeof info};
    ASSERT_EQ(penstock_session_get_info(caller.session, &info, &caller.error), PENSTOCK_OK);
    EXPECT_STREQ(plan.memory_table, info.memory_table);
    EXPECT_EQ(plan.pool_bytes, info.pool_bytes);
    EXPECT_EQ(plan.prefetch_depth, info.prefetch_depth);
    EXPECT_EQ(plan.planned_bytes, info.planned_bytes);
    EXPECT_EQ(plan.device_bytes, 0U);
    EXPECT_EQ(plan.parameters, 7000U + 5000 + 300 + 9 + 1);
    EXPECT_EQ(plan.trainable_parameters, 7000U + 5000 + 9 + 1);
    EXPECT_GT(plan.resident_write_bytes, 0U);
    EXPECT_EQ(plan.planned_bytes, static_cast<double>(plan.read_bytes + plan.write_bytes) +
                                      static_cast<double>(plan.resident_write_bytes) / 4);
    std::uint64_t used = 0;
    for (std::uint32_t i = 0; i < plan.use_count; ++i) used += plan.uses[i].bytes;
    EXPECT_EQ(used, info.pool_bytes) << "no budget was given: the limit is what is used";
}

TEST_F(CPlanTest, APlanKnowsWhatTheStoreTakesOfItsDirectories) {
    for (const int scratch : {0, 1}) {
        SessionCaller caller(path() + std::to_string(scratch));
        caller.options.scratch = scratch;
        caller.options.snapshots = 0;
        penstock_plan plan = {.struct_bytes = sizeof plan};
        ASSERT_EQ(ask(caller, plan), PENSTOCK_OK) << caller.error.message;
        ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
        std::uint64_t bytes = 0;
        for (const char* file : {"data", "manifest.0", "manifest.1"})
            bytes += std::filesystem::file_size(path() + std::to_string(scratch) + "/" + file);
        EXPECT_EQ(plan.store_bytes, bytes);
    }
}

TEST_F(CPlanTest, ABudgetThatIsFilledIsReadFromLess) {
    SessionCaller caller(path());
    penstock_plan bare = {.struct_bytes = sizeof bare}, plan = bare;
    ASSERT_EQ(ask(caller, bare), PENSTOCK_OK) << caller.error.message;
    EXPECT_GT(bare.available_bytes, bare.pool_bytes);
    caller.options.fill_host_budget = 1;
    EXPECT_EQ(ask(caller, plan), PENSTOCK_USAGE);
    EXPECT_STREQ(
        caller.error.message,
        "fill_host_budget without a host_budget_bytes: there is nothing to fill; say how much memory may be taken");
    caller.options.host_budget_bytes = bare.pool_bytes + (1 << 20);
    ASSERT_EQ(ask(caller, plan), PENSTOCK_OK) << caller.error.message;
    EXPECT_GT(bare.read_bytes, 0U);
    EXPECT_EQ(plan.read_bytes, 0U) << plan.memory_table;
    EXPECT_EQ(plan.write_bytes + plan.resident_write_bytes, bare.write_bytes + bare.resident_write_bytes);
    ASSERT_EQ(caller.open(), PENSTOCK_OK) << caller.error.message;
    penstock_session_info info = {.struct_bytes = sizeof info};
    ASSERT_EQ(penstock_session_get_info(caller.session, &info, &caller.error), PENSTOCK_OK);
    EXPECT_STREQ(plan.memory_table, info.memory_table);
}

// Of each rank, what others give it and get from it; and of one rank what a plan says of it.
TEST_F(CPlanTest, APlanOfRanksIsOfEachAndSaysWhatGoesBetweenThem) {
    SessionCaller caller(path());
    caller.options.snapshots = 0;
    penstock_plan alone = {.struct_bytes = sizeof alone}, plan = alone;
    penstock_ranks_plan of_ranks = {.struct_bytes = sizeof of_ranks};
    const auto ask_ranks = [&](std::uint32_t ranks, std::uint32_t of_node, std::uint64_t passes) {
        return penstock_session_plan_ranks(&caller.model, &caller.options, ranks, of_node, passes, &plan, &of_ranks,
                                           &caller.error);
    };
    ASSERT_EQ(ask(caller, alone), PENSTOCK_OK) << caller.error.message;
    ASSERT_EQ(ask_ranks(1, 0, 1), PENSTOCK_OK) << caller.error.message;
    EXPECT_STREQ(plan.memory_table, alone.memory_table);
    EXPECT_EQ(of_ranks.gathered_bytes + of_ranks.exchanged_bytes + of_ranks.first_gathered_bytes, 0U);
    ASSERT_EQ(ask_ranks(4, 2, 3), PENSTOCK_OK) << caller.error.message;
    EXPECT_FALSE(std::filesystem::exists(path()));
    EXPECT_LT(plan.write_bytes + plan.resident_write_bytes, alone.write_bytes + alone.resident_write_bytes);
    EXPECT_EQ(plan.parameters, alone.parameters);
    EXPECT_EQ(of_ranks.ranks, 4U);
    EXPECT_EQ(of_ranks.ranks_of_node, 2U);
    EXPECT_GE(of_ranks.first_gathered_bytes, of_ranks.gathered_bytes);
    EXPECT_GT(of_ranks.exchanged_bytes, 0U);
    EXPECT_EQ(of_ranks.zero_bytes[3], 4 * static_cast<double>(plan.parameters));
    EXPECT_NE(std::string(of_ranks.text).find("2 of a node"), std::string::npos) << of_ranks.text;
    EXPECT_EQ(ask_ranks(0, 0, 1), PENSTOCK_USAGE);
    caller.options.snapshots = 1;
    EXPECT_EQ(ask_ranks(2, 0, 1), PENSTOCK_OK) << caller.error.message;
    caller.options.gradients = PENSTOCK_GRADIENTS_NVME;
    EXPECT_EQ(ask_ranks(2, 0, 1), PENSTOCK_USAGE);
    EXPECT_STREQ(caller.error.message, "gradients \"nvme\" with 2 ranks comes later: leave it out");
}

TEST_F(CPlanTest, APlanThatDoesNotFitIsRefusedWithTheTableAndLeftAsItWas) {
    SessionCaller caller(path());
    caller.options.host_budget_bytes = 4096;
    penstock_plan plan = {.struct_bytes = sizeof plan, .pool_bytes = 7};
    EXPECT_EQ(ask(caller, plan), PENSTOCK_DOES_NOT_FIT);
    EXPECT_NE(std::string(caller.error.message).find("gradients"), std::string::npos) << caller.error.message;
    EXPECT_EQ(plan.pool_bytes, 7U);
    const std::string told = caller.error.message;
    EXPECT_EQ(caller.open(), PENSTOCK_DOES_NOT_FIT);
    EXPECT_EQ(told, caller.error.message) << "an opening says the same";
    const std::string words = "the lightest that fits: host_budget_bytes=";
    ASSERT_NE(told.find(words), std::string::npos) << told;
    EXPECT_NE(told.find("prefetch_depth=1"), std::string::npos) << told;
    EXPECT_NE(told.find("gradient_type=bf16"), std::string::npos) << told;
    caller.options.host_budget_bytes = std::stoull(told.substr(told.find(words) + words.size()));
    caller.options.prefetch_depth = 1;
    caller.options.staging_tiles = 2;
    EXPECT_EQ(ask(caller, plan), PENSTOCK_DOES_NOT_FIT) << "with sums in fp32";
    caller.options.gradient_type = PENSTOCK_BF16;
    EXPECT_EQ(ask(caller, plan), PENSTOCK_OK) << caller.error.message;
    caller.options.host_budget_bytes = 0;
    plan.struct_bytes = 8;
    EXPECT_EQ(ask(caller, plan), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_plan(&caller.model, &caller.options, nullptr, &caller.error), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_plan(nullptr, &caller.options, &plan, &caller.error), PENSTOCK_USAGE);
}

}  // namespace
}  // namespace penstock::testing
