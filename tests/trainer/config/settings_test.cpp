#include "trainer/config/settings.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "trainer/config/key_table.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

// The required keys, so that a test gives only what it is about.
const std::string required = R"("data": {"train": "x"}, "memory": {"host_budget": "64MiB"},)";

Settings read(const std::string& rest, const std::vector<std::string>& overrides = {}) {
    return Settings::parse("{" + required + rest + R"("run": {"directory": "r", "steps": 3}})", "test.json", overrides);
}

std::string refusal(const std::string& json, const std::vector<std::string>& overrides = {}) {
    return refusal_of(ExitCode::usage, [&] { Settings::parse(json, "test.json", overrides); });
}

std::string refusal_with(const std::string& rest) {
    return refusal("{" + required + rest + R"("run": {"directory": "r", "steps": 3}})");
}

TEST(Settings, TakesValuesCommentsAndDefaults) {
    const Settings settings = read(R"(/* a comment */ "model": {"hidden": 96, "tied_head": true}, // another
                                      "optimizer": {"params": {"betas": [0.8, 0.9]}},)");
    EXPECT_EQ(settings.integer("model.hidden"), 96);
    EXPECT_TRUE(settings.boolean("model.tied_head"));
    EXPECT_EQ(settings.integer("model.layers"), 8);
    EXPECT_EQ(settings.numbers("optimizer.params.betas"), (std::vector<double>{0.8, 0.9}));
    EXPECT_TRUE(settings.given("model.hidden"));
    EXPECT_FALSE(settings.given("model.layers"));
    EXPECT_FALSE(settings.has("train_batch_size"));
    EXPECT_EQ(settings.bytes("memory.host_budget"), 64U << 20);
}

TEST(Settings, EveryDefaultIsWithinItsOwnRange) {
    const Settings settings = read("");
    for (const KeySpec& key : keys()) EXPECT_EQ(settings.has(key.path), !key.fallback.starts_with('(')) << key.path;
}

TEST(Settings, RefusesUnknownKeysAndProposesTheNearest) {
    EXPECT_EQ(refusal_with(R"("model": {"hiden": 96},)"),
              "test.json: key 'model.hiden' is unknown; the nearest known one is 'model.hidden'");
    EXPECT_EQ(refusal_with(R"("modle": {"hidden": 96},)"),
              "test.json: key 'modle' is unknown; the nearest known one is 'model'");
    EXPECT_EQ(
        refusal_with(R"("optimizer": {"params": {"lrr": 1}},)"),
        "test.json: key 'optimizer.params.lrr' is unknown; the nearest known one is 'optimizer.params.lr'; known in "
        "optimizer.params are lr, betas, eps, weight_decay, adam_w_mode, momentum, dampening, nesterov, lr_decay, "
        "initial_accumulator_value");
}

TEST(Settings, RefusesWrongTypesNamingKeyFoundAndExpected) {
    EXPECT_EQ(refusal_with(R"("model": {"hidden": "96"},)"),
              "test.json: key 'model.hidden' is \"96\" (text); expected an integer from 1 to 1000000");
    EXPECT_NE(refusal_with(R"("model": {"hidden": 9.5},)").find("9.5 (a number with a fraction)"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"tied_head": 1},)").find("expected true or false"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"norm": "batch"},)").find("expected \"rms\" or \"layer\""), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": 3,)").find("expected a section in braces"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"hidden": {"a": 1}},)").find("(a section)"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"frozen": [1]},)").find("expected a list of names"), std::string::npos);
    EXPECT_NE(refusal_with(R"("optimizer": {"params": {"betas": [0.9]}},)").find("two numbers"), std::string::npos);
    EXPECT_NE(refusal_with(R"("scheduler": null,)").find("null"), std::string::npos);
}

