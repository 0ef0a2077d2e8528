#include "zero_infinity/trace/trace_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::TraceLane;
using zero::TraceThread;

TEST(TraceJson, ParsesWhateverUnitsAreCalledAndSaysWhatWasLeftOut) {
    zero::TraceRecorder recorder(1);
    recorder.set_names({"a \"b\"\\\n"}, {"a.weights"});
    recorder.begin_step(3);
    for (const TraceThread thread : {TraceThread::compute, TraceThread::driver, TraceThread::updates})
        for (int span = 0; span < 2; ++span) recorder.add(thread, recorder.start(), {.unit = 0});
    const auto json = nlohmann::json::parse(zero::trace_json(recorder));
    EXPECT_EQ(json.at("penstock.left_out"), 3);
    const auto& span = json.at("traceEvents").back();
    EXPECT_EQ(span.at("args").at("unit"), "a \"b\"\\\n");
    EXPECT_EQ(span.at("args").at("step"), 3);
    EXPECT_EQ(span.at("ph"), "X");
}

TEST(TraceJson, UpdatesBesideComputeHaveARowOfTheirOwn) {
    zero::TraceRecorder recorder(8);
    recorder.set_names({"u"}, {});
    recorder.begin_step(1);
    for (const TraceThread thread : {TraceThread::compute, TraceThread::updates})
        recorder.add(thread, recorder.start(), {.lane = TraceLane::update, .unit = 0});
    std::map<std::string, int> rows;
    std::vector<int> spans;
    const auto json = nlohmann::json::parse(zero::trace_json(recorder));
    for (const auto& event : json.at("traceEvents")) {
        if (event.at("name") == "thread_name") rows[event.at("args").at("name")] = event.at("tid");
        if (event.at("ph") == "X") spans.push_back(event.at("tid"));
    }
    EXPECT_EQ(spans, (std::vector<int>{rows.at("compute"), rows.at("updates")}));
}

TEST(TraceJson, OfNothingIsJsonToo) {
    EXPECT_TRUE(nlohmann::json::parse(zero::trace_json(zero::TraceRecorder(1))).at("traceEvents").is_array());
}

TEST(TraceJson, WhatIsUnderWayAtOnceHasRowsOfItsOwnEachWithAName) {
    zero::TraceRecorder recorder(8);
    recorder.set_names({"u"}, {"u.states"});
    recorder.begin_step(1);
    const std::vector<zero::TraceStart> starts{recorder.start(), recorder.start(), recorder.start()};
    for (std::uint32_t tile = 0; tile < 3; ++tile)
        recorder.add(TraceThread::driver, starts[tile],
                     {.lane = TraceLane::read, .unit = 0, .object = 0, .tile = tile, .bytes = 10});
    recorder.add(TraceThread::driver, recorder.start(), {.lane = TraceLane::read, .unit = 0, .object = 0, .tile = 9});
    std::map<int, int> rows, named;
    const auto json = nlohmann::json::parse(zero::trace_json(recorder));
    for (const auto& event : json.at("traceEvents")) {
        if (event.at("ph") == "X") ++rows[event.at("tid")];
        if (event.at("name") == "thread_name") ++named[event.at("tid")];
    }
    EXPECT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows.begin()->second, 2);  // the last one finds the first row free
    for (const auto& [row, count] : rows) EXPECT_EQ(named[row], 1) << row;
    EXPECT_EQ(json.at("traceEvents").back().at("name"), "NVMe read u.states [9]");
}

}  // namespace
}  // namespace penstock::testing
