// The learning rate of each step: DeepSpeed's schedulers, value for value.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::trainer {

enum class ScheduleKind : std::uint8_t { constant, warmup, warmup_decay, warmup_cosine };
constexpr auto words_of(ScheduleKind) noexcept {  // DeepSpeed's
    return std::array{Word{ScheduleKind::constant, "none"}, Word{ScheduleKind::warmup, "WarmupLR"},
                      Word{ScheduleKind::warmup_decay, "WarmupDecayLR"},
                      Word{ScheduleKind::warmup_cosine, "WarmupCosineLR"}};
}
enum class WarmupCourse : std::uint8_t { logarithmic, linear };
constexpr auto words_of(WarmupCourse) noexcept {
    return std::array{Word{WarmupCourse::logarithmic, "log"}, Word{WarmupCourse::linear, "linear"}};
}

struct ScheduleOptions {
    ScheduleKind kind = ScheduleKind::constant;
    double learning_rate = 1e-3;  // the optimizer's: of constant and warmup_cosine
    double warmup_min_lr = 0;     // of warmup and warmup_decay
    double warmup_max_lr = 1e-3;
    std::int64_t warmup_num_steps = 1000;
    WarmupCourse warmup_type = WarmupCourse::logarithmic;
    std::int64_t total_num_steps = 0;
    double warmup_min_ratio = 0;  // of warmup_cosine
    double cos_min_ratio = 1e-4;
};

// `step` counts from 1. DeepSpeed moves its scheduler after the optimizer's step, so step t has the value of its batch
// index i = t - 2, and step 1 the value before the first: the minimum (cosine: 0). With w = max(2, warmup_num_steps):
//   i < w:   g = ln(i + 1) / ln(w), or i / w when linear
//   later:   warmup g = 1;  decay g = max(0, (total - i) / max(1, total - w));
//            cosine g = c + (1 - c) * (1 + cos(pi * min(1, (i - w + 1) / max(1, total - w)))) / 2,  c = cos_min_ratio
//   warmup, warmup_decay: min + (max - min) * g;  cosine: lr * g, in the warm-up lr * (r + (1 - r) * g),  r =
//   warmup_min_ratio
// Example: WarmupLR, min 0, max 1e-3, 4 steps, linear: 0, 0, 0.00025, 0.0005, 0.00075, 0.001, 0.001, …
// REQUIRES: step >= 1.
double learning_rate(const ScheduleOptions& options, std::int64_t step);

}  // namespace penstock::trainer
