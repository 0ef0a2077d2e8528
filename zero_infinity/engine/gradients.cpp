#include "zero_infinity/engine/gradients.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/tensor_view.h"
#include "zero_infinity/plan/memory_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace penstock::engine {
namespace {

bool trainable(const zero::ParameterSpec& spec) {
    return spec.training == zero::Training::trainable;
}

std::uint64_t own_bytes(const zero::UnitLayout& layout, zero::PlaneType type) {
    return pool::whole_granules(layout.trainable_numel() * bytes_of(type));
}

std::uint64_t unit_bytes(const Unit& unit, const zero::UnitLayout& layout, zero::PlaneType type) {
    std::uint64_t bytes = own_bytes(layout, type);
    for (const Borrowed& borrowed : unit.borrowed())
        if (trainable(borrowed.parameter->spec()))
            bytes += pool::whole_granules(borrowed.parameter->spec().numel() * bytes_of(type));
    return bytes;
}

std::size_t parameter_index(const Unit& owner, const Parameter& parameter) {
    const auto& all = owner.parameters();
    return static_cast<std::size_t>(
        std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.get() == &parameter; }) - all.begin());
}

}  // namespace

std::uint64_t gradient_bytes(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type) {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        bytes += unit_bytes(*model.units()[unit], layout.unit(unit), type);
    return bytes;
}

std::uint64_t gradient_window_bytes(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type) {
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        largest = std::max(largest, unit_bytes(*model.units()[unit], layout.unit(unit), type));
    return 2 * largest;
}

Gradients::Gradients(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type, pool::PinnedPool& pool,
                     zero::Device& device, std::chrono::seconds deadline)
    : model_(&model),
      layout_(&layout),
      type_(type),
      device_(&device),
      deadline_(deadline),
      units_(layout.unit_count()),
      sums_(layout.partition().ranks * layout.tiles().size()) {
    for (std::uint32_t index = 0; index < layout.unit_count(); ++index) {
        const Unit& unit = *model.units()[index];
        UnitGradients& gradients = units_[index];
        for (std::size_t parameter = 0; parameter < unit.parameters().size(); ++parameter)
            if (const zero::ParameterSpec& spec = unit.parameters()[parameter]->spec(); trainable(spec))
                gradients.ranges.push_back({layout.unit(index).place(parameter).first * bytes_of(type), &spec});
        gradients.own = gradients.ranges.size();
        std::uint64_t offset_bytes = own_bytes(layout.unit(index), type);
        for (const Borrowed& borrowed : unit.borrowed()) {
            const zero::ParameterSpec& spec = borrowed.parameter->spec();
            if (!trainable(spec)) continue;
            gradients.ranges.push_back({offset_bytes, &spec});
            offset_bytes += pool::whole_granules(spec.numel() * bytes_of(type));
        }
        if (offset_bytes == 0) continue;
        gradients.memory = pool.acquire(pool.use(zero::gradients_use), offset_bytes);
        std::memset(gradients.memory.data(), 0, offset_bytes);  // padding between parameters stays zero
    }
    const std::uint64_t window = gradient_window_bytes(model, layout, type) / 2;
    if (device.shares_host_memory() || window == 0) return;
    std::byte* data = device.allocate(2 * window, zero::gradients_use);
    windows_ = {Window{data, {}}, Window{data + window, {}}};
}

// A step may have been left by an exception: its copies still write into our leases.
Gradients::~Gradients() {
    bool ended = true;
    for (const Window& window : windows_) {
        try {
            ended = device_->wait(window.copied, deadline_) && ended;
        } catch (const std::exception&) {
            ended = false;
        }
    }
    if (ended) return;
    // The device is lost and may write at any time: the memory is never given to anyone else.
    for (UnitGradients& unit : units_) unit.memory.orphan();
}

std::byte* Gradients::target(const UnitGradients& unit) const {
    return device_->shares_host_memory() ? unit.memory.data() : windows_[turn_].data;
}

void Gradients::wait_for_copy(const Window& window) const {
    if (device_->wait(window.copied, deadline_)) return;
    throw Error(ExitCode::internal,
                fmt::format("gradients are on their way from device '{}' to host memory for more than {} s: "
                            "the device is stuck; the last committed step is safe",
                            device_->name(), deadline_.count()));
}

void Gradients::begin(std::uint32_t unit) {
    if (device_->shares_host_memory() || units_[unit].ranges.empty()) return;
    turn_ = 1 - turn_;
    wait_for_copy(windows_[turn_]);
    const auto numel = static_cast<std::int64_t>(units_[unit].memory.bytes() / bytes_of(type_));
    view_of(windows_[turn_].data, {numel}, type_, *device_).zero_();
}

