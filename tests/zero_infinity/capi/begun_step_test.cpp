// Steps whose units are updated within backward, as a C caller says so, and what it can do wrong there.
#include "tests/zero_infinity/capi/session_caller.h"
#include "zero_infinity/capi/penstock_look.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

class BegunStepTest : public CallerTest {};

using Values = std::vector<std::vector<float>>;

Values values_of(SessionCaller& caller) {
    Values found;
    for (const auto what : {PENSTOCK_WEIGHT, PENSTOCK_MOMENT0, PENSTOCK_MOMENT1})
        for (const std::uint32_t unit : {0U, 1U, 2U}) found.push_back(caller.read(unit, 0, what));
    return found;
}

// Its units updated within its pass, or by update() where it may not be begun; the same bits.
bool may_defer(penstock_update_order order) {
    return order == PENSTOCK_DEFERRED || order == PENSTOCK_SPECULATIVE || order == PENSTOCK_BALANCED;
}

TEST_F(BegunStepTest, AStepThatWasBegunUpdatesUnitsAsTheyAreComplete) {
    const auto trained = [&](const char* name, penstock_update_order order, double clip, std::vector<int> begun) {
        SessionCaller caller(path() + name);
        caller.options.update_order = order;
        caller.step.clip = clip;
        EXPECT_OK(caller.open());
        std::vector<Values> found;
        for (std::uint64_t number = 1; number <= begun.size(); ++number) {
            caller.step.step = number;
            int is_begun = -1;
            EXPECT_OK(penstock_session_begin_step(caller.session, &caller.step, &is_begun, &caller.error));
            EXPECT_EQ(is_begun, begun[number - 1]) << name << ", step " << number;
            caller.backward(number == 2 ? 2000 : 2, is_begun != 0);
            EXPECT_OK(caller.update(number));
            const bool left = may_defer(order) && is_begun == 0;  // to the next pass
            EXPECT_EQ(caller.report.committed, !left && caller.report.updated_again == 0);
            EXPECT_EQ(caller.report.updated_again, is_begun != 0 && clip > 0 && number == 2 ? 1 : 0);
            found.push_back(values_of(caller));
        }
        return found;
    };
    const auto unclipped = trained("unclipped", PENSTOCK_AFTER_BACKWARD, 0, {0, 0, 0});
    EXPECT_EQ(trained("in backward", PENSTOCK_IN_BACKWARD, 0, {1, 1, 1}), unclipped);
    EXPECT_EQ(trained("speculative, unclipped", PENSTOCK_SPECULATIVE, 0, {1, 1, 1}), unclipped);
    EXPECT_EQ(trained("balanced, unclipped", PENSTOCK_BALANCED, 0, {1, 1, 1}), unclipped);
    const auto clipped = trained("clipped", PENSTOCK_AFTER_BACKWARD, 1000, {0, 0, 0});
    EXPECT_NE(clipped, unclipped);
    EXPECT_EQ(trained("in backward, clipped", PENSTOCK_IN_BACKWARD, 1000, {0, 0, 0}), clipped);
    EXPECT_EQ(trained("speculative", PENSTOCK_SPECULATIVE, 1000, {0, 1, 1}), clipped) << "at first as after clips";
    EXPECT_EQ(trained("balanced", PENSTOCK_BALANCED, 1000, {0, 1, 1}), clipped);
}

TEST_F(BegunStepTest, WithinSaysApartWhatTheOlderWordsSayTogether) {
    const auto begun = [&](penstock_update_order order, int clips, const char* share, double clip) {
        SessionCaller caller(path() + fmt::format("{} {} {} {}", static_cast<int>(order), clips, share, clip));
        const std::string settings = fmt::format(R"({{"run.deferred_share": {}}})", share);
        caller.options.update_order = order;
        caller.options.clips = clips;
        if (*share != '\0') caller.options.settings = settings.c_str();
        caller.step.clip = clip;
        EXPECT_OK(caller.open());
        std::vector<int> all;
        for (std::uint64_t number = 1; number <= 3; ++number) {
            caller.step.step = number;
            int is_begun = -1;
            EXPECT_OK(penstock_session_begin_step(caller.session, &caller.step, &is_begun, &caller.error));
            caller.backward(number == 2 ? 2000 : 2, is_begun != 0);
            EXPECT_OK(caller.update(number));
            all.insert(all.end(), {is_begun, caller.report.committed, caller.report.updated_again});
        }
        return all;
    };
    for (const double clip : {0.0, 1000.0}) {
        EXPECT_EQ(begun(PENSTOCK_WITHIN, 1, "", clip), begun(PENSTOCK_SPECULATIVE, 0, "0", clip));
        EXPECT_EQ(begun(PENSTOCK_WITHIN, 1, "\"auto\"", clip), begun(PENSTOCK_BALANCED, 0, "", clip));
        EXPECT_EQ(begun(PENSTOCK_WITHIN, 1, "0.5", clip), begun(PENSTOCK_BALANCED, 1, "0.5", clip));
    }
}

