// Executes a WeightSchedule: reads units' weights into the host window and copies them on into the device's window.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/driver_memory.h"
#include "zero_infinity/plan/model_layout.h"
#include "zero_infinity/plan/plan.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::zero {

struct WeightStreamerDeps {
    store::TensorStore* store = nullptr;
    Device* device = nullptr;
    const ModelLayout* layout = nullptr;
    const Residents* residents = nullptr;
    const PassMemory* memory = nullptr;
};

// One per pass. On the driver's thread.
class WeightStreamer {
   public:
    explicit WeightStreamer(const WeightStreamerDeps& deps);
    ~WeightStreamer();

    void begin();                    // a new pass. REQUIRES: idle()
    void used(std::uint32_t visit);  // compute has left the visit and will not read its groups any more
    void pump();                     // starts what may be started, then take_in()
    void take_in();                  // device copies that have ended
    bool copying() const noexcept;   // device copies are under way: pump again soon
    bool idle() const noexcept;      // no read and no copy under way
    std::optional<std::chrono::nanoseconds> oldest_copy() const;  // since when the first copy under way runs
    bool ready(std::uint32_t visit) const;
    std::uint32_t visit_count() const noexcept { return deps_.memory->visit_count(); }
    const std::optional<store::StoreError>& error() const noexcept { return error_; }

   private:
    class GroupRead;  // the reads of one unit's tiles
    struct Copy {
        const Fetch* fetch = nullptr;
        Ticket ticket;
        std::chrono::steady_clock::time_point started;
    };

    void start_reads();
    void start_copies();
    std::byte* source(const Fetch& copy) const;  // null: not in host memory yet

    WeightStreamerDeps deps_;
    WeightPlan host_plan_;
    std::optional<WeightPlan> device_plan_;
    std::vector<std::unique_ptr<GroupRead>> reads_;  // by unit; null without tiles
    std::deque<const Fetch*> to_copy_;               // their place in the device window is free; waiting for the source
    std::deque<Copy> copies_;                        // under way, in order
    std::uint32_t reads_under_way_ = 0;
    std::optional<store::StoreError> error_;
};

}  // namespace penstock::zero
