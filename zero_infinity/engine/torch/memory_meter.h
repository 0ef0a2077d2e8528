// What torch's operations leave allocated: memory that a graph keeps is known by measuring it, not by a formula.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>

namespace penstock::engine {

// Counts what torch allocates and frees on this thread, on every device, while it lives; of two that live at once the
// younger one counts. Torch's profiler counts nothing meanwhile.
class MemoryMeter {
   public:
    MemoryMeter();
    ~MemoryMeter();
    MemoryMeter(const MemoryMeter&) = delete;
    MemoryMeter& operator=(const MemoryMeter&) = delete;

    void restart() noexcept;                    // as if it were made now
    std::uint64_t held_bytes() const noexcept;  // allocated and not freed since
    std::uint64_t peak_bytes() const noexcept;  // the most that was

   private:
    class Counter;
    std::shared_ptr<Counter> counter_;
    c10::DebugInfoGuard guard_;
};

}  // namespace penstock::engine
