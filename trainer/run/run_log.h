// RUN/log.jsonl: one JSON object per step, in order.
#pragma once

#include "trainer/cli/step_record.h"
#include "trainer/data/plain_file.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::trainer {

// Open for appending while it lives. A line reaches the file in one write; it is not synced: the store is the truth,
// the log its account.
class RunLog {
   public:
    // Keeps the steps up to `committed` and cuts off the rest: the first line that is no whole object of such a step,
    // and all after it. With committed = 0 nothing is kept: use set_aside() before for the log of another run. Throws
    // Error: usage (cannot be opened), storage.
    RunLog(const std::string& path, std::int64_t committed);

    void append(const StepRecord& record);

   private:
    PlainFile file_;
    std::uint64_t end_bytes_ = 0;
};

// Renames a log that is not empty to "log.1.jsonl" (or the first free number) and returns that path; nothing to do:
// empty.
std::string set_aside(const std::string& path);

}  // namespace penstock::trainer
