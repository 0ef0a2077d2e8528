// Moves tiles through the update: states, and gradients that were spilled, are read ahead → (the caller updates, its
// weights where they lie) → both are written. Tiles come in the order of their units, unless compute demands another;
// each takes whichever slot is free.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/driver/spill_lane.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/driver_memory.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

struct UpdatePipelineDeps {
    store::TensorStore* store = nullptr;
    const ModelLayout* layout = nullptr;
    const StagingMemory* memory = nullptr;
    SpillLane* spills = nullptr;
    std::vector<std::optional<store::SpillBlock>> gradients;  // by tile; empty: none are spilled
    TraceRecorder* trace = nullptr;
    // What is updated with is there; null: the tile has none, or it was not brought.
    std::function<void(std::uint64_t number, std::byte* states, const std::byte* gradient)> staged;
    std::function<void(std::uint64_t number)> given_up;       // they are not there any more: they come again
    std::function<void(std::uint32_t unit)> weights_written;  // all of the unit, from where they lie
};

// On the driver's thread.
class UpdatePipeline {
   public:
    explicit UpdatePipeline(UpdatePipelineDeps deps);
    ~UpdatePipeline();

    // Of all units with something to train, each once, in that order; or of some of them. Those that the last one still
    // writes wait for that. REQUIRES: finished(), or all of its tiles were put back.
    void begin(std::span<const std::uint32_t> units, ResidentTiles tiles, GradientsFrom gradients);
    void demand(std::uint32_t unit);  // compute is at it: its tiles come next, in the slots of others where need be
    void take_back(std::span<const std::uint32_t> units);  // what was written of them. REQUIRES: finished()
    void write_residents();  // what was held back; over when finished(). REQUIRES: finished()
    // The tile was updated: write it, its weights from where they lie (null: it has none). REQUIRES: staged.
    void put_back(std::uint64_t number, std::byte* weights);
    void pump();  // starts what has a free slot
    bool finished() const noexcept { return written_ == to_write_; }
    std::uint64_t unwritten_count() const noexcept { return to_write_ - written_; }  // tiles that are not done with
    bool holds_back() const noexcept { return holds_back_; }  // host memory is newer than the store
    bool idle() const noexcept { return operations_under_way_ == 0; }
    std::uint64_t tile_count() const noexcept { return deps_.layout->tiles().size(); }
    const std::optional<store::StoreError>& error() const noexcept { return error_; }

   private:
    // What is done with each tile.
    enum class Work : std::uint8_t { update, update_holding_back, write_residents };
    class Slot;
    void begin(Work work);
    bool all_put_back() const;
    std::optional<store::SpillBlock> gradient_of(std::uint64_t number) const;
    Slot* slot_for(std::uint32_t unit);
    void append_tiles(std::uint32_t unit);
    bool may_begin(std::uint32_t unit) const;
    void tile_written(std::uint64_t number);
    void weights_of_tile_written(std::uint32_t unit);

    UpdatePipelineDeps deps_;
    std::vector<std::unique_ptr<Slot>> slots_;
    std::vector<Slot*> slot_of_;         // by tile number; null: it has none
    std::vector<std::uint32_t> left_;    // by unit: tiles whose weights are not written, from its first one on
    std::vector<std::uint64_t> begun_;   // by unit: the last update that it was begun in
    std::vector<std::uint64_t> first_;   // by unit: its first tile
    std::deque<std::uint64_t> waiting_;  // tiles without a slot, the next one first
    std::optional<std::uint32_t> demanded_;
    std::uint64_t to_write_ = 0;  // tiles, by what was begun since all were written
    std::uint64_t written_ = 0;
    Work work_ = Work::update;
    std::uint64_t updates_ = 0;  // begun
    GradientsFrom gradients_ = GradientsFrom::memory;
    bool holds_back_ = false;
    std::uint32_t operations_under_way_ = 0;
    std::optional<store::StoreError> error_;
};

}  // namespace penstock::zero
