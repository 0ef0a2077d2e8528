#include "trainer/config/derived_settings.h"

#include "aio/words/error.h"
#include "trainer/config/key_table.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/schedule.h"
#include "trainer/config/swap_directories.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/kernels/plane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

[[noreturn]] void refuse(const Settings& settings, const std::string& problem) {
    throw Error(ExitCode::usage, settings.file() + ": " + problem);
}

// DeepSpeed's identity on one rank: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps;
// what is not given follows from the others, or is 1.
void derive_batch_sizes(Settings& settings) {
    constexpr auto total = "train_batch_size";
    constexpr auto micro = "train_micro_batch_size_per_gpu";
    constexpr auto accumulation = "gradient_accumulation_steps";
    const auto quotient = [&](const char* divisor) {
        if (settings.integer(total) % settings.integer(divisor) != 0) {
            refuse(settings, fmt::format("{} {} is not a multiple of {} {}", total, settings.integer(total), divisor,
                                         settings.integer(divisor)));
        }
        return settings.integer(total) / settings.integer(divisor);
    };
    if (!settings.has(accumulation)) {
        const bool follows = settings.has(total) && settings.has(micro);
        settings.derive(accumulation, follows ? quotient(micro) : std::int64_t{1});
    }
    if (!settings.has(micro)) settings.derive(micro, settings.has(total) ? quotient(accumulation) : std::int64_t{1});
    const std::int64_t product = settings.integer(micro) * settings.integer(accumulation);
    if (!settings.has(total)) settings.derive(total, product);
    if (settings.integer(total) != product) {
        refuse(settings,
               fmt::format("{} {} is not {} {} times {} {}; leave one of the three out", total, settings.integer(total),
                           micro, settings.integer(micro), accumulation, settings.integer(accumulation)));
    }
}

struct ScheduleKeys {
    ScheduleKind kind;
    std::vector<std::string_view> params;  // besides the learning rate
};

const std::array<ScheduleKeys, 4>& schedule_keys() {
    static const std::array<ScheduleKeys, 4> known = {{
        {ScheduleKind::constant, {}},
        {ScheduleKind::warmup, {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr"}},
        {ScheduleKind::warmup_decay,
         {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr", "total_num_steps"}},
        {ScheduleKind::warmup_cosine,
         {"warmup_num_steps", "warmup_type", "warmup_min_ratio", "cos_min_ratio", "total_num_steps"}},
    }};
    return known;
}

// A parameter that the chosen scheduler does not have would be without effect: refused.
void check_schedule_params(const Settings& settings, ScheduleKind kind) {
    const auto own = std::ranges::find(schedule_keys(), kind, &ScheduleKeys::kind);
    for (const std::string_view param : words_of_section("scheduler.params")) {
        if (!settings.given(fmt::format("scheduler.params.{}", param))) continue;
        if (std::ranges::find(own->params, param) != own->params.end()) continue;
        refuse(settings, fmt::format("scheduler.params.{} has no effect with scheduler.type \"{}\"; leave it out",
                                     param, word_of(kind)));
    }
}

void derive_schedule(Settings& settings) {
    const ScheduleKind kind = find_word<ScheduleKind>(settings.text("scheduler.type")).value();
    check_schedule_params(settings, kind);
    const double learning_rate = settings.number("optimizer.params.lr");
    // DeepSpeed's WarmupDecayLR does not look at lr: its own default is 0.001.
    if (kind == ScheduleKind::warmup_decay && !settings.given("scheduler.params.warmup_max_lr") &&
        learning_rate != 1e-3) {
        refuse(settings,
               fmt::format("scheduler.params.warmup_max_lr is missing: in DeepSpeed it would be 0.001 although "
                           "optimizer.params.lr is {}; say which",
                           learning_rate));
    }
    if (!settings.has("scheduler.params.warmup_max_lr"))
        settings.derive("scheduler.params.warmup_max_lr", learning_rate);
    if (!settings.has("scheduler.params.total_num_steps"))
        settings.derive("scheduler.params.total_num_steps", settings.integer("run.steps"));
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

}  // namespace

Settings with_derived(Settings settings) {
    derive_batch_sizes(settings);
    for (auto& [key, value] : optimizer_defaults(settings)) settings.derive(key, std::move(value));
    derive_schedule(settings);
    derive_gradient_type(settings);
    constexpr auto directories = "run.swap_directory";
    std::vector<SettingDirectory> found = swap_directories(settings);
    if (!settings.has(directories)) settings.derive(directories, std::move(found));
    return settings;
}

}  // namespace penstock::trainer
