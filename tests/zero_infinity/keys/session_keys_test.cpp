#include "zero_infinity/keys/session_keys.h"

#include "aio/words/error.h"
#include "tests/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace penstock::testing {
namespace {

using zero::CoreOptions;
using zero::take_settings;

std::string refused(const std::string& json) {
    return refusal_of(ExitCode::usage, [&] {
        CoreOptions options;
        take_settings(json, options);
    });
}

TEST(SessionKeys, FillTheMembersThatTheyName) {
    CoreOptions options;
    take_settings(R"({"run.name": "mine", "memory.prefetch_depth": 5, "memory.host_budget": "1GiB",
                      "zero_optimization.offload_param.device": "cpu", "run.commit_every": 3,
                      "run.update_order": "within", "run.deferred_share": 0.25, "run.verify": "sample",
                      "run.sum_order": "ranks_first",
                      "memory.fill_host_budget": true, "run.threads": 0})",
                  options);
    EXPECT_EQ(options.job, "mine");
    EXPECT_EQ(options.prefetch_depth, 5U);
    EXPECT_EQ(options.host_budget_bytes, std::uint64_t{1} << 30);
    EXPECT_EQ(options.residency.weights, zero::Tier::host);
    EXPECT_EQ(options.residency.states, zero::Tier::nvme);
    EXPECT_EQ(options.durability, zero::Durability{3});
    EXPECT_EQ(options.update_order, zero::UpdateOrder::within);
    EXPECT_EQ(options.ranks.sum_order, zero::SumOrder::ranks_first);
    EXPECT_EQ(options.deferred_share, 0.25);
    EXPECT_EQ(options.verify, store::VerifyScope::sample);
    EXPECT_TRUE(options.fill_host_budget);
    take_settings(R"({"run.commit_every": "scratch", "run.deferred_share": "auto"})", options);
    EXPECT_EQ(options.durability, zero::Durability::scratch);
    EXPECT_FALSE(options.deferred_share);
    EXPECT_EQ(options.job, "mine") << "what is not named stays";
}

TEST(SessionKeys, AnOlderWordBringsItsShare) {
    CoreOptions options;
    take_settings(R"({"run.update_order": "balanced"})", options);
    EXPECT_EQ(options.update_order, zero::UpdateOrder::within);
    EXPECT_FALSE(options.deferred_share);
    take_settings(R"({"run.deferred_share": 0.5, "run.update_order": "balanced"})", options);
    EXPECT_EQ(options.deferred_share, 0.5);
}

TEST(SessionKeys, WhatIsWrongIsNamed) {
    EXPECT_SAYS(refused(R"({"memory.prefetch_depth": 65})"),
                "key 'memory.prefetch_depth' is 65 (an integer); expected an integer from 0 to 64");
    EXPECT_SAYS(refused(R"({"run.update_order": "sometimes"})"),
                "expected \"after_backward\" or \"deferred\" or \"within\"");
    EXPECT_SAYS(refused(R"({"run.nmae": "x"})"), "key 'run.nmae' is none of a session's, which are ");
    EXPECT_SAYS(refused(R"({"run.name": "x", "run.name": "y"})"), "'run.name' is given twice");
    EXPECT_SAYS(refused("3"), "settings are an integer; expected keys and their values");
    EXPECT_SAYS(refused("{"), "settings");
}

// A row whose place is another key's would change what that one reads.
TEST(SessionKeys, EachHasItsOwnPlace) {
    for (const zero::KeySpec& key : zero::session_keys()) {
        ASSERT_NE(key.place.fill, nullptr) << key.path;
        EXPECT_TRUE(key.place.in_core) << key.path;
        if (key.type != zero::KeyType::integer && key.type != zero::KeyType::boolean) continue;
        const bool truth = key.type == zero::KeyType::boolean;
        CoreOptions options;
        key.place.fill(truth ? zero::SettingValue(true) : std::int64_t{4097}, &options);
        for (const zero::KeySpec& other : zero::session_keys())
            if (other.place.read != nullptr && other.path != key.path) {
                const CoreOptions defaults;
                EXPECT_EQ(zero::spelled(other.place.read(&options)), zero::spelled(other.place.read(&defaults)))
                    << key.path << " fills the member of " << other.path;
            }
    }
}

}  // namespace
}  // namespace penstock::testing
