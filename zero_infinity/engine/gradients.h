// Gradients in host memory: one flat buffer per unit, in the order of its trainable range, plus one per borrowed
// parameter.
//
// The order of sums is fixed and the same for any schedule: each use of a parameter sums its micro-batches in order;
// then the sums of a tied parameter's uses are added to the owner's, in the order of the units that borrow it.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device.h"
#include "zero_infinity/engine/model.h"
#include "zero_infinity/gradient.h"
#include "zero_infinity/memory_plan.h"
#include "zero_infinity/workers.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock {

// Bytes that the budget's use gradients_use must have.
std::uint64_t gradient_bytes(const Model& model, const std::vector<UnitLayout>& layouts, PlaneType type);
// Memory that a device of its own gives for gradients on their way to the host: two windows of the largest unit.
std::uint64_t gradient_window_bytes(const Model& model, const std::vector<UnitLayout>& layouts, PlaneType type);

// Compute thread only. One rank holds whole units so far; with more, end() becomes the reduce-scatter.
class Gradients {
   public:
    // Everything outlives it. Takes its leases here; allocates no memory later.
    Gradients(const Model& model, const std::vector<UnitLayout>& layouts, PlaneType type, PinnedPool& pool,
              Device& device);
    ~Gradients();

    PlaneType type() const noexcept { return type_; }

    // Backward of one unit: begin, one add per micro-batch, end. `gradients` are those of the unit's own trainable
    // parameters, then of its trainable borrowed ones, in their order; an undefined tensor counts as zero.
    void begin(std::uint32_t unit);
    void add(std::span<const at::Tensor> gradients);
    void end();  // starts the copy to host memory where the device has its own

    // After the last unit: waits for the copies, adds up tied parameters. Then the rest is valid until the next
    // begin().
    void finish();
    double norm(Workers& workers);
    GradientView tile(std::uint32_t unit, std::uint32_t tile) const;
    // "unit NAME, parameter NAME" of the first one with an element that is not finite, in unit order; nothing when all
    // are.
    std::optional<std::string> first_non_finite() const;

   private:
    struct Range {  // where one parameter's gradient lies in its unit's memory
        std::uint64_t offset_bytes = 0;
        const ParameterSpec* spec = nullptr;
    };
    struct UnitGradients {
        Lease memory;               // own flat range, then the borrowed ones, each at a granule
        std::vector<Range> ranges;  // own trainable, then borrowed trainable
        std::size_t own = 0;        // how many of them are own
    };
    struct Window {  // memory of the device that a unit's gradients are accumulated in
        std::byte* data = nullptr;
        Ticket copied;  // until when the last unit's copy reads it
    };

    struct TileIndex {
        std::uint32_t unit = 0;
        std::uint32_t tile = 0;
    };

    void wait_for_copy(const Window& window) const;
    std::byte* target(const UnitGradients& unit) const;

    const Model* model_;
    const std::vector<UnitLayout>* layouts_;
    PlaneType type_;
    Device* device_;
    std::vector<UnitGradients> units_;
    std::array<Window, 2> windows_;
    std::vector<TileIndex> tiles_;  // of all units, in order
    std::vector<double> sums_;      // one per tile
    std::uint32_t unit_ = 0;        // whose backward is under way
    std::uint32_t turn_ = 0;        // which window it has
    bool first_ = true;             // micro-batch
};

}  // namespace penstock
