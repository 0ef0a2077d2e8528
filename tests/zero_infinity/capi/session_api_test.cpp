// The session's C interface: what it does is the C++ session's; here it is what crosses, and what a C caller can do
// wrong.
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/ranks/capi/penstock_ranks.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace penstock::testing {
namespace {

class SessionApiTest : public CallerTest {};

float bf16(const void* memory, std::size_t index) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(memory) + 2 * index, 2);
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &wide, 4);
    return value;
}

// AdamW's first step is the learning rate, whatever the gradient's size.
TEST_F(SessionApiTest, AStepUpdatesEachGroupByItsOwnValuesAndIsFoundAgain) {
    {
        SessionCaller caller(path());
        ASSERT_OK(caller.open());
        const std::vector<float> table = caller.read(0, 0), matrix = caller.read(1, 0);
        EXPECT_EQ(table[5], 5 / 64.0F);
        caller.backward(2);
        double norm = 0;
        EXPECT_OK(penstock_session_gradient_norm(caller.session, &norm, &caller.error));
        EXPECT_NEAR(norm, std::sqrt(16.0 * 7000 + 4.0 * (5000 + 9 + 1)), 1e-6);  // the table's twice
        const penstock_value values[] = {{"epoch", "3", 1}, {"empty", nullptr, 0}};
        caller.step.values = values;
        caller.step.value_count = 2;
        caller.step.clip = 1;
        ASSERT_OK(caller.update(1));
        EXPECT_EQ(caller.report.gradient_norm, norm);
        EXPECT_EQ(caller.report.updated, 1);
        EXPECT_EQ(caller.report.committed, 1);
        EXPECT_NEAR(caller.read(0, 0)[5], table[5] - 0.5, 1e-4);
        EXPECT_NEAR(caller.read(1, 0)[5], matrix[5] - 0.25, 1e-4);
        EXPECT_NEAR(caller.read(0, 0, PENSTOCK_MOMENT0)[5], 0.1 * 4 / norm, 1e-6);
    }
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    penstock_session_info info = {.struct_bytes = sizeof info};
    EXPECT_OK(penstock_session_get_info(caller.session, &info, &caller.error));
    EXPECT_EQ(info.resumed, 1);
    EXPECT_NE(std::string(info.memory_table).find("gradients"), std::string::npos);
    EXPECT_NE(std::string(info.io), "");
    EXPECT_GT(info.pool_bytes, 0U);
    std::string found;
    penstock_value value{};
    for (std::size_t i = 0; penstock_session_value_at(caller.session, i, &value, &caller.error) == PENSTOCK_OK; ++i)
        found += std::string(value.key) + "=" + std::string(static_cast<const char*>(value.data), value.bytes) + ";";
    EXPECT_NE(found.find("empty=;epoch=3;"), std::string::npos) << found;
    EXPECT_EQ(caller.error.status, PENSTOCK_NOT_FOUND);
}

TEST_F(SessionApiTest, ADeferredStepIsCommittedByTheNext) {
    {
        SessionCaller caller(path());
        caller.options.update_order = PENSTOCK_DEFERRED;
        ASSERT_OK(caller.open());
        const std::vector<float> table = caller.read(0, 0);
        for (std::uint64_t step = 1; step <= 2; ++step) {
            caller.backward(2);
            ASSERT_OK(caller.update(step));
            EXPECT_EQ(caller.report.committed, 0);
            EXPECT_EQ(caller.report.committed_before, 1) << "generation 0, then step 1";
        }
        EXPECT_NEAR(caller.read(0, 0)[5], table[5] - 2 * 0.5, 1e-4) << "which finishes step 2 and commits it";
        caller.backward(2);
        ASSERT_OK(caller.update(3));
    }
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    EXPECT_NEAR(caller.read(0, 0)[5], 5 / 64.0F - 2 * 0.5, 1e-4);
}