TEST(Settings, ReadsGroupsAndNamesWhatIsWrongWithOne) {
    const auto read_list = [](const std::string& list) { return read(R"("optimizer": {"groups": )" + list + "},"); };
    const Settings settings =
        read_list(R"([{"params": "*.norm", "lr": 0.5, "nesterov": true}, {"params": "b", "betas": [0.1, 0.2]}])");
    const auto& groups = settings.groups("optimizer.groups");
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0].params, "*.norm");
    EXPECT_EQ(groups[0].values.at("lr"), std::vector<double>{0.5});
    EXPECT_EQ(groups[0].values.at("nesterov"), std::vector<double>{1});
    EXPECT_EQ(groups[1].values.at("betas"), (std::vector<double>{0.1, 0.2}));
    EXPECT_EQ(settings.spelled("optimizer.groups"), R"([{"*.norm", lr: 0.5, nesterov: 1}, {"b", betas: 0.1 0.2}])");

    const auto refused = [](const std::string& list) {
        return refusal_with(R"("optimizer": {"groups": )" + list + "},");
    };
    EXPECT_EQ(refused(R"([{"params": "a", "lr": 1}, {"params": "b", "lrr": 1}])"),
              "test.json: key 'optimizer.groups[1].lrr' is unknown; a group has params and any of lr, betas, eps, "
              "weight_decay, adam_w_mode, momentum, dampening, nesterov, lr_decay, initial_accumulator_value");
    EXPECT_EQ(refused(R"([{"params": "a", "lr": -1}])"),
              "test.json: key 'optimizer.groups[0].lr' is -1 (an integer); expected a number from 0 to 1000");
    EXPECT_NE(refused(R"([{"params": "", "lr": 1}])").find("'optimizer.groups[0].params'"), std::string::npos);
    EXPECT_NE(refused(R"([{"lr": 1, "eps": 1}])").find("'optimizer.groups[0]' is"), std::string::npos);
    EXPECT_NE(refused(R"([{"params": "a"}])").find("'optimizer.groups[0]' is"), std::string::npos);
    EXPECT_NE(refused(R"([3])").find("'optimizer.groups[0]' is 3"), std::string::npos);
    EXPECT_NE(refused(R"({"params": "a", "lr": 1})").find("expected a list of groups"), std::string::npos);
    EXPECT_NE(refused(R"([{"params": "a", "params": "b", "lr": 1}])").find("given twice"), std::string::npos);
}

TEST(Settings, RefusesValuesOutOfRange) {
    EXPECT_NE(refusal_with(R"("model": {"layers": 0},)").find("from 1 to 10000"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"layers": -4},)").find("-4"), std::string::npos);
    EXPECT_NE(refusal_with(R"("optimizer": {"params": {"betas": [0.9, 1]}},)").find("betas"), std::string::npos);
    EXPECT_NE(refusal_with(R"("zero_optimization": {"stage": 4},)")
                  .find("is 4 (an integer); expected an integer from 0 to 3"),
              std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"hidden": 1e30},)").find("1e+30"), std::string::npos);
    EXPECT_NE(refusal_with(R"("model": {"hidden": 18446744073709551615},)").find("model.hidden"), std::string::npos);
}

TEST(Settings, TakesWholeNumbersInFloatForm) {
    EXPECT_EQ(read(R"("model": {"hidden": 5e2},)").integer("model.hidden"), 500);
}

TEST(Settings, RefusesMissingKeys) {
    EXPECT_NE(refusal(R"({"memory": {"host_budget": 4194304}, "run": {"directory": "r", "steps": 3}})")
                  .find("'data.train' is missing"),
              std::string::npos);
}

TEST(Settings, RefusesAKeyGivenTwice) {
    EXPECT_EQ(refusal_with(R"("model": {"hidden": 96, "layers": 2, "hidden": 64},)"),
              "test.json: key 'model.hidden' is given twice; keep one");
    EXPECT_EQ(refusal_with(R"("data": {"train": "y"},)"), "test.json: key 'data' is given twice; keep one");
}

