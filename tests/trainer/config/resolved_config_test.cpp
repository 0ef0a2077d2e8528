#include "trainer/capi/resolved_config.h"

#include "trainer/capi/penstock_config.h"
#include "trainer/config/key_table.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>

namespace penstock::trainer {
namespace {

using nlohmann::json;

json resolved(const std::string& text, const std::string& known = "{}", const std::string& own = "[]") {
    return json::parse(resolve_config(text, "ds.json", known, own).json);
}

json find(const json& list, const std::string& key) {
    for (const json& each : list)
        if (each["key"] == key) return each;
    return nullptr;
}

std::string wrong_of(const std::string& text) {
    std::string all;
    for (const std::string& each : resolve_config(text, "ds.json", "{}").wrong) all += each + "\n";
    return all;
}

TEST(PackageKeys, AreOnceInTheTableAndSayWhy) {
    std::set<std::string_view> seen;
    for (const auto part : {keys(), package_keys()}) {
        for (const KeySpec& key : part) {
            EXPECT_TRUE(seen.insert(key.path).second) << key.path;
            EXPECT_FALSE(is_section(key.path, Client::program) || is_section(key.path, Client::package)) << key.path;
            EXPECT_TRUE(key.program || key.package.effect != Effect::none) << key.path << " is of nobody";
            const bool reason = key.package.effect == Effect::without || key.package.effect == Effect::off;
            EXPECT_TRUE(!reason || !key.package.why.empty()) << key.path;
            EXPECT_TRUE(key.package.becomes.empty() || find_key(key.package.becomes, Client::package)) << key.path;
        }
    }
}

TEST(PackageKeys, AreNotTheProgrammes) {
    EXPECT_EQ(find_key("fp16.enabled"), nullptr);
    EXPECT_NE(find_key("fp16.enabled", Client::package), nullptr);
    EXPECT_EQ(find_key("model.hidden", Client::package), nullptr);
    EXPECT_FALSE(is_section("fp16"));
    EXPECT_EQ(nearest_key("model.hiden"), "model.hidden");
    EXPECT_EQ(nearest_key("fp16.loss_scal", Client::package), "fp16.loss_scale");
    EXPECT_NE(nearest_key("fp16.loss_scal"), "fp16.loss_scale");
    for (const KeySpec& key : package_keys()) EXPECT_FALSE(key.program) << key.path;
}

TEST(ResolvedConfig, HasADefaultForEachKeyOfAnEmptyText) {
    const json all = resolved("{}");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(all["values"]["train_batch_size"], 1);
    EXPECT_EQ(all["values"]["gradient_clipping"], 1.0);
    EXPECT_EQ(all["values"]["memory.host_budget"], 0);
    EXPECT_EQ(all["values"]["zero_optimization.stage"], 0);
    EXPECT_EQ(all["values"]["run.swap_directory"], nullptr);
    EXPECT_FALSE(all["values"].contains("model.hidden"));
    EXPECT_EQ(find(all["obeyed"], "gradient_clipping")["from"], "default");
    EXPECT_EQ(find(all["obeyed"], "optimizer.params.eps")["from"], "other keys");
}

TEST(ResolvedConfig, DerivesBatchSizesOnOneRank) {
    const json all = resolved(R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 4})");
    EXPECT_EQ(all["values"]["gradient_accumulation_steps"], 3);
    EXPECT_NE(wrong_of(R"({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 5})").find("multiple"),
              std::string::npos);
}

TEST(ResolvedConfig, AutoIsWhatTheCallerKnowsOrTheRule) {
    const std::string text = R"({"gradient_clipping": "auto", "optimizer": {"params": {"lr": "auto", "eps": "auto"}}})";
    const json all = resolved(text, R"({"optimizer.params.lr": 0.25, "gradient_clipping": null})");
    EXPECT_EQ(all["values"]["optimizer.params.lr"], 0.25);
    EXPECT_EQ(find(all["obeyed"], "optimizer.params.lr")["from"], "caller");
    EXPECT_EQ(find(all["obeyed"], "gradient_clipping")["from"], "auto");
    EXPECT_EQ(find(all["auto"], "optimizer.params.eps")["became"], 1e-8);
    EXPECT_EQ(all["auto"].size(), 3U);
}

TEST(ResolvedConfig, EveryKeyThatMayBeAutoStatesItsRuleAndTakesIt) {
    for (const KeySpec* key : keys_of(Client::package)) {
        if (key->package.automatic.empty()) continue;
        json text = "auto";
        for (std::string path(key->path); !path.empty();) {
            const auto dot = path.rfind('.');
            text = json{{dot == std::string::npos ? path : path.substr(dot + 1), text}};
            path = dot == std::string::npos ? "" : path.substr(0, dot);
        }
        const json all = resolved(text.dump());
        EXPECT_EQ(find(all["auto"], std::string(key->path))["rule"], std::string(key->package.automatic));
        EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    }
}

TEST(ResolvedConfig, ANumberThatNobodyKnowsIsMissingAndNotGuessed) {
    const std::string text = R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
        "optimizer": {"type": "AdamW",
                      "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                     "warmup_num_steps": "auto", "warmup_type": "auto"}}})";
    const json all = resolved(text);
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(std::set<std::string>(all["missing"].begin(), all["missing"].end()),
              (std::set<std::string>{"train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                                     "optimizer.params.lr", "optimizer.params.betas", "optimizer.params.weight_decay",
                                     "scheduler.params.warmup_min_lr", "scheduler.params.warmup_num_steps",
                                     "scheduler.params.warmup_type"}));
    EXPECT_EQ(find(all["auto"], "optimizer.params.lr")["became"], nullptr);
    EXPECT_EQ(find(all["auto"], "gradient_clipping")["became"], 1.0);
    const json known = resolved(text, R"({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3,
        "optimizer.params.lr": 0.5, "optimizer.params.betas": [0.9, 0.95], "optimizer.params.weight_decay": 0,
        "scheduler.params.warmup_min_lr": 0, "scheduler.params.warmup_num_steps": 7,
        "scheduler.params.warmup_type": "linear"})");
    EXPECT_TRUE(known["missing"].empty()) << known["missing"];
    EXPECT_EQ(known["values"]["train_batch_size"], 6);
    EXPECT_EQ(known["values"]["scheduler.params.warmup_max_lr"], 0.5);
}

TEST(ResolvedConfig, BatchSizesThatFollowFromOthersAreNotMissing) {
    const auto missing = [](const char* text) { return resolved(text)["missing"].size(); };
    EXPECT_EQ(missing(R"({"train_batch_size": "auto"})"), 1U);
    EXPECT_EQ(missing(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4})"), 0U);
    EXPECT_EQ(missing(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto"})"), 0U);
    EXPECT_EQ(missing(R"({"train_batch_size": 8, "gradient_accumulation_steps": "auto"})"), 1U);
    EXPECT_EQ(missing(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                          "gradient_accumulation_steps": "auto"})"),
              0U);
    EXPECT_EQ(missing(R"({"train_batch_size": "auto", "gradient_accumulation_steps": 4})"), 1U);
    EXPECT_EQ(missing(R"({"gradient_accumulation_steps": "auto"})"), 1U);
    EXPECT_EQ(missing(R"({"train_micro_batch_size_per_gpu": "auto"})"), 1U);
}