TEST_F(SessionApiTest, MemoryIsWhatPlacesSay) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    penstock_unit_memory resident{}, visited{};
    EXPECT_OK(penstock_session_resident(caller.session, 1, &resident, &caller.error));
    EXPECT_OK(penstock_session_begin_pass(caller.session, PENSTOCK_INFERENCE, &caller.error));
    const std::uint32_t units[] = {1, 0};
    penstock_unit_memory memory[2]{};
    EXPECT_OK(penstock_session_visit(caller.session, units, 2, nullptr, 0, memory, &caller.error));
    EXPECT_EQ(memory[0].trainable, resident.trainable);
    EXPECT_EQ(memory[0].frozen, resident.frozen);
    EXPECT_EQ(memory[1].frozen, nullptr);
    penstock_place place = {.struct_bytes = sizeof place};
    EXPECT_OK(penstock_session_place(caller.session, 1, 2, &place, &caller.error));
    EXPECT_EQ(place.numel, 9U);
    EXPECT_EQ(place.type, PENSTOCK_FP32);
    float nine = 0;
    std::memcpy(&nine, static_cast<const char*>(memory[0].trainable) + place.offset_bytes + 4 * 3, 4);
    EXPECT_EQ(nine, static_cast<float>((31 + 34 + 3) % 64) / 64);
    EXPECT_OK(penstock_session_place(caller.session, 1, 1, &place, &caller.error));
    EXPECT_EQ(place.frozen, 1);
    EXPECT_EQ(place.type, PENSTOCK_BF16);
    EXPECT_EQ(bf16(memory[0].frozen, 3), static_cast<float>((31 + 17 + 3) % 64) / 64);
    // Held, it stays; what borrows the table brings it.
    const std::uint32_t next[] = {0, 2}, held[] = {0};
    penstock_unit_memory after[2]{};
    EXPECT_OK(penstock_session_visit(caller.session, next, 2, held, 1, after, &caller.error));
    EXPECT_EQ(after[0].trainable, memory[1].trainable);
    EXPECT_OK(penstock_session_end_pass(caller.session, &caller.error));
    EXPECT_OK(penstock_session_resident(caller.session, 1, &visited, &caller.error));
    EXPECT_EQ(visited.trainable, resident.trainable);
}

TEST_F(SessionApiTest, WhatIsWrittenIsReadAndASnapshotGoesBackBehindIt) {
    const std::string kept = parent_ / "kept";
    {
        SessionCaller caller(path());
        ASSERT_OK(caller.open());
        EXPECT_OK(penstock_session_begin_snapshot(caller.session, kept.c_str(), &caller.error));
        EXPECT_OK(penstock_session_finish_snapshot(caller.session, &caller.error));
        penstock_snapshot_progress progress = {.struct_bytes = sizeof progress};
        EXPECT_OK(penstock_session_snapshot_progress(caller.session, &progress, &caller.error));
        EXPECT_EQ(progress.under_way, 0);
        const std::vector<float> other(7000, 0.75F), frozen(300, 0.5F);
        EXPECT_OK(penstock_session_write(caller.session, 0, 0, PENSTOCK_WEIGHT, other.data(), 28000, &caller.error));
        EXPECT_OK(penstock_session_write(caller.session, 1, 1, PENSTOCK_WEIGHT, frozen.data(), 1200, &caller.error));
        EXPECT_EQ(caller.read(0, 0), other);
        std::vector<std::uint16_t> read(300);
        EXPECT_OK(penstock_session_read(caller.session, 1, 1, PENSTOCK_WEIGHT, read.data(), 600, &caller.error));
        EXPECT_EQ(bf16(read.data(), 299), 0.5F);
        penstock_unit_memory resident{};
        EXPECT_OK(penstock_session_resident(caller.session, 1, &resident, &caller.error));
        EXPECT_EQ(bf16(resident.frozen, 299), 0.5F);
        EXPECT_EQ(penstock_session_begin_snapshot(caller.session, kept.c_str(), &caller.error), PENSTOCK_OK);
        EXPECT_EQ(penstock_session_finish_snapshot(caller.session, &caller.error), PENSTOCK_STORAGE) << "it is there";
        caller.backward(1);
        EXPECT_OK(caller.update(1));
    }
    SessionCaller caller(path());
    caller.options.resume_from = kept.c_str();
    caller.options.go_back = 1;
    ASSERT_OK(caller.open());
    EXPECT_EQ(caller.read(0, 0)[5], 5 / 64.0F);
}

