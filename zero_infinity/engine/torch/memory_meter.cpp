#include "zero_infinity/engine/torch/memory_meter.h"

#include <c10/core/Allocator.h>

#include <algorithm>

namespace penstock::engine {

class MemoryMeter::Counter final : public c10::MemoryReportingInfoBase {
   public:
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
        held_ += bytes;
        peak_ = std::max(peak_, held_);
    }
    bool memoryProfilingEnabled() const override { return true; }

    void restart() noexcept { held_ = peak_ = 0; }
    // Memory that was there before may be freed, so it may have become less.
    std::uint64_t held() const noexcept { return static_cast<std::uint64_t>(std::max<std::int64_t>(0, held_)); }
    std::uint64_t peak() const noexcept { return static_cast<std::uint64_t>(peak_); }

   private:
    std::int64_t held_ = 0;
    std::int64_t peak_ = 0;
};

MemoryMeter::MemoryMeter()
    : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

MemoryMeter::~MemoryMeter() = default;

void MemoryMeter::restart() noexcept {
    counter_->restart();
}

std::uint64_t MemoryMeter::held_bytes() const noexcept {
    return counter_->held();
}

std::uint64_t MemoryMeter::peak_bytes() const noexcept {
    return counter_->peak();
}

}  // namespace penstock::engine
