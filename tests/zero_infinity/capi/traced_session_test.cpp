// The picture of some steps of a session that is called by its C interface.
#include "tests/zero_infinity/capi/session_caller.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <set>

namespace penstock::testing {
namespace {

using nlohmann::json;

class TracedSession : public CallerTest {
   protected:
    TracedSession() { caller.options.trace = trace.c_str(); }

    void train(std::uint64_t steps) {
        for (std::uint64_t step = 1; step <= steps; ++step) {
            caller.backward(1);
            ASSERT_OK(caller.update(step));
        }
    }
    json slices() const {
        json all = json::array();
        const json file = json::parse(std::ifstream(trace));
        for (const json& event : file.at("traceEvents"))
            if (event.at("ph") == "X") all.push_back(event);
        return all;
    }
    std::set<std::uint64_t> traced_steps() const {
        std::set<std::uint64_t> steps;
        for (const json& slice : slices()) steps.insert(slice.at("args").at("step").get<std::uint64_t>());
        return steps;
    }

    std::string trace = parent_ / "step.json";
    SessionCaller caller{path()};
};

TEST_F(TracedSession, HasTheStepsThatWereAskedForWithAllThatHappenedInThem) {
    caller.options.trace_first_step = 2;
    caller.options.trace_steps = 2;
    ASSERT_OK(caller.open());
    train(4);
    EXPECT_FALSE(std::filesystem::exists(trace));
    EXPECT_OK(penstock_session_end(caller.session, &caller.error));
    EXPECT_EQ(traced_steps(), (std::set<std::uint64_t>{2, 3}));
    const std::string text = slices().dump();
    for (const char* word : {"compute first", "update second", "NVMe read second.states", "NVMe write", "commit"})
        EXPECT_NE(text.find(word), std::string::npos) << word;
    EXPECT_FALSE(std::filesystem::exists(trace + ".partial"));
}

// An unknown file there would be in the way of the next opening, and one of the store's would be gone.
TEST_F(TracedSession, ATraceAmongTheFilesOfTheStoreIsRefusedBeforeItIsMade) {
    for (const char* name : {"step.json", "data", "lock", "kept/step.json"}) {
        trace = path() + "/" + name;
        caller.options.trace = trace.c_str();
        EXPECT_EQ(caller.open(), PENSTOCK_USAGE) << name;
        EXPECT_NE(std::string(caller.error.message).find("store's directory"), std::string::npos)
            << caller.error.message;
        EXPECT_FALSE(std::filesystem::exists(path()));
    }
}

TEST_F(TracedSession, HasThreeFromTheThirdOnUnlessSaid) {
    ASSERT_OK(caller.open());
    train(7);
    caller.close();
    EXPECT_EQ(traced_steps(), (std::set<std::uint64_t>{3, 4, 5}));
}

TEST_F(TracedSession, APathThatCannotBeWrittenIsRefusedBeforeAnythingBegins) {
    for (const std::string& wrong : {std::string(parent_ / "nowhere/step.json"), std::string(parent_.path())}) {
        caller.options.trace = wrong.c_str();
        EXPECT_EQ(caller.open(), PENSTOCK_USAGE);
        EXPECT_NE(std::string(caller.error.message).find("options.trace"), std::string::npos) << caller.error.message;
        EXPECT_FALSE(std::filesystem::exists(path()));
    }
}

// The store has what was committed.
TEST_F(TracedSession, OneThatCannotBeWrittenInTheEndIsTold) {
    const std::string folder = parent_ / "folder";
    std::filesystem::create_directory(folder);
    trace = folder + "/step.json";
    caller.options.trace = trace.c_str();
    ASSERT_OK(caller.open());
    train(3);
    std::filesystem::remove_all(folder);
    EXPECT_EQ(penstock_session_end(caller.session, &caller.error), PENSTOCK_STORAGE);
    EXPECT_NE(std::string(caller.error.message).find("step.json"), std::string::npos) << caller.error.message;
    caller.close();
    caller.options.trace = nullptr;
    ASSERT_OK(caller.open());
    penstock_session_info info{.struct_bytes = sizeof info};
    EXPECT_OK(penstock_session_get_info(caller.session, &info, &caller.error));
    EXPECT_EQ(info.resumed, 1);
}

}  // namespace
}  // namespace penstock::testing
