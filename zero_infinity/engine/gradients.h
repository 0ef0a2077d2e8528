// Gradients in host memory: one flat buffer per unit, in the order of its trainable range, plus one per borrowed
// parameter.
//
// The order of sums is fixed and the same for any schedule: each use of a parameter sums its micro-batches in order;
// then the sums of a tied parameter's uses are added to the owner's, in the order of the units that borrow it.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/engine/model.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/plan/model_layout.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/threads/workers.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::engine {

// Bytes that the budget's use gradients_use must have.
std::uint64_t gradient_bytes(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type);
// Memory that a device with memory of its own gives for gradients on their way to the host: two windows of the
// largest unit.
std::uint64_t gradient_window_bytes(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type);

class Gradients;

// What the update reads of the gradients: all copies are back, tied parameters are added up. Given by
// Gradients::finish() alone; valid until the next backward begins.
class FinishedGradients {
   public:
    // Of all ranks' gradients: sums of tiles are added in the order of units, in each of ranks, in each of tiles.
    double norm(zero::Workers& workers, zero::Communicator& communicator) const;
    zero::GradientView tile(zero::UnitTile tile) const;
    // "unit NAME, parameter NAME" of the first one with an element that is not finite, in unit order; nothing when all
    // are.
    std::optional<std::string> first_non_finite() const;

   private:
    friend class Gradients;
    explicit FinishedGradients(Gradients& gradients) : gradients_(&gradients) {}
    std::size_t place_of(std::size_t index) const;  // in the sums, of that tile of the layout
    Gradients* gradients_;
};

// The sum of one unit's micro-batches, while its backward runs. Given by Gradients::sum() alone.
class GradientSum {
   public:
    GradientSum(const GradientSum&) = delete;
    GradientSum& operator=(const GradientSum&) = delete;

    // Of one micro-batch: the gradients of the unit's own trainable parameters, then of its trainable borrowed ones, in
    // their order; an undefined tensor counts as zero.
    void add(std::span<const at::Tensor> gradients);

   private:
    friend class Gradients;
    GradientSum(Gradients& gradients, std::uint32_t unit) : gradients_(&gradients), unit_(unit) {}
    Gradients* gradients_;
    std::uint32_t unit_;
    bool first_ = true;  // micro-batch
};

// The memory of all gradients. Compute thread only; a step is sum() of each unit, finish(), then what that gave. One
// rank holds whole units so far; with more, the end of sum() becomes the reduce-scatter.
class Gradients {
   public:
    // Everything outlives it. Takes its leases here; allocates no memory later. A copy to host memory that takes longer
    // than the deadline is an Error (internal).
    Gradients(const Model& model, const zero::ModelLayout& layout, zero::PlaneType type, pool::PinnedPool& pool,
              zero::Device& device, std::chrono::seconds deadline);
    ~Gradients();
    Gradients(const Gradients&) = delete;
    Gradients& operator=(const Gradients&) = delete;

    zero::PlaneType type() const noexcept { return type_; }

    // Backward of one unit: calls backward(GradientSum&), then starts the copy to host memory where the device has its
    // own. When it throws, only the destructor may follow.
    template <typename Backward>
    void sum(std::uint32_t unit, Backward backward) {
        begin(unit);
        GradientSum scope(*this, unit);
        backward(scope);
        end(unit);
    }

    // After the last unit: waits for the copies, adds up tied parameters.
    [[nodiscard]] FinishedGradients finish();

   private:
    struct Range {  // where one parameter's gradient lies in its unit's memory
        std::uint64_t offset_bytes = 0;
        const zero::ParameterSpec* spec = nullptr;
    };
    struct UnitGradients {
        pool::Lease memory;         // own flat range, then the borrowed ones, each at a granule
        std::vector<Range> ranges;  // own trainable, then borrowed trainable
        std::size_t own = 0;        // how many of them are own
    };
    struct Window {  // memory of the device that a unit's gradients are accumulated in
        std::byte* data = nullptr;
        zero::Ticket copied;  // until when the last unit's copy reads it
    };

    friend class GradientSum;
    friend class FinishedGradients;
    void begin(std::uint32_t unit);
    void end(std::uint32_t unit);
    void wait_for_copy(const Window& window) const;
    std::byte* target(const UnitGradients& unit) const;

    const Model* model_;
    const zero::ModelLayout* layout_;
    zero::PlaneType type_;
    zero::Device* device_;
    std::chrono::seconds deadline_;  // of a copy
    std::vector<UnitGradients> units_;
    std::array<Window, 2> windows_;
    std::vector<double> sums_;  // one per tile of every rank, in the order in which they are added
    std::uint32_t turn_ = 0;    // which window it has
};

}  // namespace penstock::engine
