// Objects that stay in host memory between their uses. Durability and residency are independent: they are written
// through in each step that is to be committed.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/traffic.h"
#include "zero_infinity/unit_store.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock {

// What an update does with the tiles that host memory holds.
enum class ResidentParts : std::uint8_t {
    written,    // through to the store
    held_back,  // they stay in host memory alone, newer than the store, until a commit asks for them
};

// Names of the budget's uses.
inline constexpr const char* resident_weights_use = "resident weights";
inline constexpr const char* resident_states_use = "resident states";

// Bytes those uses must have: 0 for what is not resident.
std::uint64_t resident_weights_bytes(const std::vector<UnitLayout>& units, const StateFormat& format,
                                     Residency residency);
std::uint64_t resident_states_bytes(const std::vector<UnitLayout>& units, const StateFormat& format,
                                    Residency residency);

class Residents {
   public:
    // Takes the leases and reads the objects: blocks, at most `deadline` for one tile. REQUIRES: called on the thread
    // that owns the Io. Throws Error (storage).
    Residents(Io& io, TensorStore& store, PinnedPool& pool, const std::vector<UnitLayout>& units,
              const std::vector<UnitObjects>& objects, const StateFormat& format, Residency residency,
              std::chrono::seconds deadline);

    // Weights and frozen weights as group_tiles() lays them; null when weights are not resident.
    std::byte* group(std::uint32_t unit) const noexcept;
    // The tile's bytes; null when states are not resident or the unit has none.
    std::byte* states(TileId tile) const noexcept;

   private:
    const TensorStore* store_;
    std::vector<Lease> groups_;  // by unit
    std::vector<Lease> states_;  // by object index of the store; empty leases elsewhere
};

}  // namespace penstock
