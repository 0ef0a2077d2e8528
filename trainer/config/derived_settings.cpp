#include "trainer/config/derived_settings.h"

#include "aio/words/error.h"
#include "trainer/config/key_table.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/schedule.h"
#include "trainer/config/swap_directories.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/kernels/plane.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr auto update_order = "run.update_order";
constexpr auto deferred_share = "run.deferred_share";

[[noreturn]] void refuse(const Settings& settings, const std::string& problem) {
    throw Error(ExitCode::usage, settings.file() + ": " + problem);
}

struct ScheduleKeys {
    std::string_view type;
    std::vector<std::string_view> params;  // besides the learning rate
    std::vector<std::string_view> required = {};
};

const std::array<ScheduleKeys, 6>& schedule_keys() {
    static const std::array<ScheduleKeys, 6> known = {{
        {word_of(ScheduleKind::constant), {}},
        {word_of(ScheduleKind::warmup), {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr"}},
        {word_of(ScheduleKind::warmup_decay),
         {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr", "total_num_steps"},
         {"total_num_steps"}},
        {word_of(ScheduleKind::warmup_cosine),
         {"warmup_num_steps", "warmup_type", "warmup_min_ratio", "cos_min_ratio", "total_num_steps"},
         {"total_num_steps"}},
        // The package's.
        {"OneCycle",
         {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
          "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum", "cycle_min_mom",
          "cycle_max_mom", "decay_mom_rate"},
         {"cycle_min_lr", "cycle_max_lr"}},
        {"LRRangeTest",
         {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase"}},
    }};
    return known;
}

// A parameter that the chosen scheduler does not have would be without effect: refused. So is one that it needs and
// that nobody gives.
void check_schedule_params(const Settings& settings, const ScheduleKeys& own) {
    constexpr std::string_view section = "scheduler.params.";
    std::vector<std::string> wrong;
    for (const auto part : {keys(), package_keys()}) {
        for (const KeySpec& key : part) {
            if (!key.path.starts_with(section) || key.type == KeyType::anything || !settings.given(key.path)) continue;
            if (std::ranges::find(own.params, key.path.substr(section.size())) != own.params.end()) continue;
            wrong.push_back(
                fmt::format("{} has no effect with scheduler.type \"{}\"; leave it out", key.path, own.type));
        }
    }
    for (const std::string_view param : own.required)
        if (const std::string key = fmt::format("{}{}", section, param); !settings.has(key))
            wrong.push_back(fmt::format("{} is missing: scheduler.type \"{}\" needs it", key, own.type));
    if (!wrong.empty()) refuse(settings, fmt::format("{}", fmt::join(wrong, "; ")));
}

// Sums of many micro-batches would stop growing in bf16. REQUIRES: the batch sizes are derived.
void derive_gradient_type(Settings& settings) {
    constexpr auto key = "data_types.grad_accum_dtype";
    const bool bf16 = settings.boolean("bf16.enabled");
    const bool few = settings.integer("gradient_accumulation_steps") <= std::int64_t{zero::bf16_addends_max};
    const std::string narrow = word_of(zero::PlaneType::bf16);
    if (!settings.has(key)) settings.derive(key, bf16 && few ? narrow : std::string(word_of(zero::PlaneType::fp32)));
    if (settings.text(key) == narrow && !bf16)
        refuse(settings, fmt::format("{} \"{}\" needs bf16.enabled; compute is in fp32", key, narrow));
}

// Within backward wherever that costs nothing.
void derive_update_order(Settings& settings) {
    if (settings.has(update_order)) return;
    const bool unclipped = settings.number("gradient_clipping") == 0;
    settings.derive(update_order,
                    std::string(word_of(unclipped ? zero::UpdateOrder::within : zero::UpdateOrder::after_backward)));
}

// Of one process nothing is said: what it commits is the same as before there were several.
void derive_sum_order(Settings& settings, std::int64_t ranks) {
    constexpr auto key = "run.sum_order";
    if (ranks == 1 || settings.has(key)) return;
    const bool at_once = settings.integer("zero_optimization.stage") >= 2;
    settings.derive(key, std::string(word_of(at_once ? zero::SumOrder::ranks_first : zero::SumOrder::passes_first)));
}

// A sample takes a pass over the weights per token: a short run does not end in a long one.
void derive_sample(Settings& settings) {
    constexpr auto key = "run.sample.tokens";
    constexpr std::int64_t enough = 200;
    if (settings.has(key)) return;
    settings.derive(key, settings.has("run.steps") ? std::min(enough, settings.integer("run.steps")) : enough);
}

}  // namespace

// The total is that of all ranks, the others are each one's.
void derive_batch_sizes(Settings& settings, std::int64_t ranks) {
    constexpr auto total = "train_batch_size";
    constexpr auto micro = "train_micro_batch_size_per_gpu";
    constexpr auto accumulation = "gradient_accumulation_steps";
    const std::string of_ranks = ranks == 1 ? "" : fmt::format(" times {} processes", ranks);
    const auto quotient = [&](const char* divisor) {
        const std::int64_t product = settings.integer(divisor) * ranks;
        if (settings.integer(total) % product != 0) {
            refuse(settings, fmt::format("{} {} is not a multiple of {} {}{}", total, settings.integer(total), divisor,
                                         settings.integer(divisor), of_ranks));
        }
        return settings.integer(total) / product;
    };
    if (!settings.has(accumulation)) {
        const bool follows = settings.has(total) && settings.has(micro);
        settings.derive(accumulation, follows ? quotient(micro) : std::int64_t{1});
    }
    if (!settings.has(micro)) settings.derive(micro, settings.has(total) ? quotient(accumulation) : std::int64_t{1});
    const std::int64_t product = settings.integer(micro) * settings.integer(accumulation) * ranks;
    if (!settings.has(total)) settings.derive(total, product);
    if (settings.integer(total) != product) {
        refuse(settings, fmt::format("{} {} is not {} {} times {} {}{}; leave one of the three out", total,
                                     settings.integer(total), micro, settings.integer(micro), accumulation,
                                     settings.integer(accumulation), of_ranks));
    }
}

void derive_optimizer(Settings& settings) {
    for (auto& [key, value] : optimizer_defaults(settings)) settings.derive(key, std::move(value));
}

bool is_param_of_schedule(std::string_view type, std::string_view param) {
    const std::vector<std::string_view>& own = std::ranges::find(schedule_keys(), type, &ScheduleKeys::type)->params;
    return std::ranges::find(own, param) != own.end();
}

void derive_schedule(Settings& settings) {
    const std::string& type = settings.text("scheduler.type");
    // Where the program ends, a decay ends.
    constexpr auto total = "scheduler.params.total_num_steps";
    if (!settings.has(total) && settings.has("run.steps")) settings.derive(total, settings.integer("run.steps"));
    check_schedule_params(settings, *std::ranges::find(schedule_keys(), type, &ScheduleKeys::type));
    const double learning_rate = settings.number("optimizer.params.lr");
    // DeepSpeed's WarmupDecayLR does not look at lr: its own default is 0.001.
    if (type == word_of(ScheduleKind::warmup_decay) && !settings.has("scheduler.params.warmup_max_lr") &&
        learning_rate != 1e-3) {
        refuse(settings,
               fmt::format("scheduler.params.warmup_max_lr is missing: in DeepSpeed it would be 0.001 although "
                           "optimizer.params.lr is {}; say which",
                           learning_rate));
    }
    if (!settings.has("scheduler.params.warmup_max_lr"))
        settings.derive("scheduler.params.warmup_max_lr", learning_rate);
}

void derive_deferred_share(Settings& settings) {
    if (settings.said_as(update_order) == balanced_text && !settings.given(deferred_share))
        settings.give(deferred_share, std::string(auto_text));
}

std::vector<std::string> older_words(const Settings& settings) {
    std::vector<std::string> lines;
    for (const KeySpec& key : keys()) {
        const std::string_view said = settings.said_as(key.path);
        if (said.empty()) continue;
        lines.push_back(fmt::format("{} \"{}\" is an older word for \"{}\"{}", key.path, said,
                                    settings.spelled(key.path),
                                    said == balanced_text ? fmt::format(" with {} \"auto\"", deferred_share) : ""));
    }
    return lines;
}

Settings with_derived(Settings settings, std::int64_t ranks) {
    derive_batch_sizes(settings, ranks);
    derive_optimizer(settings);
    derive_schedule(settings);
    derive_gradient_type(settings);
    derive_update_order(settings);
    derive_deferred_share(settings);
    derive_sum_order(settings, ranks);
    derive_sample(settings);
    constexpr auto directories = "run.swap_directory";
    std::vector<SettingDirectory> found = swap_directories(settings);
    if (!settings.has(directories)) settings.derive(directories, std::move(found));
    return settings;
}

}  // namespace penstock::trainer