TEST_F(SessionApiTest, GradientsAreReadChangedAndCleared) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    penstock_gradient sum = {.struct_bytes = sizeof sum};
    EXPECT_EQ(penstock_session_gradient(caller.session, 0, 0, &sum, &caller.error), PENSTOCK_NOT_FOUND);
    caller.backward(1);
    caller.backward(1);
    EXPECT_OK(penstock_session_gradient(caller.session, 1, 2, &sum, &caller.error));
    EXPECT_EQ(*static_cast<float*>(sum.data), 2);
    EXPECT_EQ(sum.type, PENSTOCK_FP32);
    *static_cast<float*>(sum.data) = std::numeric_limits<float>::infinity();
    EXPECT_EQ(caller.update(1), PENSTOCK_NON_FINITE);
    EXPECT_NE(std::string(caller.error.message).find("'b'"), std::string::npos) << caller.error.message;
    caller.step.may_skip = 1;
    EXPECT_OK(caller.update(1));
    EXPECT_EQ(caller.report.updated, 0);
    caller.backward(1);
    EXPECT_OK(penstock_session_clear_gradient(caller.session, 2, 0, &caller.error));  // may be without
    EXPECT_OK(caller.update(1));
    EXPECT_EQ(caller.report.updated, 1);
    caller.backward(1);
    EXPECT_OK(penstock_session_clear_gradients(caller.session, &caller.error));
    EXPECT_EQ(caller.update(2), PENSTOCK_USAGE);
    EXPECT_NE(std::string(caller.error.message).find("parameters 'table'"), std::string::npos) << caller.error.message;
}

TEST_F(SessionApiTest, AnErrorThatEndsTheSessionIsToldByAllLaterCalls) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    caller.backward(1);
    caller.groups[0].learning_rate = 1e300;
    EXPECT_EQ(caller.update(1), PENSTOCK_NON_FINITE);
    EXPECT_EQ(penstock_session_begin_pass(caller.session, PENSTOCK_TRAINING, &caller.error), PENSTOCK_POISONED);
    EXPECT_NE(std::string(caller.error.message).find("step 1 makes unit 'second'"), std::string::npos)
        << caller.error.message;
    EXPECT_EQ(penstock_session_note(caller.session, 0), nullptr);
    caller.close();
    caller.groups[0].learning_rate = 0.5;
    ASSERT_OK(caller.open());
    EXPECT_EQ(caller.read(0, 0)[5], 5 / 64.0F);
}

TEST_F(SessionApiTest, ASessionThatEndedGivesItsStoreBackAndKeepsItsMemory) {
    SessionCaller first(path()), second(path());
    ASSERT_EQ(first.open(), PENSTOCK_OK) << first.error.message;
    EXPECT_EQ(second.open(), PENSTOCK_STORAGE);
    EXPECT_EQ(second.session, nullptr);
    penstock_unit_memory resident{};
    ASSERT_EQ(penstock_session_resident(first.session, 1, &resident, &first.error), PENSTOCK_OK);
    EXPECT_EQ(penstock_session_end(first.session, &first.error), PENSTOCK_OK);
    EXPECT_EQ(second.open(), PENSTOCK_OK) << second.error.message;
    EXPECT_EQ(*static_cast<const float*>(resident.trainable), 31 / 64.0F);
    EXPECT_EQ(penstock_session_settle(first.session, &first.error), PENSTOCK_POISONED);
    EXPECT_EQ(penstock_session_end(first.session, &first.error), PENSTOCK_OK);
}

TEST_F(SessionApiTest, FirstWeightsThatAreRefusedLeaveNoStore) {
    SessionCaller caller(path());
    caller.first_status = PENSTOCK_STORAGE;
    EXPECT_EQ(caller.open(), PENSTOCK_STORAGE);
    EXPECT_STREQ(caller.error.message, "the file ends early");
    caller.options.first_weights = nullptr;
    EXPECT_EQ(caller.open(), PENSTOCK_USAGE);
    EXPECT_STREQ(caller.error.message, "options.first_weights is NULL, and there is no store to go on from");
    SessionCaller other(path());
    EXPECT_EQ(other.open(), PENSTOCK_OK) << other.error.message;
}