TEST_F(BegunStepTest, OptionsThatDoNotGoTogetherAreRefusedBeforeAnythingIsOpened) {
    SessionCaller caller(path());
    const auto check = [&] { return penstock_session_check(&caller.options, &caller.error); };
    caller.options.update_order = PENSTOCK_WITHIN;
    EXPECT_OK(check());
    caller.options.clips = 1;
    EXPECT_OK(check());
    caller.options.commit_steps = 2;
    caller.options.states = PENSTOCK_HOST;
    Refused{caller}(check(), "it needs commit_steps 1 in a store that is kept, states \"nvme\"; or take \"deferred\"");
    Refused{caller}(caller.open(), "it needs commit_steps 1 in a store that is kept");
    caller.options.clips = 0;
    EXPECT_OK(check());
    caller.options.settings = R"({"run.update_order": "deferred", "run.deferred_share": 0.5})";
    Refused{caller}(check(), "deferred_share has no effect with update_order \"deferred\"");
    caller.options.settings = R"({"run.update_order": "balanced", "run.commit_every": 1})";
    EXPECT_OK(check());
    for (const auto& [settings, words] :
         {std::pair{R"({"run.deferred_share": 1.5})",
                    "key 'run.deferred_share' is 1.5 (a number with a fraction); expected "
                    "\"auto\", or a number from 0 to 1"},
          {R"({"run.commit_every": 0})", "expected an integer from 1 to 1000000000000, or \"scratch\""},
          {R"({"model.layers": 2})",
           "key 'model.layers' is none of a session's, which are data_types.grad_accum_dtype"},
          {"[]", "settings are a list; expected keys and their values"},
          {"{", "settings"}}) {
        caller.options.settings = settings;
        Refused{caller}(check(), words);
    }
    EXPECT_EQ(penstock_session_check(nullptr, &caller.error), PENSTOCK_USAGE);
    EXPECT_FALSE(std::filesystem::exists(path()));
}

// To the same bits, but at no address.
TEST_F(BegunStepTest, GradientsMayBeOnNvme) {
    const auto trained = [&](penstock_gradients gradients) {
        SessionCaller caller(path() + std::to_string(gradients));
        caller.options.update_order = PENSTOCK_DEFERRED;
        caller.options.gradients = gradients;
        EXPECT_OK(caller.open());
        for (std::uint64_t number = 1; number <= 3; ++number) {
            caller.backward(2);
            penstock_gradient sum = {.struct_bytes = sizeof sum};
            const penstock_status found = penstock_session_gradient(caller.session, 0, 0, &sum, &caller.error);
            EXPECT_EQ(found, gradients == PENSTOCK_GRADIENTS_NVME ? PENSTOCK_USAGE : PENSTOCK_OK);
            EXPECT_OK(caller.update(number));
        }
        return values_of(caller);
    };
    EXPECT_EQ(trained(PENSTOCK_GRADIENTS_NVME), trained(PENSTOCK_GRADIENTS_HOST));
    SessionCaller caller(path());
    caller.options.gradients = static_cast<penstock_gradients>(7);
    Refused{caller}(caller.open(), "there are no gradients 7");
}

