// `--trace FILE`: records some steps and writes their picture (trainer/README.md, "Seeing a step").
#pragma once

#include "zero_infinity/trace/trace_file.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::trainer {

class Console;

struct TraceRequest {
    std::string path;   // empty: nothing is recorded
    std::string steps;  // "10" or "10..12"; empty: the third to the fifth that this start computes
};

// Compute thread. Made before what it records and destroyed after it, which writes the file: also of a run that was
// stopped or has failed. Throws Error (usage): steps that are none, a path that cannot be written. What goes wrong when
// it is written at the end is a warning.
class StepTrace {
   public:
    StepTrace(const TraceRequest& request, Console& console);
    StepTrace(const StepTrace&) = delete;
    StepTrace& operator=(const StepTrace&) = delete;
    ~StepTrace();

    zero::TraceRecorder* recorder() noexcept { return file_ ? &file_->recorder() : nullptr; }  // null: nobody records
    void begin_after(std::int64_t step);                                  // the run goes on from there
    void begin_step(std::int64_t step) noexcept;
    void end_steps() noexcept;  // what comes now is of none

   private:
    Console& console_;
    std::optional<zero::TraceFile> file_;
    bool named_ = false;  // the steps were given
};

}  // namespace penstock::trainer
