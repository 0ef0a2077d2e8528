// How a hard host budget is divided before anything is allocated: fixed uses first, the rest is the window for weights.
#pragma once

#include "aio/words/enum_words.h"
#include "pinned_pool/budget.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/order/window_plan.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace penstock::zero {

// What the configuration keys are called, so that refusals can name what to change; a program fills in its own names.
struct SettingNames {
    std::string host_budget = "host_budget_bytes";
    std::string device_budget = "device_budget_bytes";
    std::string prefetch_depth = "prefetch_depth";
    std::string staging = "staging_tiles";
    std::string gradient_type = "gradient_type";
    std::string gradient_memory = {};  // empty: the program leaves them in host memory
    std::string resident_weights = "residency.weights";
    std::string resident_states = "residency.states";
    std::string activations = "activation_bytes";
    std::string snapshots = "snapshots";
    std::string ranks = "the number of ranks on this machine";
    std::string codec = "codec";
    std::string fill = "fill_host_budget";
    std::string deferred_share = "deferred_share";
    std::string update_order = "update_order";
    std::string clipping = "a clip";
    std::string commits = "commit_steps 1 in a store that is kept";  // each step's, as a remedy
};

// Names of the budget's uses: who takes memory from the pool.
inline constexpr const char* gradients_use = "gradients";
inline constexpr const char* weights_use = "weights";  // the window, where it is in host memory, and the passage
inline constexpr const char* staging_use = "staging";  // staging_tiles × a tile's states, and gradients where they come
inline constexpr const char* resident_weights_use = "resident weights";
inline constexpr const char* resident_states_use = "resident states";
inline constexpr const char* activations_use = "activations";  // of a client: Shelf
inline constexpr const char* snapshot_use = "keep";            // snapshot_bytes()
inline constexpr const char* ranks_use = "ranks";              // what is on its way to or from others (rank_memory.h)

// What a client says of where gradients are between their uses.
enum class GradientTier : std::uint8_t {
    automatic,  // where the rest leaves room for them
    host,
    nvme,
};
constexpr auto words_of(GradientTier) noexcept {
    return std::array{Word{GradientTier::automatic, "auto"}, Word{GradientTier::host, "cpu"},
                      Word{GradientTier::nvme, "nvme"}};
}

// How many units' gradients host memory holds at once. Besides, those of units that are resident by themselves, and of
// those that borrow.
enum class GradientMemory : std::uint8_t {
    all_units,
    one_unit,   // each is updated before the next one's first gradient
    nvme,       // of two units; the others' are on NVMe until they are added to, or updated with
    two_units,  // of several ranks: the others' are added over the ranks as soon as a pass has made them
};

// What copying a snapshot takes: two of the longest extents.
std::uint64_t snapshot_bytes(const ModelLayout& layout);

// Compute reads elsewhere than where tiles arrive: on a device, or where shards are gathered.
inline bool reads_apart(const ModelLayout& layout, bool device_has_memory) noexcept {
    return device_has_memory || layout.partition().ranks > 1;
}

// A host budget that is not given but planned: what all uses take with prefetch_depth visits ahead.
inline constexpr std::uint64_t planned_host_budget = std::numeric_limits<std::uint64_t>::max();

struct MemoryRequest {
    const ModelLayout* layout = nullptr;
    PassVisits training;  // as they are expected: other visits get on with what room there is
    PassVisits inference;
    std::uint32_t prefetch_depth = 2;      // as far as the budgets allow
    std::uint32_t staging_tiles = 4;       // the least
    std::uint32_t more_staging_tiles = 0;  // where there is room for them beside the window
    std::uint64_t gradient_bytes = 0;
    std::uint64_t ranks_bytes = 0;
    std::uint64_t gradient_tile_bytes = 0;  // that come with a tile's states to be updated
    bool gradients_may_leave = false;       // for NVMe, and do not
    std::uint64_t activation_bytes = 0;     // of a client's shelf
    bool snapshots = false;                 // snapshots are copied during training
    std::uint64_t host_budget_bytes = 0;    // or planned_host_budget
    // Of a device with memory of its own.
    bool device_has_memory = false;
    std::uint64_t device_budget_bytes = 0;
    std::uint64_t device_gradient_bytes = 0;       // the least for gradients
    std::uint64_t device_all_gradients_bytes = 0;  // with which they stay on the device
};

struct MemoryPlan {
    pool::Budget budget;
    WindowUse window;  // in the memory that compute reads: the host's, or the device's own
    std::uint64_t passage_bytes =
        0;  // of host memory that shards pass through on their way there; 0: they arrive there
    std::uint32_t staging_tiles = 0;
    std::uint64_t gradient_tile_bytes = 0;      // MemoryRequest's: beside a tile's states
    std::uint64_t pass_read_bytes = 0;          // from NVMe by one training pass
    std::uint64_t further_pass_read_bytes = 0;  // by one right behind it
    std::uint64_t device_gradient_bytes = 0;
    std::uint64_t device_bytes = 0;  // of the device's budget: gradients, resident weights, window
};

// What passes through the window: of units that compute finds in the same place at all times, nothing.
std::vector<UnitBytes> units_of_window(const ModelLayout& layout, bool apart);

// Throws Error (does_not_fit) with the table of uses, what is missing and the settings to change. Does not look at
// the machine.
MemoryPlan plan_memory(const MemoryRequest& request, const SettingNames& names);

}  // namespace penstock::zero