void GradientSum::add(std::span<const at::Tensor> gradients) {
    const Gradients& all = *gradients_;
    const Gradients::UnitGradients& unit = all.units_[unit_];
    PENSTOCK_CHECK(gradients.size() == unit.ranges.size(), "{} gradients for {} parameters", gradients.size(),
                   unit.ranges.size());
    for (std::size_t index = 0; index < gradients.size(); ++index) {
        const Gradients::Range& range = unit.ranges[index];
        at::Tensor sum = view_of(all.target(unit) + range.offset_bytes, range.spec->shape, all.type_, *all.device_);
        const at::Tensor& gradient = gradients[index];
        if (first_) {
            gradient.defined() ? sum.copy_(gradient) : sum.zero_();
        } else if (gradient.defined()) {
            sum.add_(gradient);
        }
    }
    first_ = false;
}

void Gradients::end(std::uint32_t unit) {
    const UnitGradients& summed = units_[unit];
    if (device_->shares_host_memory() || summed.ranges.empty()) return;
    windows_[turn_].copied = device_->copy_out(summed.memory.data(), windows_[turn_].data, summed.memory.bytes());
}

FinishedGradients Gradients::finish() {
    for (const Window& window : windows_) wait_for_copy(window);
    for (std::size_t index = 0; index < units_.size(); ++index) {
        const UnitGradients& unit = units_[index];
        std::size_t range = unit.own;
        for (const Borrowed& borrowed : model_->units()[index]->borrowed()) {
            const zero::ParameterSpec& spec = borrowed.parameter->spec();
            if (!trainable(spec)) continue;
            const std::uint32_t owner = model_->index_of(*borrowed.owner);
            const std::size_t parameter = parameter_index(*borrowed.owner, *borrowed.parameter);
            penstock::zero::add(
                {unit.memory.data() + unit.ranges[range++].offset_bytes, type_, spec.numel()},
                units_[owner].memory.data() + layout_->unit(owner).place(parameter).first * bytes_of(type_));
        }
    }
    return FinishedGradients(*this);
}

zero::GradientView FinishedGradients::tile(zero::UnitTile tile) const {
    const Gradients& all = *gradients_;
    const zero::UnitLayout& unit = all.layout_->unit(tile.unit);
    return {all.units_[tile.unit].memory.data() + tile.tile * unit.tile_numel() * bytes_of(all.type_), all.type_,
            unit.tile_numel(tile.tile)};
}

// All ranks have as many tiles of a unit as this one, and the tiles before a unit are those before its first.
std::size_t FinishedGradients::place_of(std::size_t index) const {
    const zero::ModelLayout& layout = *gradients_->layout_;
    const zero::Partition partition = layout.partition();
    const zero::UnitTile tile = layout.tiles()[index];
    const std::size_t before = index - tile.tile;
    return partition.ranks * before + std::size_t{partition.rank} * layout.unit(tile.unit).tile_count() + tile.tile;
}

double FinishedGradients::norm(zero::Workers& workers, zero::Communicator& communicator) const {
    const std::span<const zero::UnitTile> tiles = gradients_->layout_->tiles();
    std::vector<double>& sums = gradients_->sums_;
    std::fill(sums.begin(), sums.end(), 0);
    workers.run(tiles.size(), [&](std::size_t index) { sums[place_of(index)] = sum_of_squares(tile(tiles[index])); });
    communicator.all_reduce(sums);  // only one rank's addend of each is not zero: no bit changes
    double sum = 0;
    for (const double each : sums) sum += each;
    return std::sqrt(sum);
}

std::optional<std::string> FinishedGradients::first_non_finite() const {
    const Gradients& all = *gradients_;
    for (std::size_t index = 0; index < all.units_.size(); ++index) {
        const Gradients::UnitGradients& unit = all.units_[index];
        for (std::size_t range = 0; range < unit.own; ++range) {
            const zero::ParameterSpec& spec = *unit.ranges[range].spec;
            const std::byte* data = unit.memory.data() + unit.ranges[range].offset_bytes;
            if (!std::isfinite(zero::sum_of_squares({data, all.type_, spec.numel()})))
                return fmt::format("unit '{}', parameter '{}'", all.model_->units()[index]->name(), spec.name);
        }
    }
    return std::nullopt;
}

}  // namespace penstock::engine
