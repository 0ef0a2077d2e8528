// Moves tiles through the update: read → (the caller updates) → write, several at a time.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/driver/driver_memory.h"
#include "zero_infinity/plan/model_layout.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace penstock::zero {

struct UpdatePipelineDeps {
    store::TensorStore* store = nullptr;
    const ModelLayout* layout = nullptr;
    const StagingMemory* memory = nullptr;
};

// On the driver's thread.
class UpdatePipeline {
   public:
    explicit UpdatePipeline(const UpdatePipelineDeps& deps);
    ~UpdatePipeline();

    void begin(ResidentTiles tiles);      // REQUIRES: finished()
    void write_residents();               // what was held back; over when finished(). REQUIRES: finished()
    void put_back(std::uint64_t number);  // the tile was updated: write it. REQUIRES: present
    void pump();                          // starts what has a free buffer
    bool present(std::uint64_t number) const;
    bool finished() const noexcept { return written_ == tile_count(); }
    std::uint64_t written_count() const noexcept { return written_; }  // tiles that are done with
    bool holds_back() const noexcept { return holds_back_; }           // host memory is newer than the store
    bool idle() const noexcept { return operations_under_way_ == 0; }
    std::uint64_t tile_count() const noexcept { return deps_.memory->tile_count(); }
    const std::optional<store::StoreError>& error() const noexcept { return error_; }

   private:
    // What is done with each tile.
    enum class Work : std::uint8_t { update, update_holding_back, write_residents };
    class StagingBuffer;
    void begin(Work work);

    UpdatePipelineDeps deps_;
    std::vector<std::unique_ptr<StagingBuffer>> buffers_;  // tile n uses buffer n % count
    Work work_ = Work::update;
    bool holds_back_ = false;
    std::uint64_t next_tile_ = 0;  // to be given a buffer
    std::uint64_t written_ = 0;
    std::uint32_t operations_under_way_ = 0;
    std::optional<store::StoreError> error_;
};

}  // namespace penstock::zero
