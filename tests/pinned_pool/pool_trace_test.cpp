#include "pinned_pool/pool_trace.h"

#include "aio/error.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace penstock {
namespace {

using Kind = PoolEvent::Kind;

constexpr auto two_uses =
    "penstock pool trace 1\n"
    "# made by hand\n"
    "budget 100000\n"
    "use 40960 staging\n"
    "use 8192 resident weights\n";

PoolTrace parsed(const std::string& text) {
    std::istringstream in(text);
    return parse_pool_trace(in, "some.trace");
}

// The complaint about `text`; empty when there is none.
std::string complaint(const std::string& text) {
    try {
        parsed(text);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        return error.what();
    }
    return {};
}

std::string written(const PoolTrace& trace) {
    std::ostringstream out;
    write_pool_trace(out, trace);
    return out.str();
}

TEST(PoolTrace, IsReadAsItWasWritten) {
    const std::string text = std::string(two_uses) + "g 0 5000 7\nx 1 9000\n\nd 7\ng 1 1 8\nr 7\nlost 3\n";
    const PoolTrace trace = parsed(text);
    EXPECT_EQ(trace.budget_bytes, 100000U);
    ASSERT_EQ(trace.uses.size(), 2U);
    EXPECT_EQ(trace.uses[1].name, "resident weights");
    EXPECT_EQ(trace.uses[1].bytes, 8192U);
    EXPECT_EQ(trace.events, (std::vector<PoolEvent>{{Kind::granted, 0, 5000, 7},
                                                    {Kind::refused, 1, 9000, 0},
                                                    {Kind::dropped, 0, 0, 7},
                                                    {Kind::granted, 1, 1, 8},
                                                    {Kind::returned, 0, 0, 7}}));
    EXPECT_EQ(trace.lost_events, 3U);
    const PoolTrace again = parsed(written(trace));
    EXPECT_EQ(again.events, trace.events);
    EXPECT_EQ(written(again), written(trace));
}

TEST(PoolTrace, NamesFileAndLineOfWhatItCannotRead) {
    const std::string begin = two_uses;  // five lines
    const std::vector<std::pair<std::string, std::string>> bad = {
        {"", "some.trace:0: not a trace of a pool"},
        {"{}\n", "some.trace:1: not a trace of a pool"},
        {"penstock pool trace 2\n", "some.trace:1: version '2'"},
        {"penstock pool trace 1\nuse 1 a\n", "some.trace:2: the trace has no line 'budget BYTES'"},
        {begin + "budget 1\n", "some.trace:6: a second budget"},
        {begin + "use 12k a\n", "some.trace:6: '12k' where the use's bytes must stand"},
        {begin + "use 12\n", "some.trace:6: a use without a name"},
        {begin + "use 12 late\r\r\n",
         "some.trace:6: a use's name with control characters"},  // found by fuzz_pool_trace
        {begin + "use 12 staging\n", "some.trace:6: a second use 'staging'"},
        {begin + "use 281474976710657 big\n", "some.trace:6: a use of more than"},
        {begin + "g 0 5000 7\nuse 12 late\n", "some.trace:7: a use after the first event"},
        {begin + "g 2 5000 7\n", "some.trace:6: use 2 of 2"},
        {begin + "g 0 0 7\n", "some.trace:6: a request for 0 bytes"},
        {begin + "g 1 8193 7\n", "some.trace:6: 8193 bytes from a use of 8192"},
        {begin + "g 0 -5 7\n", "some.trace:6: '-5' where the requested bytes must stand"},
        {begin + "g 0 5000\n", "some.trace:6: '' where the lease's id must stand"},
        {begin + "g 0 5000 7 8\n", "some.trace:6: '8' is too much on this line"},
        {begin + "g 0 5000 7\ng 0 5000 7\n", "some.trace:7: lease 7 is out already"},
        {begin + "r 7\n", "some.trace:6: lease 7 is not out"},
        {begin + "g 0 5000 7\nr 7\nr 7\n", "some.trace:8: lease 7 is not out"},
        {begin + "g 0 5000 7\nd 7\nd 7\n", "some.trace:8: lease 7 is dropped a second time"},
        {begin + "q 7\n", "some.trace:6: 'q' is none of"},
        {begin + "g 0 99999999999999999999999 7\n", "some.trace:6: '99999999999999999999999' where"},
    };
    for (const auto& [text, words] : bad) EXPECT_TRUE(complaint(text).starts_with(words)) << complaint(text);
    EXPECT_EQ(complaint(begin + "g 0 40960 7\r\nr 7\r\ng 0 1 7\n"), "");
}

TEST(PoolTrace, SaysWhichFileCannotBeRead) {
    try {
        load_pool_trace("/nowhere/a.trace");
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_NE(std::string(error.what()).find("/nowhere/a.trace: No such file"), std::string::npos) << error.what();
    }
}

Budget recorded_budget() {
    Budget budget(1 << 20, "");
    budget.add({.name = "a", .bytes = 256 << 10, .setting = {}});
    budget.add({.name = "b", .bytes = 256 << 10, .setting = {}});
    return budget;
}

TEST(PoolRecorder, WritesDownWhatThePoolSays) {
    const Budget budget = recorded_budget();
    std::vector<std::byte> memory(2);
    PoolRecorder recorder(10);
    recorder.granted("b", 5000, &memory[0]);
    recorder.refused("a", 999);
    recorder.granted("a", 1, &memory[1]);
    recorder.returned("b", &memory[0]);
    recorder.granted("b", 6000, &memory[0]);
    recorder.returned("b", &memory[0]);
    const PoolTrace trace = recorder.trace(budget);
    EXPECT_EQ(trace.budget_bytes, 1U << 20);
    ASSERT_EQ(trace.uses.size(), 2U);
    EXPECT_EQ(trace.events, (std::vector<PoolEvent>{{Kind::granted, 1, 5000, 0},
                                                    {Kind::refused, 0, 999, 0},
                                                    {Kind::granted, 0, 1, 1},
                                                    {Kind::returned, 0, 0, 0},
                                                    {Kind::granted, 1, 6000, 2},
                                                    {Kind::returned, 0, 0, 2}}));
    EXPECT_EQ(trace.lost_events, 0U);
    EXPECT_EQ(complaint(written(trace)), "");
}

TEST(PoolRecorder, CountsWhatItHasNoRoomFor) {
    std::vector<std::byte> memory(3);
    PoolRecorder recorder(2);
    recorder.granted("a", 1, &memory[0]);
    recorder.granted("a", 1, &memory[1]);
    recorder.granted("a", 1, &memory[2]);
    recorder.returned("a", &memory[2]);
    const PoolTrace trace = recorder.trace(recorded_budget());
    EXPECT_EQ(trace.events.size(), 2U);
    EXPECT_EQ(trace.lost_events, 2U);
}

// Two uses at the same time, as the pool calls it: in order within each.
TEST(PoolRecorder, KeepsTheOrderOfEachUseWhileOthersRecord) {
    constexpr int rounds = 2000;
    PoolRecorder recorder(4 * rounds);
    const auto work = [&](const char* use, std::size_t bytes) {
        std::byte memory{};
        for (int i = 0; i < rounds; ++i) {
            recorder.granted(use, bytes, &memory);
            recorder.returned(use, &memory);
        }
    };
    std::thread other(work, "b", 2);
    work("a", 1);
    other.join();
    const PoolTrace trace = recorder.trace(recorded_budget());
    ASSERT_EQ(trace.events.size(), 4U * rounds);
    std::vector<int> granted(2), returned(2);
    std::unordered_map<std::uint64_t, std::uint32_t> use_of;
    for (const PoolEvent& event : trace.events) {
        if (event.kind == Kind::granted) {
            EXPECT_EQ(event.bytes, event.use + 1);
            EXPECT_EQ(granted[event.use], returned[event.use]);
            ++granted[event.use];
            use_of[event.id] = event.use;
        } else {
            ++returned[use_of.at(event.id)];
        }
    }
    EXPECT_EQ(returned, (std::vector<int>{rounds, rounds}));
    EXPECT_EQ(complaint(written(trace)), "");
}

TEST(PoolRecorder, RecordsARealPool) {
    const Budget budget = recorded_budget();
    PoolRecorder recorder(100);
    PinnedPool pool(budget, {1ULL << 40, "free RAM"}, {.observer = &recorder});
    {
        Lease first = pool.acquire(pool.use("a"), 5000);
        const Hold hold = first.hold();
        first.reset();
        const auto refused = pool.try_acquire(pool.use("a"), 250 << 10);
        EXPECT_FALSE(refused.has_value());
    }
    const Lease second = pool.acquire(pool.use("b"), 1);
    EXPECT_EQ(recorder.trace(budget).events, (std::vector<PoolEvent>{{Kind::granted, 0, 5000, 0},
                                                                     {Kind::refused, 0, 250 << 10, 0},
                                                                     {Kind::returned, 0, 0, 0},
                                                                     {Kind::granted, 1, 1, 1}}));
}

}  // namespace
}  // namespace penstock
