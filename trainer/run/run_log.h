// RUN/log.jsonl: one JSON object per step, in order.
#pragma once

#include "trainer/cli/step_record.h"
#include "trainer/data/plain_file.h"
#include "trainer/run/run_state.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// Whether a log is that of the run whose state a store has: what its line of the state's step says, or else its first.
enum class LogKin : std::uint8_t {
    unknown,  // it has neither line
    same,
    other,  // neither loss nor norm is that of the state
};

// What a log says, read before anything of it is changed. A line counts when it is a whole object of a later step than
// every line before that counts.
struct LogAccount {
    std::uint64_t kept_bytes = 0;            // of its first lines, as far as all count and are of steps up to the limit
    std::optional<std::int64_t> first_step;  // of the lines that count, up to the limit
    std::optional<std::int64_t> last_step;
    std::int64_t missing_steps = 0;          // between the first and the last of those
    bool damaged = false;                    // among them are lines that do not count, or none counts
    std::optional<std::int64_t> committed;   // the newest step that a line that counts reports as committed
    std::optional<std::int64_t> one_before;  // the commit before that, if the log knows it
    LogKin kin = LogKin::unknown;
};
// With the steps up to that of `state` kept. Nothing of a file that is not there. Throws Error: usage (cannot be
// opened), storage.
LogAccount read_log(const std::string& path, const RunState& state);

// Open for appending while it lives. A line reaches the file in one write, and the disk before the next step begins.
class RunLog {
   public:
    // Which step a log begins with: the first; or a later one, of a run that went on from a snapshot.
    enum class Begin : std::uint8_t { first, later };

    // Keeps the steps up to `committed` and cuts off the rest. A damaged log is put aside, and the lines that count go
    // into a new one. With committed = 0 nothing is kept: use set_aside() before for the log of another run. Throws
    // Error: usage (cannot be opened), storage.
    RunLog(const std::string& path, std::int64_t committed, Begin begin = Begin::first);
    // Says what was wrong with the file: it was damaged and where it is now; steps are missing in it.
    std::vector<std::string> take_notes() { return std::move(notes_); }

    void append(const StepRecord& record);
    // The line that was appended last, said anew: its step was committed since. REQUIRES: one was appended.
    void replace_last(const StepRecord& record);
    // The line of a step whose commit outlived it, in a power cut: what the commit knows of the step. Nothing where the
    // log does not end with the step before.
    void restore(const StepRecord& record);

   private:
    void append_line(const std::string& line);
    void write_anew(std::int64_t committed);

    PlainFile file_;
    std::uint64_t end_bytes_ = 0;
    std::uint64_t last_line_bytes_ = 0;
    std::optional<std::int64_t> last_step_;
    std::vector<std::string> notes_;
};

// Renames a log that is not empty to "log.1.jsonl" (or the first free number) and returns that path; nothing to do:
// empty.
std::string set_aside(const std::string& path);

}  // namespace penstock::trainer
