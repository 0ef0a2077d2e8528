// Moves tiles through the update: read → (the caller updates) → write, several at a time.
#pragma once

#include "swap/tensor_store.h"
#include "zero_infinity/residents.h"
#include "zero_infinity/unit_store.h"
#include "zero_infinity/update.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace penstock {

// One tile in host memory, to be updated in place.
struct StagedTile {
    std::uint32_t unit = 0;
    std::uint32_t tile = 0;
    std::uint64_t number = 0;  // in the order of the update: units in order, tiles in order
    TileView view;
};

// Bytes of one staging slot: the largest tile's weights and states extents.
std::uint64_t slot_bytes(const std::vector<UnitLayout>& units, const StateFormat& format, Residency residency);

struct UpdateLaneParts {
    TensorStore* store = nullptr;
    const Residents* residents = nullptr;
    const std::vector<UnitLayout>* units = nullptr;
    const std::vector<UnitObjects>* objects = nullptr;
    StateFormat format;
    Residency residency;
    std::byte* staging = nullptr;  // slots × slot_bytes
    std::uint32_t slots = 0;       // > 0
};

// On the driver's thread; staged() on any thread (it reads only what construction fixed).
class UpdateLane {
   public:
    explicit UpdateLane(const UpdateLaneParts& parts);
    ~UpdateLane();

    void begin(ResidentParts parts);      // REQUIRES: finished()
    void write_residents();               // what was held back; over when finished(). REQUIRES: finished()
    void put_back(std::uint64_t number);  // the tile was updated: write it. REQUIRES: present
    void pump();                          // starts what has a free slot
    bool present(std::uint64_t number) const;
    bool finished() const noexcept { return written_ == tiles_.size(); }
    std::uint64_t written_count() const noexcept { return written_; }  // tiles that are done with
    bool holds_back() const noexcept { return holds_back_; }           // host memory is newer than the store
    bool idle() const noexcept { return operations_under_way_ == 0; }
    std::uint64_t tile_count() const noexcept { return tiles_.size(); }
    const std::optional<StoreError>& error() const noexcept { return error_; }

    StagedTile staged(std::uint64_t number) const;

   private:
    // What is done with each tile.
    enum class Work : std::uint8_t { update, update_holding_back, write_residents };
    class Slot;
    struct Entry {
        std::uint32_t unit = 0;
        std::uint32_t tile = 0;
    };
    // Where the parts of a tile lie while it is staged: its slot, or where it is resident.
    struct Places {
        std::span<std::byte> weights;
        std::span<std::byte> states;
    };
    Places places(std::uint64_t number) const;
    void begin(Work work);

    UpdateLaneParts parts_;
    std::uint64_t slot_bytes_;
    std::vector<Entry> tiles_;
    std::vector<std::unique_ptr<Slot>> slots_;  // tile n uses slot n % count
    Work work_ = Work::update;
    bool holds_back_ = false;
    std::uint64_t next_tile_ = 0;  // to be given a slot
    std::uint64_t written_ = 0;
    std::uint32_t operations_under_way_ = 0;
    std::optional<StoreError> error_;
};

}  // namespace penstock
