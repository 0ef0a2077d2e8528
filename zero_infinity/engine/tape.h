// What forward leaves for backward: units' inputs, and graphs where they are kept.
#pragma once

#include "zero_infinity/engine/bundle.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/session/shelf.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::engine {

// One tensor of a bundle that was laid aside: all but its bytes.
struct LaidTensor {
    std::string name;
    std::uint64_t offset_bytes = 0;  // in what was laid aside at once
    std::vector<std::int64_t> shape, strides;
    at::TensorOptions options;
    bool requires_gradient = false;
};

// One unit's, of one micro-batch.
struct Call {
    std::uint32_t unit = 0;
    std::size_t micro_batch = 0;
    bool operator==(const Call&) const = default;
};

struct SavedActivations {
    Bundle input;                  // detached from the unit before; what is laid aside is undefined in it
    std::vector<std::string> own;  // names of the inputs that nobody else needs once forward has left the unit
    std::vector<LaidTensor> laid;
    Bundle output;                  // with its graph, when that is kept
    std::uint64_t graph_bytes = 0;  // of that, beside the output itself
    std::string generator;          // before forward, where that drew from torch's default generators
};

// The first unit whose graph is kept from forward to backward, where `budget_bytes` bounds what they take together: as
// many as fit of those that are nearest to the loss, whose memory is taken for the shortest time. The last unit counts
// for nothing, because its backward follows at once. `graph_bytes`: of one micro-batch, by unit; nothing: not known
// yet.
std::uint32_t first_kept_graph(std::span<const std::optional<std::uint64_t>> graph_bytes, std::size_t micro_batches,
                               std::uint64_t budget_bytes);

// Memory of its tensors, each once, but for those that a unit passes on, which `before` has.
std::uint64_t own_bytes(const Bundle& bundle, const Bundle& before);

// Of one step; micro-batches are taken unit by unit. Compute thread. With a shelf, inputs are there between their
// unit's forward and its backward, under its budget; without one they stay where compute has made them. What the
// caller gave, and what goes through several units, stays there in any case.
class Tape {
   public:
    // The shelf, which may be null, outlives it.
    Tape(std::size_t units, const EngineOptions& options, zero::Shelf* shelf);

    std::uint32_t unit_count() const noexcept { return static_cast<std::uint32_t>(saved_.size()); }
    // A new step, whose first unit has these inputs, which are the caller's.
    void begin(std::vector<Bundle> inputs);
    SavedActivations& at(std::uint32_t unit, std::size_t micro_batch) { return saved_[unit][micro_batch]; }
    // What the unit before, which had `before`, has made of it.
    void set_input(std::uint32_t unit, std::size_t micro_batch, Bundle input, const Bundle& before);
    // Forward has left it: without a graph that is kept, its input goes to the shelf.
    void lay_aside(std::uint32_t unit, std::size_t micro_batch);
    void bring_back(std::uint32_t unit, std::size_t micro_batch);  // backward is at it: blocks until its input is there
    void forget(std::uint32_t unit, std::size_t micro_batch);      // backward has left it

    bool keeps_graph(std::uint32_t unit) const noexcept { return unit >= first_kept_; }
    // Until backward has left the call, or it is given up. It counts as the largest that was measured of its unit.
    void keep_graph(const Call& call, Bundle output);
    // Frees its graph, and lays its input aside: backward recomputes it. REQUIRES: its graph is kept.
    void give_up(const Call& call);
    // Of the oldest call that has a graph, but for `running`. False: there is none.
    bool give_up_oldest(const Call& running);
    // What a graph of this unit takes beside its output, of one micro-batch: the next step goes by it.
    void measured(std::uint32_t unit, std::uint64_t bytes);

    std::uint64_t input_bytes() const noexcept { return input_bytes_; }  // of this step's inputs so far
    std::uint64_t graph_bytes() const noexcept { return kept_bytes_; }   // of the graphs that are kept now, as known
    std::size_t given_up() const noexcept { return given_up_; }          // calls of this step
    std::uint64_t away_bytes() const { return shelf_ == nullptr ? 0 : shelf_->figures().away_bytes; }  // went to NVMe

   private:
    std::uint64_t turn_of(std::uint32_t unit, std::size_t micro_batch) const;
    bool drop_graph(const Call& call);

    EngineOptions options_;
    zero::Shelf* shelf_;
    std::vector<std::vector<SavedActivations>> saved_;       // [unit][micro-batch]
    std::vector<std::optional<std::uint64_t>> graph_bytes_;  // of one micro-batch
    std::deque<Call> kept_;                                  // whose graphs are there, the oldest first
    std::uint32_t first_kept_ = 0;
    std::size_t given_up_ = 0;
    std::uint64_t kept_bytes_ = 0;
    std::uint64_t input_bytes_ = 0;
};

}  // namespace penstock::engine
