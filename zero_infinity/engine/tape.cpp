#include "zero_infinity/engine/tape.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::engine {
namespace {

// Vector instructions read it best, whatever lies before.
constexpr std::uint64_t laid_alignment = 64;

using Entry = std::pair<std::string, at::Tensor>;

bool has_memory_of(const Entry& entry, const at::Tensor& tensor) {
    return entry.second.defined() && entry.second.is_alias_of(tensor);
}

// Tensors that a unit passes on, or returns twice, have their memory once.
bool is_first_of_its_memory(const Bundle& bundle, const Entry& entry, const Bundle& before) {
    const auto same = [&](const Entry& other) { return has_memory_of(other, entry.second); };
    for (const Entry& earlier : bundle) {
        if (&earlier == &entry) break;
        if (same(earlier)) return false;
    }
    return std::none_of(before.begin(), before.end(), same);
}

bool is_alone(const Bundle& bundle, const Entry& entry) {
    return std::count_if(bundle.begin(), bundle.end(),
                         [&](const Entry& other) { return has_memory_of(other, entry.second); }) == 1;
}

at::Tensor on_shelf(std::span<std::byte> memory, const LaidTensor& laid) {
    return at::from_blob(memory.data() + laid.offset_bytes, laid.shape, laid.strides, laid.options.device(at::kCPU));
}

}  // namespace

std::uint64_t own_bytes(const Bundle& bundle, const Bundle& before) {
    std::uint64_t bytes = 0;
    for (const Entry& entry : bundle)
        if (entry.second.defined() && is_first_of_its_memory(bundle, entry, before))
            bytes += entry.second.storage().nbytes();
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

Tape::Tape(std::size_t units, const EngineOptions& options, zero::Shelf* shelf)
    : options_(options), shelf_(shelf), saved_(units), graph_bytes_(units) {}

void Tape::begin(std::vector<Bundle> inputs) {
    for (auto& unit : saved_) unit.assign(inputs.size(), {});
    for (std::size_t index = 0; index < inputs.size(); ++index) saved_[0][index].input = std::move(inputs[index]);
    kept_.clear();
    input_bytes_ = kept_bytes_ = 0;
    given_up_ = 0;
    if (shelf_ != nullptr) shelf_->clear();
    first_kept_ = unit_count();
    if (options_.activations == Activations::recompute) return;
    const bool all = options_.activations == Activations::automatic || options_.graph_budget_bytes == unbounded_graphs;
    first_kept_ = all ? 0 : first_kept_graph(graph_bytes_, inputs.size(), options_.graph_budget_bytes);
}

void Tape::set_input(std::uint32_t unit, std::size_t micro_batch, Bundle input, const Bundle& before) {
    input_bytes_ += own_bytes(input, before);
    SavedActivations& saved = saved_[unit][micro_batch];
    saved.input = std::move(input);
    for (const Entry& entry : saved.input)
        if (entry.second.defined() && entry.second.is_non_overlapping_and_dense() && entry.second.numel() > 0 &&
            is_alone(saved.input, entry) && is_first_of_its_memory(saved.input, entry, before))
            saved.own.push_back(entry.first);
}

// The order in which backward goes through them.
std::uint64_t Tape::turn_of(std::uint32_t unit, std::size_t micro_batch) const {
    return std::uint64_t{unit_count() - 1 - unit} * saved_[unit].size() + micro_batch;
}

void Tape::lay_aside(std::uint32_t unit, std::size_t micro_batch) {
    SavedActivations& saved = saved_[unit][micro_batch];
    if (shelf_ == nullptr || saved.own.empty() || saved.output.size() > 0) return;
    std::uint64_t bytes = 0;
    for (const std::string& name : saved.own) {
        const at::Tensor& tensor = saved.input.at(name);
        saved.laid.push_back({.name = name,
                              .offset_bytes = bytes,
                              .shape = tensor.sizes().vec(),
                              .strides = tensor.strides().vec(),
                              .options = tensor.options(),
                              .requires_gradient = tensor.requires_grad()});
        bytes += round_up(tensor.nbytes(), laid_alignment);
    }
    const at::AutoGradMode no_graph(false);
    const std::span<std::byte> memory = shelf_->lay({.turn = turn_of(unit, micro_batch), .unit = unit, .bytes = bytes});
    for (const LaidTensor& laid : saved.laid) {
        on_shelf(memory, laid).copy_(saved.input.at(laid.name));
        saved.input.set(laid.name, {});
    }
}

void Tape::bring_back(std::uint32_t unit, std::size_t micro_batch) {
    SavedActivations& saved = saved_[unit][micro_batch];
    if (saved.laid.empty()) return;
    const std::span<std::byte> memory = shelf_->take(turn_of(unit, micro_batch));
    for (const LaidTensor& laid : saved.laid) {
        at::Tensor tensor = on_shelf(memory, laid).to(laid.options.device());
        saved.input.set(laid.name, tensor.requires_grad_(laid.requires_gradient));
    }
}

void Tape::forget(std::uint32_t unit, std::size_t micro_batch) {
    drop_graph({unit, micro_batch});
    const bool laid = !saved_[unit][micro_batch].laid.empty();
    saved_[unit][micro_batch] = {};
    if (laid) shelf_->drop(turn_of(unit, micro_batch));
}

void Tape::measured(std::uint32_t unit, std::uint64_t bytes) {
    graph_bytes_[unit] = std::max(graph_bytes_[unit].value_or(0), bytes);
}

void Tape::keep_graph(const Call& call, Bundle output) {
    SavedActivations& saved = at(call.unit, call.micro_batch);
    saved.output = std::move(output);
    saved.graph_bytes = graph_bytes_[call.unit].value_or(0);
    kept_bytes_ += saved.graph_bytes;
    kept_.push_back(call);
}

// Backward takes them from the end. False: it has none.
bool Tape::drop_graph(const Call& call) {
    const auto kept = std::find(kept_.rbegin(), kept_.rend(), call);
    if (kept == kept_.rend()) return false;
    kept_.erase(std::next(kept).base());
    SavedActivations& saved = at(call.unit, call.micro_batch);
    kept_bytes_ -= std::exchange(saved.graph_bytes, 0);
    saved.output = {};
    return true;
}

void Tape::give_up(const Call& call) {
    PENSTOCK_CHECK(drop_graph(call), "no graph of unit {}, micro-batch {}, is kept", call.unit, call.micro_batch);
    lay_aside(call.unit, call.micro_batch);
    ++given_up_;
}

bool Tape::give_up_oldest(const Call& running) {
    const auto oldest = std::find_if(kept_.begin(), kept_.end(), [&](const Call& call) { return call != running; });
    if (oldest == kept_.end()) return false;
    give_up(Call(*oldest));
    return true;
}

}  // namespace penstock::engine
