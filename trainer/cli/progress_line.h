// How far a long work is, shown while it is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace penstock::trainer {

class Console;

struct WorkDone {
    std::uint64_t done_bytes = 0;
    std::uint64_t total_bytes = 0;
    double seconds = 0;
};
// "[########............]  40 %  1.28 GB of 3.20 GB  1.52 GB/s  ETA 2 s"
std::string progress_text(const WorkDone& work);

// On a terminal a line that is redrawn, in a file one line per tenth of the work.
class ProgressLine {
   public:
    ProgressLine(Console& console, std::string what) : console_(console), what_(std::move(what)) {}
    void show(std::uint64_t done_bytes, std::uint64_t total_bytes);
    double seconds() const;  // since its construction

   private:
    Console& console_;
    std::string what_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::uint64_t tenths_ = 0;  // that were told
};

}  // namespace penstock::trainer
