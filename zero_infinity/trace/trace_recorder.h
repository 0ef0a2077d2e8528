// What compute and the driver did when, for a picture of some steps: spans of time in bounded memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

enum class TraceLane : std::uint8_t {
    compute,       // at a visit: from when its weights are there until the next visit or the pass's end
    wait_weights,  // compute stands still
    wait_tiles,    // likewise: the update, or who reads or writes a tile by itself
    wait_commit,   // likewise, for the last writes or the manifest
    wait_spill,    // likewise, for bytes that were spilled, or for their memory
    update,        // of one tile, or of all of a unit's
    read,          // of one tile, from when it was asked for until its hash was found right
    write,         // of one tile
    copy_in,       // of one unit's weights to a device's own memory
    copy_out,      // likewise from there, to be updated
    commit,        // flush and manifest
    spill_out,     // of one block, from when its turn came
    spill_in,      // likewise
};

inline constexpr std::uint32_t no_trace_index = ~0U;

struct TraceSpan {
    TraceLane lane = TraceLane::compute;
    std::uint32_t unit = no_trace_index;
    std::uint32_t object = no_trace_index;
    std::uint32_t tile = no_trace_index;
    std::uint64_t bytes = 0;
    std::uint64_t step = 0;                 // in which it began
    std::int64_t begin_ns = 0, end_ns = 0;  // of the steady clock
};

// When something began, and in which step; step 0: nobody records it.
struct TraceStart {
    std::uint64_t step = 0;
    std::int64_t begin_ns = 0;
};

enum class TraceThread : std::uint8_t { compute, driver, updates };

// Three threads add spans, each to a buffer of its own, without locks. All memory is taken at the start; what comes
// when a buffer is full is counted and left out. What began in a recorded step is recorded, also where it ends later.
class TraceRecorder {
   public:
    explicit TraceRecorder(std::size_t spans_per_thread);

    // Compute thread. The steps in between are recorded, counting from 1; after end_steps() nothing that begins is.
    void begin_step(std::uint64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
    void end_steps() noexcept { begin_step(0); }
    // Whoever knows them, before the first step: by unit, and by object.
    void set_names(std::vector<std::string> units, std::vector<std::string> objects);

    // That thread.
    TraceStart start() const noexcept;
    void add(TraceThread thread, const TraceStart& start, TraceSpan span) noexcept;  // ends now; nothing without a step

    // Once nobody adds any more; each thread's in the order of their ends.
    std::span<const TraceSpan> spans(TraceThread thread) const noexcept { return buffer(thread).spans; }
    std::uint64_t left_out() const noexcept;
    const std::vector<std::string>& units() const noexcept { return units_; }
    const std::vector<std::string>& objects() const noexcept { return objects_; }

   private:
    struct alignas(64) Buffer {
        std::vector<TraceSpan> spans;
        std::uint64_t left_out = 0;
    };
    const Buffer& buffer(TraceThread thread) const noexcept { return buffers_.at(static_cast<std::size_t>(thread)); }

    // Set before the first step, and constant from then on.
    const std::size_t capacity_;
    std::vector<std::string> units_, objects_;

    // Each its thread's: on a cache line of its own.
    std::array<Buffer, 3> buffers_;

    // Written by the compute thread, read by all.
    std::atomic<std::uint64_t> step_{0};
};

// Without a recorder: one branch.
inline TraceStart trace_start(const TraceRecorder* recorder) noexcept {
    return recorder == nullptr ? TraceStart{} : recorder->start();
}
inline void trace_end(TraceRecorder* recorder, TraceThread thread, const TraceStart& start,
                      const TraceSpan& span) noexcept {
    if (recorder != nullptr && start.step != 0) recorder->add(thread, start, span);
}

}  // namespace penstock::zero
