#include "trainer/capi/resolved_config.h"

#include "aio/words/error.h"
#include "trainer/capi/missing_values.h"
#include "trainer/capi/package_values.h"
#include "trainer/config/config.h"
#include "trainer/config/derived_settings.h"
#include "trainer/config/key_table.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/program_place.h"
#include "trainer/config/settings.h"
#include "trainer/config/swap_directories.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace penstock::trainer {
namespace {

using nlohmann::json;

bool is_auto(const json& value) {
    return value.is_string() && value.get<std::string>() == auto_text;
}

// Reads the text key by key, gathers what is wrong, and goes on.
class Resolver {
   public:
    Resolver(const std::string& name, json known, json own)
        : settings_(name), known_(std::move(known)), own_(std::move(own)) {}

    void read(const json& section, const std::string& path) {
        for (const auto& [name, value] : section.items()) {
            const std::string key_path = path.empty() ? name : path + "." + name;
            if (value.is_null()) continue;  // as where it is not said
            if (is_own(key_path)) {
                note_without(key_path, "the program brings its own");
                continue;
            }
            if (const KeySpec* key = find_key(key_path, Client::package)) {
                read_key(*key, value);
            } else if (!is_section(key_path, Client::package)) {
                refuse_unknown(key_path);
            } else if (!value.is_object()) {
                wrong(fmt::format("key '{}' is {}; expected a section in braces", key_path, found_text(value)));
            } else {
                read(value, key_path);
            }
        }
    }

    void finish(std::uint32_t ranks) {
        for (const auto& [path, value] : known_.items())
            if (find_key(path, Client::package) == nullptr)
                wrong(fmt::format("a value is known for key '{}', which there is not; the nearest one is '{}'", path,
                                  nearest_key(path, Client::package)));
        for (const KeySpec* key : keys_of(Client::package)) fill_fallback(*key);
        check_precision();
        check_single_values();
        tried([&] { derive_batch_sizes(settings_, ranks); });
        forget_adam_mode();
        tried([&] {
            derive_optimizer(settings_);
            check_optimizer();
        });
        tried([&] {
            take_warmup_rate();
            derive_schedule(settings_);
        });
        derive_deferred_share(settings_);
        tried([&] { derive_directories(); });
    }

    void wrong(std::string problem) { wrong_.push_back(std::move(problem)); }

    ResolvedConfig result() {
        const std::vector<std::string> missing = missing_values();
        json out = {{"name", settings_.file()},   {"values", json::object()},
                    {"obeyed", json::array()},    {"translated", translated_},
                    {"without_effect", without_}, {"auto", json::array()},
                    {"missing", missing},         {"wrong", wrong_}};
        for (const KeySpec* key : keys_of(Client::package)) {
            const std::string path(key->path);
            if (key->package.effect == Effect::without || key->package.effect == Effect::off) continue;
            if (!key->package.becomes.empty()) continue;
            out["values"][path] = value_of(path);
            if (settings_.has(path) && key->package.effect == Effect::obeyed)
                out["obeyed"].push_back(
                    {{"key", path}, {"value", value_of(path)}, {"from", source_of(path)}, {"what", key->help}});
        }
        for (const auto& [path, rule] : automatic_)
            out["auto"].push_back(
                {{"key", path},
                 {"became",
                  std::ranges::find(missing, path) == missing.end() ? value_of(became_of(path)) : json(nullptr)},
                 {"rule", rule}});
        return {.json = out.dump(-1, ' ', false, json::error_handler_t::replace), .wrong = wrong_};
    }

   private:
    // Each part may throw what the program throws: here it is one of many.
    template <typename Part>
    void tried(Part part) {
        try {
            part();
        } catch (const Error& error) {
            const std::string_view text = error.what();
            const std::string prefix = settings_.file() + ": ";
            wrong(std::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text));
        }
    }

    void read_key(const KeySpec& key, const json& value) {
        const PackageRule& rule = key.package;
        const std::string path(key.path);
        if (rule.effect == Effect::without) {
            note_without(path, rule.why);
        } else if (rule.effect == Effect::off) {
            if (is_off(value))
                note_without(path, "it is switched off");
            else
                wrong(fmt::format("key '{}' cannot be obeyed: {}; leave it out", path, rule.why));
        } else if (is_auto(value) && !rule.automatic.empty()) {
            read_auto(key);
        } else {
            take(key, value, value);
        }
    }

