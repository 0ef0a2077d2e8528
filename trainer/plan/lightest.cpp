#include "trainer/plan/lightest.h"

#include "aio/words/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr std::uint64_t mebibyte = 1ULL << 20;

// What the pool needs at least with these settings; nothing where the machine has not that much.
std::optional<std::uint64_t> needed_bytes(const TrainConfig& config) try {
    engine::SessionOptions options = config.session;
    options.host_budget_bytes = zero::planned_host_budget;
    return session_plan_of(config, std::move(options))->memory.budget.used_bytes();
} catch (const Error& error) {
    if (error.code() != ExitCode::does_not_fit) throw;
    return std::nullopt;
}

// From what changes least to what changes most. None but the last changes a bit of the result.
std::vector<std::vector<std::string>> lighter_and_lighter(const TrainConfig& config) {
    std::vector<std::string> changes;
    std::vector<std::vector<std::string>> all = {changes};
    const auto then = [&](std::string change) {
        changes.push_back(std::move(change));
        all.push_back(changes);
    };
    if (config.session.prefetch_depth > 1) then("memory.prefetch_depth=1");
    if (config.session.staging_tiles > 2) then("memory.staging_tiles=2");
    if (config.session.residency.states == zero::Tier::host) then("zero_optimization.offload_optimizer.device=nvme");
    if (config.session.residency.weights == zero::Tier::host) then("zero_optimization.offload_param.device=nvme");
    if (config.session.prefetch_depth > 0) then("memory.prefetch_depth=0");
    if (config.session.gradient_type == zero::PlaneType::fp32) then("data_types.grad_accum_dtype=bf16");
    return all;
}

std::string as_options(const std::vector<std::string>& changes, std::uint64_t bytes) {
    std::string text = fmt::format("--set memory.host_budget={}MiB", bytes / mebibyte + 1);
    for (const std::string& change : changes) text += " --set " + change;
    return text;
}

}  // namespace

std::string lightest_settings(const ConfigSource& source) {
    const TrainConfig config = source.with({});
    std::string last;
    for (const std::vector<std::string>& changes : lighter_and_lighter(config)) {
        const std::optional<std::uint64_t> bytes = needed_bytes(source.with(changes));
        if (bytes) last = as_options(changes, *bytes);
        if (bytes && *bytes <= config.session.host_budget_bytes) break;
    }
    return last.empty() ? "nothing lighter fits this machine's memory: take a smaller model, or another machine"
                        : "the lightest that fits: " + last;
}

}  // namespace penstock::trainer