TEST(ResolvedConfig, WhatTheChosenOptimizerOrScheduleHasNotIsNotMissing) {
    const json all = resolved(R"({
        "optimizer": {"type": "SGD", "params": {"lr": 1, "betas": "auto", "momentum": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_ratio": "auto", "total_num_steps": "auto"}}})");
    EXPECT_EQ(all["missing"], json({"optimizer.params.momentum"}));
}

TEST(ResolvedConfig, SectionsThatTheCallerBringsAreNotAskedFor) {
    const std::string text = R"({"optimizer": {"type": "Lamb", "params": {"lr": "auto"}}, "scheduler": {
        "type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}})";
    const json all = resolved(text, "{}", R"(["optimizer", "scheduler"])");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_TRUE(all["missing"].empty()) << all["missing"];
    EXPECT_EQ(find(all["without_effect"], "optimizer")["because"], "the program brings its own");
    EXPECT_EQ(all["values"]["scheduler.type"], "none");
    EXPECT_EQ(resolved(text)["wrong"].size(), 2U);
    EXPECT_FALSE(resolve_config("{}", "ds.json", "{}", "{}").wrong.empty());
}

TEST(ResolvedConfig, AValueForAKeyThatThereIsNotIsSaid) {
    const auto wrong = resolve_config("{}", "ds.json", R"({"optimizer.params.learning_rate": 1})").wrong;
    ASSERT_EQ(wrong.size(), 1U);
    EXPECT_NE(wrong[0].find("'optimizer.params.learning_rate', which there is not"), std::string::npos) << wrong[0];
}

TEST(ResolvedConfig, NoWarmUpIsANumberOfSteps) {
    const json all = resolved(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}})");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(all["values"]["scheduler.params.warmup_num_steps"], 0);
}