// One thing at a time is wrong with what opens a session.
TEST_F(SessionApiTest, AnOpeningWithWrongArgumentsIsRefusedByName) {
    const std::pair<const char*, std::function<void(SessionCaller&)>> wrong[] = {
        {"model.struct_bytes", [](auto& c) { c.model.struct_bytes = 0; }},
        {"the model has no units", [](auto& c) { c.model.unit_count = 0; }},
        {"the model has no groups", [](auto& c) { c.model.groups = nullptr; }},
        {"model.unit_struct_bytes", [](auto& c) { c.model.unit_struct_bytes = 3; }},
        {"model.parameter_struct_bytes", [](auto& c) { c.model.parameter_struct_bytes = 0; }},
        {"model.group_struct_bytes", [](auto& c) { c.model.group_struct_bytes = 1 << 20; }},
        {"there is no optimizer 9", [](auto& c) { c.model.optimizer = static_cast<penstock_optimizer>(9); }},
        {"a unit's name is NULL", [](auto& c) { c.units[1].name = nullptr; }},
        {"the parameters of unit 'second' are NULL", [](auto& c) { c.units[1].parameters = nullptr; }},
        {"there is no type 7", [](auto& c) { c.units[1].frozen_type = static_cast<penstock_type>(7); }},
        {"a parameter's name is NULL", [](auto& c) { c.first[0].name = nullptr; }},
        {"a parameter's shape is NULL", [](auto& c) { c.first[0].shape = nullptr; }},
        {"has 65 dimensions", [](auto& c) { c.first[0].dimensions = 65; }},
        {"is in group 2 of 2", [](auto& c) { c.first[0].group = 2; }},
        {"no parameter is in group 0", [](auto& c) { c.first[0].group = c.second[2].group = c.last[0].group = 1; }},
        {"penstock_unused 4", [](auto& c) { c.first[0].unused = static_cast<penstock_unused>(4); }},
        {"borrows parameter 5 of unit 0", [](auto& c) { c.borrowed[0].parameter = 5; }},
        {"beta1", [](auto& c) { c.groups[1].beta1 = 1.5; }},
        {"options name no directory", [](auto& c) { c.options.directory_count = 0; }},
        {"options.job is NULL", [](auto& c) { c.options.job = nullptr; }},
        {"options.struct_bytes", [](auto& c) { c.options.struct_bytes = 8; }},
        {"there is no tier 2", [](auto& c) { c.options.weights = static_cast<penstock_tier>(2); }},
        {"there is no device -1", [](auto& c) { c.options.device = static_cast<penstock_device>(-1); }},
        {"there is no order of updates 5",
         [](auto& c) { c.options.update_order = static_cast<penstock_update_order>(5); }},
        {"there is no verify 3", [](auto& c) { c.options.verify = static_cast<penstock_verify>(3); }},
        {"there is no backend 8", [](auto& c) { c.options.backend = static_cast<penstock_backend>(8); }},
        {"there is no caching 2", [](auto& c) { c.options.caching = static_cast<penstock_caching>(2); }},
        {"there is no codec 'zip'", [](auto& c) { c.options.codec = "zip"; }},
        {"the values are NULL", [](auto& c) { c.options.value_count = 1; }},
        {"4097", [](auto& c) { c.options.tile_elements = 4097; }},
    };
    for (const auto& [text, change] : wrong) {
        SessionCaller caller(path());
        change(caller);
        EXPECT_EQ(caller.open(), PENSTOCK_USAGE) << text;
        EXPECT_NE(std::string(caller.error.message).find(text), std::string::npos) << caller.error.message;
        EXPECT_EQ(caller.session, nullptr);
    }
    SessionCaller caller(path());
    EXPECT_EQ(penstock_session_open(nullptr, &caller.options, &caller.session, &caller.error), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_open(&caller.model, nullptr, &caller.session, &caller.error), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_open(&caller.model, &caller.options, nullptr, &caller.error), PENSTOCK_USAGE);
    caller.options.host_budget_bytes = 4096;
    EXPECT_EQ(caller.open(), PENSTOCK_DOES_NOT_FIT);
}

