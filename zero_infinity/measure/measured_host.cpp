#include "zero_infinity/measure/measured_host.h"

#include "swap/format/hash.h"
#include "zero_infinity/measure/measuring_memory.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/optimizer/update.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;

// As a step meets them: tiles with their weights, states and gradients, one after the other.
class Tiles {
   public:
    Tiles(const SessionPlan& plan) : plan_(plan), numel_(plan.options.tile_numel) {
        const std::uint64_t weights = numel_ * plan.format.weights_bytes();
        const std::uint64_t states = plan.format.states_bytes(numel_);
        const std::uint64_t gradients = numel_ * bytes_of(plan.options.gradient_type);
        each_ = pool::whole_granules(weights) + pool::whole_granules(states) + pool::whole_granules(gradients);
        const std::uint64_t count = std::max<std::uint64_t>(2, beyond_caches_bytes / each_);
        memory_.emplace(count * each_);
        for (std::uint64_t i = 0; i < count; ++i) {
            std::byte* data = memory_->bytes().data() + i * each_;
            std::byte* after_weights = data + pool::whole_granules(weights);
            views_.push_back({data, after_weights, numel_});
            gradients_.push_back({after_weights + pool::whole_granules(states), plan.options.gradient_type, numel_});
        }
        fill();
    }

    std::size_t count() const noexcept { return views_.size(); }
    std::uint64_t numel() const noexcept { return numel_; }
    const TileView& view(std::size_t tile) const { return views_[tile % views_.size()]; }
    const GradientView& gradient(std::size_t tile) const { return gradients_[tile % views_.size()]; }
    std::span<const std::byte> bytes() const { return memory_->bytes(); }

   private:
    void fill() {
        std::vector<float> values(numel_);
        for (std::uint64_t i = 0; i < numel_; ++i) values[i] = 0.02F * static_cast<float>(i % 97) - 1.0F;
        const GradientView one{reinterpret_cast<const std::byte*>(values.data()), PlaneType::fp32, numel_};
        for (std::size_t tile = 0; tile < views_.size(); ++tile) {
            encode_initial(plan_.format, values.data(), views_[tile]);
            convert(one, plan_.options.gradient_type, const_cast<std::byte*>(gradients_[tile].data));
        }
    }

    const SessionPlan& plan_;
    std::uint64_t numel_;
    std::uint64_t each_ = 0;
    std::optional<MeasuringMemory> memory_;
    std::vector<TileView> views_;
    std::vector<GradientView> gradients_;
};

// Seconds of one call, by calls for so long; the first is not counted.
double seconds_of(double seconds, const std::function<void(std::size_t call)>& work) {
    work(0);
    const auto start = Clock::now();
    std::size_t calls = 0;
    double elapsed = 0;
    do {
        work(++calls);
        elapsed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (elapsed < seconds);
    return elapsed / static_cast<double>(calls);
}

}  // namespace

double hash_seconds_per_byte(std::span<const std::byte> memory, double seconds) {
    constexpr std::size_t tile_bytes = 4U << 20;
    const std::size_t count = memory.size() / tile_bytes;
    store::TileHash last;
    const double each = seconds_of(seconds, [&](std::size_t call) {
        last = store::hash_tile(memory.subspan(call % count * tile_bytes, tile_bytes), {.store = last.low});
    });
    return each / tile_bytes;
}

MeasuredHost measure_host(const SessionPlan& plan, Workers& workers, double seconds) {
    const Tiles tiles(plan);
    const auto numel = static_cast<double>(tiles.numel());
    TileUpdate update{.format = &plan.format, .optimizer = &plan.model.optimizers.others()};
    update.values = {.step = 1000, .learning_rate = 1e-6};
    MeasuredHost measured;
    measured.update_per_element =
        seconds_of(seconds,
                   [&](std::size_t call) {
                       static_cast<void>(update_tile(update, tiles.view(call), tiles.gradient(call), workers));
                   }) /
        numel;
    std::vector<double> sums(tiles.count());
    measured.norm_per_element = seconds_of(seconds,
                                           [&](std::size_t) {
                                               workers.run(tiles.count(), [&](std::size_t tile) {
                                                   sums[tile] = sum_of_squares(tiles.gradient(tile));
                                               });
                                           }) /
                                (numel * static_cast<double>(tiles.count()));
    measured.hash_per_byte = hash_seconds_per_byte(tiles.bytes(), seconds);
    return measured;
}

}  // namespace penstock::zero
