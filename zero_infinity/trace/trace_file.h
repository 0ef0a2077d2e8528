// The picture of some steps in a file, written once they are over: Chrome's JSON (trace_json.h).
#pragma once

#include "zero_infinity/trace/trace_recorder.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::zero {

// Where a trace is written before it gets its name.
std::string unfinished_trace(const std::string& path);

// Throws Error (usage): the file would lie in one of these directories, which are stores'.
void refuse_in_store(const std::string& path, const std::string& setting, const std::vector<std::string>& directories);

// Compute thread. Made before what it records, which has ended when write() is called.
class TraceFile {
   public:
    // Takes the memory for what is recorded, 25 MB. `setting` is what names the path: "--trace". Throws Error (usage):
    // a path that is no file, or cannot be written to; unfinished_trace() is somebody's, and not what a killed process
    // left there.
    TraceFile(std::string path, std::string setting);

    TraceRecorder& recorder() noexcept { return recorder_; }
    const std::string& path() const noexcept { return path_; }
    std::uint64_t first() const noexcept { return first_; }
    std::uint64_t last() const noexcept { return last_; }

    void record(std::uint64_t first, std::uint64_t last) noexcept;  // these steps, counting from 1
    void begin_step(std::uint64_t step) noexcept;
    void end_steps() noexcept { recorder_.end_steps(); }  // what comes now is of none
    // Replaces what is there. Throws Error (storage), and then nothing of it stays.
    void write() const;

   private:
    // Constant after construction.
    std::string path_, setting_;
    std::uint64_t first_ = 1, last_ = 0;

    // Both threads', as it says.
    TraceRecorder recorder_;
};

}  // namespace penstock::zero
