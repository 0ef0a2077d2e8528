#include "trainer/config/schedule.h"

#include "aio/words/check.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace penstock::trainer {
namespace {

double warmup_share(const ScheduleOptions& options, std::int64_t index, std::int64_t warmup_steps) {
    if (options.warmup_type == WarmupCourse::linear)
        return static_cast<double>(index) / static_cast<double>(warmup_steps);
    return std::log(static_cast<double>(index + 1)) / std::log(static_cast<double>(warmup_steps));
}

double decay_share(const ScheduleOptions& options, std::int64_t index, std::int64_t warmup_steps) {
    const double length = static_cast<double>(std::max<std::int64_t>(1, options.total_num_steps - warmup_steps));
    if (options.kind == ScheduleKind::warmup_decay) {
        return std::max(0.0, static_cast<double>(options.total_num_steps - index) / length);
    }
    const double progress = std::min(1.0, static_cast<double>(index - warmup_steps + 1) / length);
    const double wave = (1 + std::cos(std::numbers::pi * progress)) / 2;
    return options.cos_min_ratio + (1 - options.cos_min_ratio) * wave;
}

double cosine_rate(const ScheduleOptions& options, std::int64_t index, std::int64_t warmup_steps) {
    if (index < 0) return 0;
    if (index >= warmup_steps) return options.learning_rate * decay_share(options, index, warmup_steps);
    const double share = warmup_share(options, index, warmup_steps);
    return options.learning_rate * (options.warmup_min_ratio + share * (1 - options.warmup_min_ratio));
}

}  // namespace

double learning_rate(const ScheduleOptions& options, std::int64_t step) {
    PENSTOCK_CHECK(step >= 1, "step {}", step);
    if (options.kind == ScheduleKind::constant) return options.learning_rate;
    const std::int64_t index = step - 2;
    const std::int64_t warmup_steps = std::max<std::int64_t>(2, options.warmup_num_steps);
    if (options.kind == ScheduleKind::warmup_cosine) return cosine_rate(options, index, warmup_steps);

    double share = 1;
    if (index < 0)
        share = 0;
    else if (index < warmup_steps)
        share = warmup_share(options, index, warmup_steps);
    else if (options.kind == ScheduleKind::warmup_decay)
        share = decay_share(options, index, warmup_steps);
    return options.warmup_min_lr + (options.warmup_max_lr - options.warmup_min_lr) * share;
}

}  // namespace penstock::trainer
