// Forwards alone through the C interface: what is refused by name, and what a look at a directory says.
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/capi/penstock_look.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

class ForwardsSessionTest : public CallerTest {
   protected:
    struct Seen {
        penstock_status status = PENSTOCK_OK;
        penstock_look look = {.struct_bytes = sizeof(penstock_look)};
        std::map<std::string, std::string> values;
        std::string message;
    };
    static Seen look_at(const std::string& directory) {
        Seen seen;
        penstock_error error{};
        const auto take = [](const penstock_value* value, void* user) {
            static_cast<Seen*>(user)->values[value->key] = {static_cast<const char*>(value->data), value->bytes};
        };
        seen.status = penstock_session_look(directory.c_str(), &seen.look, take, &seen, &error);
        seen.message = error.message;
        return seen;
    }
    // A run of one step with a value.
    void train() const {
        SessionCaller caller(path());
        ASSERT_OK(caller.open());
        caller.backward(2);
        const penstock_value value = {"epoch", "3", 1};
        caller.step.values = &value;
        caller.step.value_count = 1;
        ASSERT_OK(caller.update(1));
    }
};

TEST_F(ForwardsSessionTest, WhatWantsAGradientAnUpdateOrAWriteIsRefusedByName) {
    train();
    SessionCaller caller(path());
    caller.options.forwards = 1;
    ASSERT_OK(caller.open());
    const Refused refused{caller};
    penstock_gradient gradient = {.struct_bytes = sizeof gradient};
    double norm = 0;
    int begun = 0;
    const float zeros[7000] = {};
    penstock_session* session = caller.session;
    refused(penstock_session_open_gradient(session, 0, 0, &gradient, &caller.error), "forwards alone");
    refused(penstock_session_gradient(session, 0, 0, &gradient, &caller.error), "forwards alone");
    refused(penstock_session_clear_gradient(session, 0, 0, &caller.error), "forwards alone");
    refused(penstock_session_gradient_norm(session, &norm, &caller.error), "forwards alone");
    refused(penstock_session_begin_step(session, &caller.step, &begun, &caller.error), "forwards alone");
    refused(caller.update(2), "an update: the session was opened for forwards alone");
    refused(penstock_session_write(session, 0, 0, PENSTOCK_WEIGHT, zeros, sizeof zeros, &caller.error), "only read");
    refused(penstock_session_begin_snapshot(session, (path() + "-kept").c_str(), &caller.error), "a snapshot");
    std::vector<float> moment(7000);
    refused(penstock_session_read(session, 0, 0, PENSTOCK_MOMENT0, moment.data(), 4 * moment.size(), &caller.error),
            "a master or a moment");
    // What needs none of them goes on.
    EXPECT_OK(penstock_session_clear_gradients(session, &caller.error));
    EXPECT_OK(penstock_session_settle(session, &caller.error));
    EXPECT_NE(caller.read(0, 0)[5], 5 / 64.0F);
    for (const penstock_pass pass : {PENSTOCK_INFERENCE, PENSTOCK_TRAINING}) {
        EXPECT_OK(penstock_session_begin_pass(session, pass, &caller.error));
        const std::uint32_t unit = 1;
        penstock_unit_memory memory{};
        EXPECT_OK(penstock_session_visit(session, &unit, 1, nullptr, 0, &memory, &caller.error));
        EXPECT_NE(memory.trainable, nullptr);
        EXPECT_NE(memory.frozen, nullptr);
        EXPECT_OK(penstock_session_end_pass(session, &caller.error));
    }
}

TEST_F(ForwardsSessionTest, AGradientThatIsAddedWhileTheUpdateIsDeferredWaitsForItOrIsRefused) {
    SessionCaller caller(path());
    caller.options.update_order = PENSTOCK_DEFERRED;
    ASSERT_OK(caller.open());
    caller.backward(2);
    ASSERT_OK(caller.update(1));
    penstock_gradient gradient = {.struct_bytes = sizeof gradient};
    EXPECT_OK(penstock_session_begin_pass(caller.session, PENSTOCK_TRAINING, &caller.error));
    Refused{caller}(penstock_session_open_gradient(caller.session, 0, 0, &gradient, &caller.error),
                    "the last update of unit 'first' is deferred to a visit");
    EXPECT_OK(penstock_session_end_pass(caller.session, &caller.error));
    const std::vector<float> before = [&] {
        EXPECT_OK(penstock_session_open_gradient(caller.session, 0, 0, &gradient, &caller.error));
        return caller.read(0, 0);
    }();
    EXPECT_EQ(gradient.fresh, 1);
    EXPECT_NE(before[5], 5 / 64.0F);  // updated
}

