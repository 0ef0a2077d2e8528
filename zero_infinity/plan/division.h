// How the memory of a session is divided among what it needs: the first way that fits. Pure.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/plan/machine_room.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/model_spec.h"

namespace penstock::zero {

struct Division {
    CoreOptions options;  // whose gradients leave host memory, where they may and must
    ModelLayout layout;   // of which host memory keeps what it has room for, where that is wanted
    MemoryPlan memory;
};

// REQUIRES: the options are checked. Throws Error: usage (a tile that is not a multiple of tile_alignment, and as
// ModelLayout), does_not_fit (with the table of uses: the budgets, or the room).
Division divide(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room, Partition partition);

// All of the model is in host memory and nothing is committed: a new store of it has no tiles.
bool is_in_memory(const ModelLayout& layout, const CoreOptions& options) noexcept;

}  // namespace penstock::zero
