// Bytes on their way between host memory and the spill: of each block in the order in which they were sent for.
#pragma once

#include "aio/transfer.h"
#include "swap/spill/spill.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

class SpillListener {
   public:
    // On the driver's thread, once for each errand that was made without an error.
    virtual void spill_ended(store::SpillBlock block) noexcept = 0;

   protected:
    ~SpillListener() = default;
};

struct SpillErrand {
    enum class Way : std::uint8_t { out, in } way = Way::out;
    std::span<std::byte> memory;  // the lane's until the errand has ended
    aio::Urgency urgency = aio::Urgency::write_back;
    SpillListener* listener = nullptr;                           // outlives it
    std::uint32_t unit = no_trace_index, tile = no_trace_index;  // whose, for the trace
};

// On the driver's thread.
class SpillLane {
   public:
    // Both outlive it; null: nothing is spilled, or recorded.
    SpillLane(store::Spill* spill, TraceRecorder* trace);
    ~SpillLane();
    SpillLane(const SpillLane&) = delete;
    SpillLane& operator=(const SpillLane&) = delete;

    // Begins at once where nothing is under way for the block.
    void send(store::SpillBlock block, const SpillErrand& errand);
    void await(store::SpillBlock block) noexcept;  // compute stands still: what the block was sent for comes first
    void stop() noexcept { stopped_ = true; }      // what has not begun never will
    bool idle() const noexcept { return under_way_ == 0; }
    const std::optional<store::StoreError>& error() const noexcept { return error_; }  // nothing begins after it
    store::Spill& spill() const;                                                       // REQUIRES: there is one

   private:
    struct Line;  // of one block

    void begin(Line& line);
    void ended(Line& line) noexcept;

    store::Spill* spill_;
    TraceRecorder* trace_;
    std::vector<std::unique_ptr<Line>> lines_;  // by block; null: it was never sent for
    std::uint32_t under_way_ = 0;
    bool stopped_ = false;
    std::optional<store::StoreError> error_;
};

}  // namespace penstock::zero