TEST(ResolvedConfig, ADeviceStandsThere) {
    const json all = resolved(R"({"memory": {"device": "cuda:1", "device_budget": "1GiB"}})");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(all["values"]["memory.device"], "cuda:1");
    EXPECT_EQ(all["values"]["memory.device_budget"], 1 << 30);
    EXPECT_EQ(resolved("{}")["values"]["memory.device"], "cpu");
}

TEST(ResolvedConfig, OldSpellingsBecomeNewOnes) {
    const json all = resolved(R"({"bfloat16": {"enabled": true}, "optimizer": {"type": "FUSEDADAM"},
        "zero_optimization": {"stage": 2, "cpu_offload": true, "cpu_offload_params": false,
                              "offload_param": {"device": "none"}}})");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(all["values"]["bf16.enabled"], true);
    EXPECT_EQ(all["values"]["optimizer.type"], "Adam");
    EXPECT_EQ(all["values"]["zero_optimization.offload_param.device"], "cpu");
    EXPECT_FALSE(all["values"].contains("zero_optimization.cpu_offload"));
    EXPECT_EQ(find(all["translated"], "zero_optimization.cpu_offload")["became"],
              "zero_optimization.offload_optimizer.device \"cpu\"");
    EXPECT_EQ(find(all["translated"], "zero_optimization.cpu_offload_params")["became"], "nothing");
}

TEST(ResolvedConfig, AnOldSpellingThatSaysOtherwiseIsRefusedInEitherOrder) {
    for (const char* text :
         {R"({"bf16": {"enabled": false}, "bfloat16": {"enabled": true}})",
          R"({"bfloat16": {"enabled": true}, "bf16": {"enabled": false}})",
          R"({"zero_optimization": {"cpu_offload": true, "offload_optimizer": {"device": "nvme"}}})"})
        EXPECT_NE(wrong_of(text).find("leave one out"), std::string::npos) << text;
    EXPECT_EQ(wrong_of(R"({"bf16": {"enabled": true}, "bfloat16": {"enabled": true}})"), "");
}

TEST(ResolvedConfig, SaysAllThatIsWrongAtOnce) {
    const std::string told = wrong_of(R"({"optimzer": {}, "aio": {"queue_dept": 1}, "fp16": {"enabled": 3},
        "model": {"hidden": 8}, "amp": {"enabled": true}, "train_batch_size": 3, "gradient_accumulation_steps": 2})");
    for (const char* part : {"'optimzer' is unknown; the nearest known one is 'optimizer'", "'aio.queue_depth'",
                             "'fp16.enabled' is 3", "'model' is of the program", "'amp' cannot be obeyed", "multiple"})
        EXPECT_NE(told.find(part), std::string::npos) << part << " is not in\n" << told;
}

TEST(ResolvedConfig, WhatIsSwitchedOffIsNoFault) {
    const json all =
        resolved(R"({"amp": {"enabled": false}, "fp8": null, "sparse_attention": {}, "dump_state": true})");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_EQ(all["without_effect"].size(), 3U) << "null is as if it were not said";
}

TEST(ResolvedConfig, MonitorsAreObeyedAndTheirKeysAreKnown) {
    const json all = resolved(R"({"tensorboard": {"enabled": true, "output_path": ""}, "wall_clock_breakdown": true,
        "csv_monitor": {"enabled": true, "output_path": "logs", "job_name": "run 1"}, "wandb": {"team": "us"}})");
    EXPECT_TRUE(all["wrong"].empty()) << all["wrong"];
    EXPECT_TRUE(all["without_effect"].empty()) << all["without_effect"];
    EXPECT_EQ(all["values"]["tensorboard.output_path"], "");
    EXPECT_EQ(all["values"]["tensorboard.job_name"], "DeepSpeedJobName");
    EXPECT_EQ(all["values"]["csv_monitor.job_name"], "run 1");
    EXPECT_EQ(all["values"]["wandb.enabled"], false);
    EXPECT_EQ(all["values"]["wandb.team"], "us");
    EXPECT_EQ(all["values"]["wandb.group"], nullptr);
    EXPECT_EQ(find(all["obeyed"], "wall_clock_breakdown")["from"], "file");
    const std::string told = wrong_of(R"({"csv_monitor": {"output_dir": "logs"}, "wandb": {"enabled": 1},
                                          "tensorboard": {"job_name": ""}})");
    for (const char* part : {"'csv_monitor.output_dir' is unknown; the nearest known one is 'csv_monitor.output_path'",
                             "'wandb.enabled' is 1", "'tensorboard.job_name' is \"\""})
        EXPECT_NE(told.find(part), std::string::npos) << part << " is not in\n" << told;
}

