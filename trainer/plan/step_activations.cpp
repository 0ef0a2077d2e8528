#include "trainer/plan/step_activations.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "pinned_pool/budget.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/engine/tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace penstock::trainer {
namespace {

std::uint64_t element_bytes(const TrainConfig& config) {
    return zero::bytes_of(zero::find_codec(config.session.codec)->weights);
}

}  // namespace

std::uint64_t input_bytes(const TrainConfig& config) {
    return hidden_bytes(config.model, config.micro_batch_rows, element_bytes(config));
}

KeptGraphs kept_graphs(const TrainConfig& config, std::span<const std::uint64_t> graph_bytes,
                       std::uint64_t room_bytes) {
    const engine::EngineOptions& engine = config.session.engine;
    const bool bounded = engine.graph_budget_bytes != engine::unbounded_graphs;
    const auto micro_batches = static_cast<std::uint64_t>(config.micro_batches);
    KeptGraphs kept{.first = unit_count(config.model) - 1, .bytes = 0};
    if (engine.activations == engine::Activations::recompute) return kept;
    if (engine.activations == engine::Activations::retain && !bounded) kept.first = 0;
    if (graph_bytes.empty()) return kept;
    const std::vector<std::optional<std::uint64_t>> known(graph_bytes.begin(), graph_bytes.end());
    if (kept.first > 0)
        kept.first = engine::first_kept_graph(known, static_cast<std::size_t>(micro_batches),
                                              bounded ? engine.graph_budget_bytes : room_bytes);
    for (std::size_t unit = kept.first; unit + 1 < graph_bytes.size(); ++unit)
        kept.bytes += graph_bytes[unit] * micro_batches;
    return kept;
}

zero::LaidAside laid_aside(const TrainConfig& config, const KeptGraphs& kept) {
    zero::LaidAside laid{.items = {}, .budget_bytes = config.session.activation_bytes};
    if (laid.budget_bytes == 0) return laid;
    const std::size_t last = unit_count(config.model) - 1;
    const auto micro_batches = static_cast<std::uint64_t>(config.micro_batches);
    for (std::size_t unit = 1; unit < kept.first; ++unit)
        for (std::uint64_t index = 0; index < micro_batches; ++index)
            laid.items.push_back({.turn = (last - unit) * micro_batches + index,
                                  .bytes = input_bytes(config),
                                  .laid_in = unit,
                                  .taken_in = {2 * last - unit}});
    return laid;
}

std::uint64_t input_bytes_of_step(const TrainConfig& config) {
    return activation_bytes(config.model, config.micro_batch_rows * config.micro_batches, element_bytes(config));
}

std::uint64_t bytes_of(const zero::LaidAside& laid) {
    std::uint64_t bytes = 0;
    for (const zero::LaidItem& item : laid.items) bytes += item.bytes;
    return bytes;
}

zero::ShelfBytes away_bytes(const TrainConfig& config, const KeptGraphs& kept) {
    const std::uint64_t budget = config.session.activation_bytes;
    if (budget > 0 && unit_count(config.model) > 2 && input_bytes(config) > pool::whole_granules(budget))
        throw Error(ExitCode::does_not_fit,
                    fmt::format("memory.activation_budget {}: what one micro-batch has between two units takes {} and "
                                "finds no room there: raise it to that at least",
                                bytes_text(budget), bytes_text(input_bytes(config))));
    return zero::shelf_bytes(laid_aside(config, kept), 2 * std::size_t{unit_count(config.model)} - 1);
}

}  // namespace penstock::trainer