    void read_auto(const KeySpec& key) {
        const std::string path(key.path);
        const bool known = known_.contains(path) && !known_[path].is_null();
        automatic_.emplace_back(path, known ? "the value that the caller knows" : std::string(key.package.automatic));
        if (known) take(key, known_[path], auto_text);
    }

    // `given`: what the text has.
    void take(const KeySpec& key, const json& value, const json& given) {
        const KeySpec own = as_package(key);
        const json spelled = in_our_words(own, value);
        const auto converted = convert(own, spelled);
        if (!converted) {
            wrong(fmt::format("key '{}' is {}; expected {}", key.path, found_text(value), package_expectation(own)));
            return;
        }
        const std::string path(key.path);
        if (key.package.effect == Effect::translated) {
            translate(key, *converted, given);
        } else {
            give(path, *converted, older_word(own, value));
            if (spelled != value && json_of(*converted) != value)
                translated_.push_back({{"key", path},
                                       {"value", given},
                                       {"became", fmt::format("{} {}", path, json_of(*converted).dump())},
                                       {"because", "it is another word for that"}});
        }
    }

    void translate(const KeySpec& key, const SettingValue& value, const json& given) {
        const PackageRule& rule = key.package;
        const std::string path(key.path);
        std::string became = "where the offload sections say";
        if (rule.becomes.empty()) {
            give(path, value);
        } else if (const bool* truth = std::get_if<bool>(&value); truth != nullptr && !*truth && !rule.value.empty()) {
            became = "nothing";
        } else {
            const std::string target(rule.becomes);
            const SettingValue meant = rule.value.empty() ? value : SettingValue(std::string(rule.value));
            if (const auto other = given_.find(target);
                other != given_.end() && !(json_of(other->second) == json_of(meant)))
                wrong(fmt::format("key '{}' says {} for '{}', which is {}; leave one out", path, json_of(meant).dump(),
                                  target, json_of(other->second).dump()));
            give(target, meant);
            became = fmt::format("{} {}", target, json_of(meant).dump());
        }
        const std::string_view why = rule.why.empty() ? std::string_view("it is an older spelling") : rule.why;
        translated_.push_back({{"key", path}, {"value", given}, {"became", became}, {"because", why}});
    }

    void give(const std::string& path, SettingValue value, std::string said_as = {}) {
        if (const auto other = given_.find(path); other != given_.end() && !(json_of(other->second) == json_of(value)))
            wrong(fmt::format("key '{}' is said twice, as {} and in an older spelling as {}; leave one out", path,
                              json_of(value).dump(), json_of(other->second).dump()));
        given_.insert_or_assign(path, value);
        settings_.give(path, std::move(value), std::move(said_as));
    }

    void note_without(const std::string& path, std::string_view why) {
        without_.push_back({{"key", path}, {"because", why}});
    }

    void refuse_unknown(const std::string& path) {
        if (is_key(path) || is_section(path)) {
            wrong(
                fmt::format("key '{}' is of the program `penstock` alone: here the model, the data and the loop are "
                            "the caller's; leave it out",
                            path));
            return;
        }
        const std::string parent = path.substr(0, path.rfind('.') == std::string::npos ? 0 : path.rfind('.'));
        std::string problem =
            fmt::format("key '{}' is unknown; the nearest known one is '{}'", path, nearest_key(path, Client::package));
        if (parent.ends_with(".params"))
            problem +=
                fmt::format("; known in {} are {}", parent, fmt::join(words_of_section(parent, Client::package), ", "));
        wrong(std::move(problem));
    }

    void fill_fallback(const KeySpec& key) {
        if (key.package.effect == Effect::without || key.package.effect == Effect::off || settings_.has(key.path))
            return;
        const KeySpec own = as_package(key);
        const std::string text = default_text(own);
        if (text.empty() || text.starts_with('(')) return;
        settings_.fall_back(key.path, convert(own, json::parse(text)).value());
    }

    void check_precision() {
        if (settings_.boolean("fp16.enabled") && settings_.boolean("bf16.enabled"))
            wrong("fp16.enabled and bf16.enabled are both true: choose one");
    }