TEST(Settings, RefusesWhatIsNotJsonWithThePlace) {
    const std::string message = refusal("{\n  \"model\": {,\n}");
    EXPECT_NE(message.find("test.json: is not JSON: "), std::string::npos) << message;
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
    EXPECT_NE(refusal("[]").find("is a list; expected a configuration in braces"), std::string::npos);
    EXPECT_NE(refusal("").find("is not JSON"), std::string::npos);
    EXPECT_NE(refusal(std::string(100000, '[')).find("is not JSON"), std::string::npos);
}

TEST(Settings, OverridesAreReadAsJsonOrText) {
    const Settings settings =
        read("", {"model.hidden=128", "data.train=a=b.tokens", "run.name=42", "memory.host_budget=1.5GiB",
                  "bf16.enabled=true", "optimizer.params.betas=[0.5,0.6]"});
    EXPECT_EQ(settings.integer("model.hidden"), 128);
    EXPECT_EQ(settings.text("data.train"), "a=b.tokens");
    EXPECT_EQ(settings.text("run.name"), "42");
    EXPECT_EQ(settings.bytes("memory.host_budget"), 3ULL << 29);
    EXPECT_TRUE(settings.boolean("bf16.enabled"));
    EXPECT_EQ(settings.numbers("optimizer.params.betas")[1], 0.6);
}

TEST(Settings, RefusesBadOverrides) {
    const std::string json = "{" + required + R"("run": {"directory": "r", "steps": 3}})";
    EXPECT_NE(refusal(json, {"model.hiden=3"}).find("'model.hidden'"), std::string::npos);
    EXPECT_NE(refusal(json, {"model=3"}).find("is a section"), std::string::npos);
    EXPECT_NE(refusal(json, {"run.sample.prompt="}).find("text that is not empty"), std::string::npos);
    EXPECT_NE(refusal(json, {"model.hidden"}).find("has no '='"), std::string::npos);
    EXPECT_NE(refusal(json, {"model.hidden=wide"}).find("\"wide\" (text)"), std::string::npos);
}

TEST(Settings, SpellsEqualValuesEqually) {
    const Settings one = read(R"("optimizer": {"params": {"lr": 1e-3}}, "aio": {"block_size": "1MiB"},)");
    const Settings two = read(R"("optimizer": {"params": {"lr": 0.001}}, "aio": {"block_size": 1048576},)");
    for (const KeySpec& key : keys()) EXPECT_EQ(one.spelled(key.path), two.spelled(key.path)) << key.path;
    EXPECT_EQ(one.spelled("train_batch_size"), "unset");
    EXPECT_EQ(read(R"("optimizer": {"params": {"betas": [0.9, 0.999]}},)").spelled("optimizer.params.betas"),
              "[0.9, 0.999]");
}

TEST(Settings, TakesAutoWhereTheKeyAllowsIt) {
    const Settings unsaid = read("");
    EXPECT_TRUE(unsaid.is_auto("aio.block_size"));
    EXPECT_EQ(unsaid.spelled("aio.queue_depth"), "auto");
    const Settings given = read(R"("aio": {"block_size": "2MiB", "queue_depth": 4},)");
    EXPECT_FALSE(given.is_auto("aio.block_size"));
    EXPECT_EQ(given.bytes("aio.block_size"), 2U << 20);
    EXPECT_EQ(given.integer("aio.queue_depth"), 4);
    EXPECT_TRUE(read("", {"aio.block_size=auto"}).is_auto("aio.block_size"));
    EXPECT_NE(refusal_with(R"("model": {"hidden": "auto"},)").find("expected an integer"), std::string::npos);
    EXPECT_NE(refusal_with(R"("aio": {"queue_depth": "8"},)").find("or \"auto\""), std::string::npos);
    EXPECT_NE(refusal_with(R"("aio": {"block_size": "1KiB"},)").find("from 4KiB to 1GiB"), std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
