// Executes a WeightSchedule: reads units' weights into the host window and copies them on into the device's window.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/tensor_store.h"
#include "zero_infinity/device.h"
#include "zero_infinity/plan.h"
#include "zero_infinity/residents.h"
#include "zero_infinity/unit_store.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// Where a unit's weights lie while it is visited, in memory that compute reads.
struct UnitMemory {
    std::byte* weights = nullptr;  // flat trainable range
    std::byte* frozen = nullptr;   // flat frozen range
};

struct WeightLaneParts {
    TensorStore* store = nullptr;
    Device* device = nullptr;
    const Residents* residents = nullptr;
    const std::vector<UnitLayout>* units = nullptr;
    const std::vector<UnitObjects>* objects = nullptr;
    StateFormat format;
    std::byte* host_window = nullptr;
    std::byte* device_window = nullptr;
};

// One per pass. On the driver's thread; memory() on any thread (it reads only what construction fixed).
class WeightLane {
   public:
    WeightLane(const WeightLaneParts& parts, PassSchedules schedules);
    ~WeightLane();

    void begin();                    // a new pass. REQUIRES: idle()
    void used(std::uint32_t visit);  // compute has left the visit and will not read its groups any more
    void pump();                     // starts what may be started, then take_in()
    void take_in();                  // device copies that have ended
    bool copying() const noexcept;   // device copies are under way: pump again soon
    bool idle() const noexcept;      // no read and no copy under way
    std::optional<std::chrono::nanoseconds> oldest_copy() const;  // since when the first copy under way runs
    bool ready(std::uint32_t visit) const;
    std::uint32_t visit_count() const noexcept;
    const std::optional<StoreError>& error() const noexcept { return error_; }

    UnitMemory memory(std::uint32_t visit, std::uint32_t unit) const;

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

    WeightLaneParts parts_;
    PassSchedules schedules_;
    WeightPlan host_plan_;
    std::optional<WeightPlan> device_plan_;
    std::vector<std::unique_ptr<GroupRead>> reads_;  // by unit; null without tiles
    std::deque<const Fetch*> to_copy_;               // their place in the device window is free; waiting for the source
    std::deque<Copy> copies_;                        // under way, in order
    std::uint32_t reads_under_way_ = 0;
    std::optional<StoreError> error_;
};

}  // namespace penstock