// Of "last", which has nothing of its own, the table's update is not its own to make.
TEST_F(ForwardsSessionTest, AGradientOfWhatIsBorrowedWaitsForTheOwnersUpdateOrIsRefused) {
    SessionCaller caller(path());
    caller.options.update_order = PENSTOCK_DEFERRED;
    caller.units[2].parameter_count = 0;
    ASSERT_OK(caller.open());
    penstock_gradient gradient = {.struct_bytes = sizeof gradient};
    for (const auto& [unit, parameter] : {std::pair{0U, 0U}, {1U, 0U}, {1U, 2U}}) {
        ASSERT_OK(penstock_session_open_gradient(caller.session, unit, parameter, &gradient, &caller.error));
        std::fill_n(static_cast<float*>(gradient.data), gradient.numel, 2.0F);
    }
    ASSERT_OK(caller.update(1));
    EXPECT_OK(penstock_session_begin_pass(caller.session, PENSTOCK_TRAINING, &caller.error));
    Refused{caller}(penstock_session_open_gradient(caller.session, 2, 0, &gradient, &caller.error),
                    "the last update of unit 'first' is deferred to a visit");
    EXPECT_OK(penstock_session_end_pass(caller.session, &caller.error));
    EXPECT_OK(penstock_session_open_gradient(caller.session, 2, 0, &gradient, &caller.error));
    EXPECT_EQ(gradient.fresh, 1);
    EXPECT_OK(penstock_session_begin_pass(caller.session, PENSTOCK_TRAINING, &caller.error));
    EXPECT_OK(penstock_session_end_pass(caller.session, &caller.error));
    EXPECT_OK(penstock_session_clear_gradients(caller.session, &caller.error));
}

TEST_F(ForwardsSessionTest, ALookSaysWhatADirectoryHolds) {
    EXPECT_EQ(look_at(path()).look.content, PENSTOCK_CONTENT_NOTHING);  // nor a directory
    train();
    const Seen run = look_at(path());
    EXPECT_EQ(run.look.content, PENSTOCK_CONTENT_STORE);
    EXPECT_EQ(run.look.generation, 1U);
    EXPECT_EQ(run.look.in_use, 0);
    EXPECT_EQ(run.values.at("epoch"), "3");
    {
        SessionCaller caller(path());
        caller.options.snapshots = 1;
        ASSERT_OK(caller.open());
        EXPECT_EQ(look_at(path()).look.in_use, 1);
        EXPECT_OK(penstock_session_begin_snapshot(caller.session, (path() + "-kept").c_str(), &caller.error));
        EXPECT_OK(penstock_session_finish_snapshot(caller.session, &caller.error));
    }
    EXPECT_EQ(look_at(path() + "-kept").look.content, PENSTOCK_CONTENT_SNAPSHOT);
    EXPECT_EQ(look_at(path() + "-kept").values.at("epoch"), "3");
    penstock_error error{};
    penstock_look look = {.struct_bytes = 3};
    EXPECT_EQ(penstock_session_look(path().c_str(), &look, nullptr, nullptr, &error), PENSTOCK_USAGE);
    look.struct_bytes = sizeof look;
    EXPECT_EQ(penstock_session_look(nullptr, &look, nullptr, nullptr, &error), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_session_look(path().c_str(), &look, nullptr, nullptr, &error), PENSTOCK_OK);
}

TEST_F(ForwardsSessionTest, AProgramThatIsLinkedWithShorterOptionsTrainsAsEver) {
    SessionCaller caller(path());
    caller.options.struct_bytes = offsetof(penstock_session_options, forwards);
    ASSERT_OK(caller.open());
    caller.backward(2);
    EXPECT_OK(caller.update(1));
}

}  // namespace
}  // namespace penstock::testing