TEST(ResolvedConfig, ATextThatIsNoneIsSaid) {
    EXPECT_NE(wrong_of("{").find("is not JSON"), std::string::npos);
    EXPECT_NE(wrong_of("[1]").find("expected a configuration"), std::string::npos);
    EXPECT_NE(wrong_of(R"({"seed": 1, "seed": 2})").find("given twice"), std::string::npos);
    EXPECT_FALSE(resolve_config("{}", "ds.json", "[]").wrong.empty());
    EXPECT_EQ(resolved("{")["wrong"].size(), 1U);
}

struct Call {
    penstock_config* config = nullptr;
    penstock_error error = {};
    penstock_status status;

    explicit Call(const char* text, std::size_t bytes = sizeof(penstock_config_text)) {
        const penstock_config_text given = {
            .struct_bytes = bytes, .json = text, .name = "ds.json", .known = nullptr, .own = nullptr};
        status = penstock_config_resolve(&given, &config, &error);
    }
    ~Call() { penstock_config_free(config); }
};

TEST(ConfigCApi, GivesAText) {
    const Call call("{}");
    EXPECT_EQ(call.status, PENSTOCK_OK);
    EXPECT_STREQ(call.error.message, "");
    EXPECT_EQ(json::parse(penstock_config_json(call.config))["name"], "ds.json");
    EXPECT_EQ(penstock_config_abi_version(), std::uint32_t{PENSTOCK_CONFIG_ABI_VERSION});
}

TEST(ConfigCApi, WhatIsWrongIsOneMessageAndWholeInTheText) {
    const Call one(R"({"optimzer": {}})");
    EXPECT_EQ(one.status, PENSTOCK_USAGE);
    EXPECT_STREQ(one.error.message, "ds.json: key 'optimzer' is unknown; the nearest known one is 'optimizer'");
    std::string text = "{";
    for (int number = 0; number < 200; ++number)
        text += (number == 0 ? "\"u" : ", \"u") + std::to_string(number) + "\": 1";
    const Call many((text + "}").c_str());
    EXPECT_NE(std::strstr(many.error.message, "200 things are wrong"), nullptr);
    EXPECT_EQ(json::parse(penstock_config_json(many.config))["wrong"].size(), 200U);
}

TEST(ConfigCApi, RefusesWhatIsNoCall) {
    penstock_config* config = nullptr;
    penstock_error error;
    EXPECT_EQ(penstock_config_resolve(nullptr, &config, &error), PENSTOCK_USAGE);
    EXPECT_EQ(Call(nullptr).status, PENSTOCK_USAGE);
    EXPECT_EQ(Call("{}", 0).status, PENSTOCK_USAGE);
    EXPECT_EQ(Call("{}", offsetof(penstock_config_text, known)).status, PENSTOCK_OK) << "an older caller";
    const penstock_config_text given = {
        .struct_bytes = sizeof given, .json = "{}", .name = "x", .known = nullptr, .own = nullptr};
    EXPECT_EQ(penstock_config_resolve(&given, nullptr, &error), PENSTOCK_USAGE);
    EXPECT_EQ(penstock_config_json(nullptr), nullptr);
    penstock_config_free(nullptr);
}

TEST(ResolvedConfig, TheBatchOfAStepIsThatOfAllProcesses) {
    const auto values = [](const std::string& text, std::uint32_t ranks) {
        const ResolvedConfig resolved = resolve_config(text, "ds.json", "{}", "[]", ranks);
        EXPECT_TRUE(resolved.wrong.empty()) << resolved.wrong.front();
        return json::parse(resolved.json).at("values");
    };
    const json shared = values(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4})", 3);
    EXPECT_EQ(shared.at("gradient_accumulation_steps"), 2);
    EXPECT_EQ(
        values(R"({"train_batch_size": 24, "gradient_accumulation_steps": 2})", 3).at("train_micro_batch_size_per_gpu"),
        4);
    EXPECT_EQ(values(R"({"train_micro_batch_size_per_gpu": 4})", 3).at("train_batch_size"), 12);
    const auto wrong = [](const std::string& text) {
        return resolve_config(text, "ds.json", "{}", "[]", 3).wrong.at(0);
    };
    EXPECT_NE(wrong(R"({"train_batch_size": 25, "train_micro_batch_size_per_gpu": 4})")
                  .find("train_batch_size 25 is not a multiple of train_micro_batch_size_per_gpu 4 times 3 processes"),
              std::string::npos);
    EXPECT_NE(wrong(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})")
                  .find("times gradient_accumulation_steps 2 times 3 processes"),
              std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
