// What follows from other keys where nobody says it.
#pragma once

#include "trainer/config/settings.h"
#include "zero_infinity/keys/session_keys.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::trainer {

// The parts, which throw Error (usage) each. DeepSpeed's identity on one rank: train_batch_size =
// train_micro_batch_size_per_gpu * gradient_accumulation_steps; what is not given follows from the others, or is 1.
void derive_batch_sizes(Settings& settings, std::int64_t ranks = 1);
void derive_optimizer(Settings& settings);
void derive_schedule(Settings& settings);  // REQUIRES: optimizer.params.lr
// By the last word of its key.
bool is_param_of_schedule(std::string_view type, std::string_view param);

using zero::balanced_text;  // of run.update_order, which has a share then
void derive_deferred_share(Settings& settings);
// What was said with words of before, a line each.
std::vector<std::string> older_words(const Settings& settings);

// The settings with every value that follows from others, of a run of so many ranks. Throws Error (usage) where what is
// given does not go together, or has no effect.
Settings with_derived(Settings settings, std::int64_t ranks = 1);

}  // namespace penstock::trainer