    // What is known and has one value only.
    void check_single_values() {
        if (settings_.given("optimizer.params.bias_correction") &&
            !settings_.boolean("optimizer.params.bias_correction"))
            wrong(
                "optimizer.params.bias_correction is false: the moments of the core's Adam are always corrected; leave "
                "it out");
        if (settings_.given("run.commit_every") &&
            std::holds_alternative<std::string>(settings_.value("run.commit_every")))
            wrong("run.commit_every \"scratch\" is of the program alone; say a number of steps");
    }

    // Options that make no sense together are refused as the program refuses them.
    void check_optimizer() const {
        TrainConfig config;
        for (const KeySpec& key : keys())
            if (key.path.starts_with("optimizer.") && key.place.fill != nullptr && settings_.has(key.path))
                fill(key, settings_.value(key.path), config);
        make_optimizers(config.optimizer);
    }

    // DeepSpeed's AdamW does not look at it.
    void forget_adam_mode() {
        constexpr auto key = "optimizer.params.adam_w_mode";
        if (!settings_.given(key) || settings_.text("optimizer.type") != "AdamW") return;
        settings_.forget(key);
        note_without(key, "AdamW always decays weights by themselves");
    }

    // Where "auto" says that it follows the rate, which is not asked twice.
    void take_warmup_rate() {
        constexpr auto key = "scheduler.params.warmup_max_lr";
        if (is_automatic(key) && !settings_.has(key)) settings_.derive(key, settings_.number("optimizer.params.lr"));
    }

    bool is_own(const std::string& section) const { return std::ranges::find(own_, json(section)) != own_.end(); }

    // Where the text could not be read, nothing was derived.
    std::vector<std::string> missing_values() const {
        std::vector<std::string> paths;
        for (const auto& [path, rule] : automatic_) paths.push_back(path);
        return trainer::missing_values(settings_, paths);
    }

    bool is_automatic(const std::string& path) const {
        return std::ranges::any_of(automatic_, [&](const auto& one) { return became_of(one.first) == path; });
    }

    void derive_directories() {
        constexpr auto directories = "run.swap_directory";
        for (const char* key : {directories, "zero_optimization.offload_param.nvme_path",
                                "zero_optimization.offload_optimizer.nvme_path"})
            if (settings_.given(key)) {
                std::vector<SettingDirectory> found = swap_directories(settings_);
                if (!settings_.has(directories)) settings_.derive(directories, std::move(found));
                return;
            }
    }

    json value_of(const std::string& path) const {
        return settings_.has(path) ? json_of(settings_.value(path)) : json(nullptr);
    }

    std::string became_of(const std::string& path) const {
        const KeySpec* key = find_key(path, Client::package);
        return key->package.becomes.empty() ? path : std::string(key->package.becomes);
    }

    std::string source_of(const std::string& path) const {
        if (is_automatic(path)) return settings_.given(path) ? "caller" : auto_text;
        if (settings_.given(path)) return "file";
        return settings_.derived(path) ? "other keys" : "default";
    }

    Settings settings_;
    json known_;
    json own_;
    std::map<std::string, SettingValue> given_;
    std::vector<std::pair<std::string, std::string>> automatic_;  // key, rule
    json translated_ = json::array();
    json without_ = json::array();
    std::vector<std::string> wrong_;
};

// Nothing where it is none of that type: then `resolver` knows why.
std::optional<json> read_as(json::value_t type, const char* expected, Resolver& resolver, std::string_view text,
                            const std::string& name) {
    try {
        json read = parse_config(text, name);
        if (read.type() == type) return read;
        resolver.wrong(fmt::format("is {}; expected {}", kind_of(read), expected));
    } catch (const Error& error) {
        resolver.wrong(std::string(error.what()).substr(name.size() + 2));
    }
    return std::nullopt;
}

}  // namespace

ResolvedConfig resolve_config(std::string_view text, const std::string& name, std::string_view known,
                              std::string_view own, std::uint32_t ranks) {
    constexpr auto braces = "a configuration in braces";
    Resolver unknown(name, json::object(), json::array());
    const std::optional<json> values = read_as(json::value_t::object, braces, unknown, known, "known values");
    const std::optional<json> sections =
        read_as(json::value_t::array, "a list of sections in brackets", unknown, own, "own sections");
    if (!values || !sections) return unknown.result();
    Resolver resolver(name, *values, *sections);
    const std::optional<json> root = read_as(json::value_t::object, braces, resolver, text, name);
    if (!root) return resolver.result();
    resolver.read(*root, "");
    resolver.finish(ranks);
    return resolver.result();
}

}  // namespace penstock::trainer
