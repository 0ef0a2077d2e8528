#include "trainer/capi/missing_values.h"

#include "trainer/config/derived_settings.h"
#include "trainer/config/key_table.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace penstock::trainer {
namespace {

constexpr std::string_view total = "train_batch_size";
constexpr std::string_view micro = "train_micro_batch_size_per_gpu";
constexpr std::string_view accumulation = "gradient_accumulation_steps";
constexpr std::string_view scheduler_params = "scheduler.params.";

// DeepSpeed's three batch sizes: any two give the third, and one micro-batch is a step where nobody says how many.
bool follows_from_the_others(const Settings& settings, const std::vector<std::string>& left, std::string_view path) {
    const auto is_left = [&](std::string_view key) { return std::ranges::find(left, key) != left.end(); };
    const bool steps = !is_left(accumulation) || (settings.given(total) && settings.given(micro));
    const bool rows = settings.given(micro) || (settings.given(total) && steps);
    if (path == accumulation) return steps;
    if (path == micro) return rows;
    return rows || is_left(micro);  // else what it follows from is named
}

// An optimizer or a schedule that is not the chosen one's has no such key.
bool is_of_the_chosen(const Settings& settings, std::string_view path) {
    if (!path.starts_with(scheduler_params)) return settings.has(path);
    return is_param_of_schedule(settings.text("scheduler.type"), path.substr(scheduler_params.size()));
}

}  // namespace

std::vector<std::string> missing_values(const Settings& settings, const std::vector<std::string>& automatic) {
    std::vector<std::string> left;
    std::ranges::copy_if(automatic, std::back_inserter(left), [&](const std::string& path) {
        return find_key(path, Client::package)->package.needed && !settings.given(path);
    });
    std::vector<std::string> missing;
    std::ranges::copy_if(left, std::back_inserter(missing), [&](const std::string& path) {
        if (path == total || path == micro || path == accumulation)
            return !follows_from_the_others(settings, left, path);
        return is_of_the_chosen(settings, path);
    });
    return missing;
}

}  // namespace penstock::trainer