// A call that is refused, in words that hold the text.
// Nothing that a caller does out of turn ends the process, and the session goes on.
TEST_F(SessionApiTest, CallsOutOfTurnAreRefusedAndNothingHasChanged) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    penstock_session* s = caller.session;
    penstock_error* e = &caller.error;
    penstock_unit_memory memory[3]{};
    penstock_gradient sum = {.struct_bytes = sizeof sum};
    float value = 0;
    const std::uint32_t zero[] = {0};
    const Refused refused{caller};
    refused(penstock_session_visit(s, zero, 1, nullptr, 0, memory, e), "no pass has begun");
    refused(penstock_session_resident(s, 0, memory, e), "neither visited nor resident");
    refused(penstock_session_resident(s, 3, memory, e), "there is no unit 3");
    refused(penstock_session_open_gradient(s, 1, 1, &sum, e), "is frozen");
    refused(penstock_session_open_gradient(s, 2, 2, &sum, e), "has no parameter 2");
    refused(penstock_session_open_gradient(s, 7, 0, &sum, e), "there is no unit 7");
    sum.struct_bytes = 1;
    refused(penstock_session_open_gradient(s, 0, 0, &sum, e), "gradient.struct_bytes");
    sum.struct_bytes = sizeof sum;
    EXPECT_EQ(penstock_session_gradient(s, 0, 0, &sum, e), PENSTOCK_NOT_FOUND) << "nothing was opened";
    refused(penstock_session_read(s, 0, 0, PENSTOCK_WEIGHT, &value, 4, e), "4 bytes for parameter 'table' of 28000");
    refused(penstock_session_read(s, 1, 1, PENSTOCK_MASTER, &value, 4, e), "it has its weight only");
    refused(penstock_session_read(s, 2, 1, PENSTOCK_WEIGHT, &value, 4, e), "no parameter 1 of its own");
    refused(penstock_session_read(s, 0, 0, static_cast<penstock_what>(4), &value, 4, e), "penstock_what 4");
    refused(penstock_session_read(s, 0, 0, PENSTOCK_WEIGHT, nullptr, 28000, e), "data is NULL");
    refused(penstock_session_write(s, 0, 0, PENSTOCK_WEIGHT, &value, 3, e), "3 bytes are no floats");
    refused(penstock_session_write(s, 0, 0, PENSTOCK_WEIGHT, &value, 4, e), "1 elements for parameter 'table' of 7000");
    refused(penstock_session_begin_snapshot(s, nullptr, e), "path is NULL");
    refused(penstock_session_begin_pass(s, static_cast<penstock_pass>(3), e), "there is no pass 3");
    float said = 3, told = 0;
    refused(penstock_session_gather(s, nullptr, &said, &told, sizeof said, e), "what is NULL");
    refused(penstock_session_gather(s, "a word", &said, nullptr, sizeof said, e), "a gather of 4 bytes wants memory");
    refused(penstock_session_gather(s, "a word", &said, &told, 0, e), "a gather of 0 bytes");
    EXPECT_OK(penstock_session_gather(s, "a word", &said, &told, sizeof said, e));
    EXPECT_EQ(told, 3) << "of one rank a copy";
    EXPECT_EQ(penstock_session_settle(nullptr, e), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_close(nullptr, e), PENSTOCK_OK);
    caller.backward(1);
    EXPECT_OK(caller.update(1));
}

TEST_F(SessionApiTest, WhatAPassForbidsIsRefusedAndThePassGoesOn) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    penstock_session* s = caller.session;
    penstock_error* e = &caller.error;
    penstock_unit_memory memory[3]{};
    double norm = 0;
    float value = 0;
    const std::uint32_t zero[] = {0}, two[] = {2}, nine[] = {9};
    const Refused refused{caller};
    EXPECT_OK(penstock_session_begin_pass(s, PENSTOCK_TRAINING, e));
    refused(penstock_session_visit(s, nine, 1, nullptr, 0, memory, e), "a visit of unit 9: the model has 3");
    refused(penstock_session_visit(s, nullptr, 1, nullptr, 0, memory, e), "units of a visit are NULL");
    refused(penstock_session_visit(s, zero, 1, zero, 1, memory, e),
            "unit 'first' is to be held, but is not of the last");
    EXPECT_OK(penstock_session_visit(s, zero, 1, nullptr, 0, memory, e));
    refused(penstock_session_visit(s, two, 1, zero, 1, memory, e), "is not of this visit");
    refused(penstock_session_gradient_norm(s, &norm, e), "within a pass");
    refused(penstock_session_settle(s, e), "within a pass");
    refused(caller.update(1), "within a pass");
    refused(penstock_session_read(s, 0, 0, PENSTOCK_WEIGHT, &value, 4, e), "within a pass");
    refused(penstock_session_write(s, 0, 0, PENSTOCK_WEIGHT, &value, 4, e), "within a pass");
    refused(penstock_session_begin_snapshot(s, "x", e), "within a pass");
    EXPECT_OK(penstock_session_end_pass(s, e));
    caller.backward(1);
    EXPECT_OK(caller.update(1));
}

