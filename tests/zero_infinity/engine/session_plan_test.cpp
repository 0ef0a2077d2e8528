#include "zero_infinity/plan/session_plan.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/engine/run.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::testing {
namespace {

zero::ModelSpec spec_of(const RunOptions& options) {
    return {.units = make_toy_model(options.model)->specs(), .optimizers = options.optimizers()};
}

// What is refused here is refused before a directory is made or a device is asked.
TEST(SessionPlan, TouchesNothing) {
    const TemporaryDirectory directory;
    const RunOptions options = toy_run(directory.path());
    const zero::SessionPlan plan(spec_of(options), options.session, ample_room(), {});
    EXPECT_EQ(plan.format.codec->name, options.session.codec);
    EXPECT_EQ(plan.layout.unit_count(), plan.model.units.size());
    EXPECT_LE(plan.memory.budget.used_bytes(), options.session.host_budget_bytes);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SessionPlan, ABudgetThatDoesNotFitIsRefusedWithTheTableOfUses) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    options.session.host_budget_bytes = 8192;
    const std::string words = refusal_of(
        ExitCode::does_not_fit, [&] { zero::SessionPlan(spec_of(options), options.session, ample_room(), {}); });
    EXPECT_NE(words.find("host_budget_bytes"), std::string::npos) << words;
    EXPECT_NE(words.find(zero::gradients_use), std::string::npos) << words;
}

TEST(SessionPlan, WhatHostMemoryHoldsIsWrittenByACommitAlone) {
    const TemporaryDirectory directory;
    RunOptions options = toy_run(directory.path());
    const auto step_bytes = [&](zero::Residency residency) {
        options.session.residency = residency;
        return zero::SessionPlan(spec_of(options), options.session, ample_room(), {}).step_bytes;
    };
    const zero::StepBytes nvme = step_bytes({zero::Tier::nvme, zero::Tier::nvme});
    EXPECT_GT(nvme.read, nvme.write);
    EXPECT_EQ(nvme.resident_write, 0U);
    const zero::StepBytes host = step_bytes({zero::Tier::host, zero::Tier::host});
    EXPECT_EQ(host.read, 0U);
    EXPECT_EQ(host.write, 0U);
    EXPECT_EQ(host.resident_write, nvme.write);
    EXPECT_EQ(host.mean(zero::Durability::scratch), 0);
    EXPECT_EQ(host.mean({4}), static_cast<double>(nvme.write) / 4);
    EXPECT_EQ(nvme.mean({4}), static_cast<double>(nvme.read + nvme.write));
}

}  // namespace
}  // namespace penstock::testing
