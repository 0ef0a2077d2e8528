#include "trainer/plan/laid_aside.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/engine/session_options.h"

#include <fmt/format.h>

namespace penstock::trainer {
namespace {

std::uint64_t hidden_bytes(const TrainConfig& config) {
    const std::uint64_t element_bytes = zero::bytes_of(zero::find_codec(config.session.codec)->weights);
    return static_cast<std::uint64_t>(config.micro_batch_rows) * static_cast<std::uint64_t>(config.model.context) *
           static_cast<std::uint64_t>(config.model.hidden) * element_bytes;
}

std::size_t unit_count(const TrainConfig& config) {
    return static_cast<std::size_t>(config.model.layers) + 2;  // and embedding and head
}

}  // namespace

zero::LaidAside laid_aside_by(const TrainConfig& config) {
    const engine::EngineOptions& engine = config.session.engine;
    const bool all_kept =
        engine.activations == engine::Activations::retain && engine.graph_budget_bytes == engine::unbounded_graphs;
    zero::LaidAside laid{.items = {}, .budget_bytes = config.session.activation_bytes};
    if (laid.budget_bytes == 0 || all_kept) return laid;
    const std::size_t last = unit_count(config) - 1;
    const auto micro_batches = static_cast<std::uint64_t>(config.micro_batches);
    for (std::size_t unit = 1; unit < last; ++unit)
        for (std::uint64_t index = 0; index < micro_batches; ++index)
            laid.items.push_back({.turn = (last - unit) * micro_batches + index,
                                  .bytes = hidden_bytes(config),
                                  .laid_in = unit,
                                  .taken_in = 2 * last - unit});
    return laid;
}

zero::ShelfBytes away_bytes_of(const TrainConfig& config) {
    try {
        return zero::shelf_bytes(laid_aside_by(config), 2 * unit_count(config) - 1);
    } catch (const Error& error) {
        throw Error(error.code(), fmt::format("memory.activation_budget: {}; raise it to {} at least, which is what a "
                                              "micro-batch takes between two units",
                                              error.what(), bytes_text(hidden_bytes(config))));
    }
}

}  // namespace penstock::trainer
