#include "trainer/plan/lightest.h"

#include "trainer/models/gpt.h"
#include "zero_infinity/plan/lightest_plan.h"

#include <fmt/format.h>

#include <optional>

namespace penstock::trainer {
namespace {

constexpr std::uint64_t mebibyte = 1ULL << 20;

const char* setting_of(zero::Lightening change) {
    switch (change) {
        case zero::Lightening::prefetch_one:
            return "memory.prefetch_depth=1";
        case zero::Lightening::staging_two:
            return "memory.staging_tiles=2";
        case zero::Lightening::states_on_nvme:
            return "zero_optimization.offload_optimizer.device=nvme";
        case zero::Lightening::weights_on_nvme:
            return "zero_optimization.offload_param.device=nvme";
        case zero::Lightening::no_prefetch:
            return "memory.prefetch_depth=0";
        case zero::Lightening::gradients_on_nvme:
            return "memory.gradients=nvme";
        case zero::Lightening::gradients_bf16:
            return "data_types.grad_accum_dtype=bf16";
    }
    return "";
}

std::string as_options(const zero::LightestPlan& lightest) {
    std::string text = fmt::format("--set memory.host_budget={}MiB", lightest.pool_bytes / mebibyte + 1);
    for (const zero::Lightening change : lightest.changes) text += fmt::format(" --set {}", setting_of(change));
    return text;
}

}  // namespace

std::string lightest_settings(const ConfigSource& source, const zero::MachineRoom& room) {
    TrainConfig config = source.with({});
    const auto lightest = [&] {
        return zero::lightest_plan(model_of(config), planned_options(config.session, room), room, partition_of(config),
                                   0);
    };
    if (const auto found = lightest()) return "the lightest that fits: " + as_options(*found);
    const std::uint64_t least = 3 * input_bytes(config);  // one in use, and two that come
    if (config.session.activation_bytes > least) {
        config.session.activation_bytes = least;
        if (const auto found = lightest())
            return fmt::format("the lightest that fits: {} --set memory.activation_budget={}MiB", as_options(*found),
                               least / mebibyte + 1);
    }
    return "nothing lighter fits this machine's memory: take a smaller model, or another machine";
}

}  // namespace penstock::trainer