TEST_F(SessionApiTest, AStepWithWrongArgumentsIsRefusedByName) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    const Refused refused{caller};
    caller.backward(1);
    refused(caller.update(0), "steps count from 1");
    const auto wrong_step = [&](const char* text, auto change) {
        const penstock_step before = caller.step;
        change(caller.step);
        refused(caller.update(1), text);
        caller.step = before;
    };
    wrong_step("step.struct_bytes", [](auto& step) { step.struct_bytes = 4; });
    wrong_step("the step has 1 groups, the model 2", [](auto& step) { step.group_count = 1; });
    wrong_step("step.group_struct_bytes", [](auto& step) { step.group_struct_bytes = 2; });
    wrong_step("a clip of -1", [](auto& step) { step.clip = -1; });
    wrong_step("a loss scale of", [](auto& step) { step.loss_scale = std::nan(""); });
    wrong_step("the values are NULL", [](auto& step) { step.value_count = 1; });
    const penstock_value own = {"penstock.x", "", 0};
    wrong_step("the key 'penstock.x'", [&](auto& step) { step.values = &own, step.value_count = 1; });
    caller.groups[0].learning_rate = std::nan("");
    refused(caller.update(1), "a learning rate of nan");
    caller.groups[0].learning_rate = 0.5;
    caller.groups[0].epsilon = -1;
    refused(caller.update(1), "epsilon");
    caller.groups[0].epsilon = 1e-8;
    EXPECT_OK(caller.update(1));
}

TEST_F(SessionApiTest, AScratchSessionCommitsNothingAndIsReadAndCopied) {
    SessionCaller caller(path());
    caller.options.scratch = 1;
    ASSERT_OK(caller.open());
    caller.backward(1);
    ASSERT_OK(caller.update(1));
    EXPECT_EQ(caller.report.committed, 0);
    EXPECT_EQ(penstock_session_settle(caller.session, &caller.error), PENSTOCK_USAGE);
    const std::vector<float> newest = caller.read(0, 0);
    EXPECT_NE(newest[5], 5 / 64.0F);
    const std::string kept = parent_ / "kept";
    EXPECT_OK(penstock_session_begin_snapshot(caller.session, kept.c_str(), &caller.error));
    EXPECT_OK(penstock_session_finish_snapshot(caller.session, &caller.error));
    SessionCaller other(parent_ / "other");
    other.options.resume_from = kept.c_str();
    ASSERT_OK(other.open());
    EXPECT_EQ(other.read(0, 0), newest);
}

// Whose threads are not there: it would wait for ever.
TEST_F(SessionApiTest, AChildOfTheProcessIsRefusedAndMayClose) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(20);
        penstock_error error{};
        const bool refused = penstock_session_settle(caller.session, &error) == PENSTOCK_USAGE &&
                             penstock_session_end(caller.session, &error) == PENSTOCK_USAGE;
        const bool closed = penstock_session_close(caller.session, &error) == PENSTOCK_OK;
        ::_exit(refused && closed ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    double norm = 1;
    penstock_error error{};
    EXPECT_EQ(penstock_session_gradient_norm(caller.session, &norm, &error), PENSTOCK_OK) << error.message;
}

TEST_F(SessionApiTest, ACallBesideAnotherIsBusyAndHarmless) {
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    std::atomic<bool> seen{false}, done{false};
    std::thread other([&] {
        penstock_error error{};
        double norm = 0;
        while (!done && !seen)
            if (penstock_session_gradient_norm(caller.session, &norm, &error) == PENSTOCK_BUSY) seen = true;
    });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!seen && std::chrono::steady_clock::now() < deadline) {
        double norm = 0;
        penstock_error error{};
        if (penstock_session_gradient_norm(caller.session, &norm, &error) == PENSTOCK_BUSY) seen = true;
    }
    done = true;
    other.join();
    EXPECT_TRUE(seen);
    caller.backward(1);
    EXPECT_OK(caller.update(1));
}

}  // namespace
}  // namespace penstock::testing
