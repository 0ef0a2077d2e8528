#include "zero_infinity/engine/tape.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace penstock::engine {

std::uint64_t own_bytes(const Bundle& bundle, const Bundle& before) {
    const auto has_memory_of = [](const at::Tensor& tensor) {
        return [&tensor](const auto& other) { return other.second.defined() && other.second.is_alias_of(tensor); };
    };
    std::uint64_t bytes = 0;
    for (auto entry = bundle.begin(); entry != bundle.end(); ++entry) {
        const at::Tensor& tensor = entry->second;
        if (!tensor.defined() || std::any_of(bundle.begin(), entry, has_memory_of(tensor)) ||
            std::any_of(before.begin(), before.end(), has_memory_of(tensor)))
            continue;
        bytes += tensor.storage().nbytes();
    }
    return bytes;
}

std::uint32_t first_kept_graph(std::span<const std::optional<std::uint64_t>> graph_bytes, std::size_t micro_batches,
                               std::uint64_t budget_bytes) {
    if (graph_bytes.empty()) return 0;
    auto unit = static_cast<std::uint32_t>(graph_bytes.size()) - 1;
    std::uint64_t left = budget_bytes;
    for (; unit > 0 && graph_bytes[unit - 1]; --unit) {
        const std::uint64_t bytes = *graph_bytes[unit - 1] * micro_batches;
        if (bytes > left) break;
        left -= bytes;
    }
    return unit;
}

Tape::Tape(std::size_t units, const EngineOptions& options) : options_(options), saved_(units), graph_bytes_(units) {}

void Tape::begin(std::vector<Bundle> inputs) {
    for (auto& unit : saved_) unit.assign(inputs.size(), {});
    for (std::size_t index = 0; index < inputs.size(); ++index) saved_[0][index].input = std::move(inputs[index]);
    input_bytes_ = 0;
    first_kept_ = unit_count();
    if (options_.activations == Activations::recompute) return;
    first_kept_ = options_.graph_budget_bytes == unbounded_graphs
                      ? 0
                      : first_kept_graph(graph_bytes_, inputs.size(), options_.graph_budget_bytes);
}

void Tape::set_input(std::uint32_t unit, std::size_t micro_batch, Bundle input, const Bundle& before) {
    input_bytes_ += own_bytes(input, before);
    saved_[unit][micro_batch].input = std::move(input);
}

void Tape::measured(std::uint32_t unit, std::uint64_t bytes) {
    graph_bytes_[unit] = std::max(graph_bytes_[unit].value_or(0), bytes);
}

std::uint64_t Tape::graph_bytes() const {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = first_kept_; unit + 1 < unit_count(); ++unit)
        bytes += graph_bytes_[unit].value_or(0) * saved_[unit].size();
    return bytes;
}

}  // namespace penstock::engine