TEST_F(BegunStepTest, WhatAStepThatWasBegunForbidsIsRefusedAndTheStepGoesOn) {
    SessionCaller caller(path());
    caller.options.update_order = PENSTOCK_IN_BACKWARD;
    ASSERT_OK(caller.open());
    penstock_session* s = caller.session;
    penstock_error* e = &caller.error;
    penstock_unit_memory memory{};
    penstock_gradient sum = {.struct_bytes = sizeof sum};
    int begun = 0;
    float value = 0;
    const Refused refused{caller};
    refused(penstock_session_complete(s, 0, e), "no step was begun");
    refused(penstock_session_begin_step(s, nullptr, &begun, e), "step is NULL");
    caller.step.step = 1;
    refused(penstock_session_begin_step(s, &caller.step, nullptr, e), "begun is NULL");
    caller.step.may_skip = 1;
    EXPECT_OK(penstock_session_begin_step(s, &caller.step, &begun, e));
    EXPECT_EQ(begun, 0) << "it may be skipped";
    caller.step.may_skip = 0;
    EXPECT_OK(penstock_session_begin_step(s, &caller.step, &begun, e));
    EXPECT_EQ(begun, 1);
    refused(penstock_session_begin_step(s, &caller.step, &begun, e), "within step 1, which was begun");
    refused(penstock_session_settle(s, e), "a commit within step 1, which was begun: update it first");
    refused(penstock_session_read(s, 0, 0, PENSTOCK_WEIGHT, &value, 28000, e), "within step 1");
    refused(penstock_session_write(s, 0, 0, PENSTOCK_WEIGHT, &value, 28000, e), "within step 1");
    refused(penstock_session_begin_snapshot(s, "x", e), "within step 1");
    EXPECT_OK(penstock_session_begin_pass(s, PENSTOCK_INFERENCE, e)) << "nothing is complete";
    refused(penstock_session_complete(s, 0, e), "no step was begun, or no pass of training");
    EXPECT_OK(penstock_session_begin_pass(s, PENSTOCK_TRAINING, e));
    EXPECT_OK(penstock_session_clear_gradients(s, e));
    std::uint32_t unit = 2;
    EXPECT_OK(penstock_session_visit(s, &unit, 1, nullptr, 0, &memory, e));
    EXPECT_OK(penstock_session_open_gradient(s, 2, 0, &sum, e));
    *static_cast<float*>(sum.data) = 2;
    EXPECT_OK(penstock_session_open_gradient(s, 2, 1, &sum, e));
    std::fill_n(static_cast<float*>(sum.data), sum.numel, 2.0F);
    refused(penstock_session_complete(s, 3, e), "there is no unit 3");
    refused(penstock_session_complete(s, 0, e), "the last visit does not name it");
    EXPECT_OK(penstock_session_complete(s, 1, e)) << "which is resident";
    EXPECT_OK(penstock_session_complete(s, 2, e));
    EXPECT_OK(penstock_session_complete(s, 2, e)) << "again";
    refused(penstock_session_open_gradient(s, 2, 0, &sum, e), "was said to have all of this step");
    refused(penstock_session_begin_pass(s, PENSTOCK_TRAINING, e), "another pass within step 1");
    refused(penstock_session_clear_gradients(s, e), "clearing gradients within step 1");
    refused(penstock_session_clear_gradient(s, 0, 0, e), "clearing a gradient within step 1");
    for (unit = 2; unit-- > 0;) {
        EXPECT_OK(penstock_session_visit(s, &unit, 1, nullptr, 0, &memory, e));
        for (std::uint32_t parameter = 0; parameter < 3; ++parameter) {
            if (penstock_session_open_gradient(s, unit, parameter, &sum, e) != PENSTOCK_OK) continue;
            std::fill_n(static_cast<float*>(sum.data), sum.numel, 2.0F);
        }
        if (unit == 0) {
            EXPECT_OK(penstock_session_complete(s, unit, e));
        }
    }
    refused(penstock_session_open_gradient(s, 2, 1, &sum, e), "unit 'last' was said to have all of this step");
    EXPECT_OK(penstock_session_end_pass(s, e));
    refused(caller.update(2), "an update of step 2 with other values than step 1 was begun with");
    caller.groups[0].learning_rate *= 2;
    refused(caller.update(1), "with other values");
    caller.groups[0].learning_rate /= 2;
    caller.step.clip = 3;
    refused(caller.update(1), "with other values");
    caller.step.clip = 0;
    EXPECT_OK(caller.update(1));
    EXPECT_OK(penstock_session_settle(s, e));
    EXPECT_OK(penstock_session_begin_pass(s, PENSTOCK_INFERENCE, e));
    caller.step.step = 2;
    refused(penstock_session_begin_step(s, &caller.step, &begun, e), "that is not one of training");
}

TEST_F(BegunStepTest, AGradientThatIsMissingEndsAStepThatWasBegun) {
    {
        SessionCaller caller(path());
        caller.options.update_order = PENSTOCK_IN_BACKWARD;
        ASSERT_OK(caller.open());
        caller.step.step = 1;
        int begun = 0;
        EXPECT_OK(penstock_session_begin_step(caller.session, &caller.step, &begun, &caller.error));
        EXPECT_OK(penstock_session_begin_pass(caller.session, PENSTOCK_TRAINING, &caller.error));
        const std::uint32_t unit = 0;
        penstock_unit_memory memory{};
        EXPECT_OK(penstock_session_visit(caller.session, &unit, 1, nullptr, 0, &memory, &caller.error));
        EXPECT_EQ(penstock_session_complete(caller.session, 0, &caller.error), PENSTOCK_USAGE);
        EXPECT_NE(std::string(caller.error.message).find("no gradient came to unit 'first'"), std::string::npos);
        EXPECT_EQ(penstock_session_end_pass(caller.session, &caller.error), PENSTOCK_POISONED);
    }
    SessionCaller caller(path());
    ASSERT_OK(caller.open());
    EXPECT_EQ(caller.read(0, 0)[5], 5 / 64.0F);
}

}  // namespace
}  // namespace penstock::testing
