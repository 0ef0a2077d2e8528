#include "trainer/cli/progress_line.h"

#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/step_record.h"

#include <fmt/format.h>

#include <cmath>

namespace penstock::trainer {
namespace {

constexpr std::uint64_t bar_columns = 20;

}  // namespace

std::string progress_text(const WorkDone& work) {
    const double share =
        work.total_bytes == 0 ? 1 : static_cast<double>(work.done_bytes) / static_cast<double>(work.total_bytes);
    const auto full = static_cast<std::uint64_t>(share * static_cast<double>(bar_columns));
    const double rate = work.seconds > 0 ? static_cast<double>(work.done_bytes) / work.seconds : 0;
    const double left = static_cast<double>(work.total_bytes - work.done_bytes);
    const auto whole = static_cast<std::uint64_t>(rate);
    const std::string rate_text =
        whole > 0 && rate < 5e6 ? size_text(whole) + "/s" : fmt::format("{:.2f} GB/s", rate / 1e9);
    return fmt::format("[{}{}] {:3.0f} %  {} of {}  {}  ETA {}", std::string(full, '#'),
                       std::string(bar_columns - full, '.'), std::floor(share * 100), size_text(work.done_bytes),
                       size_text(work.total_bytes), rate_text, rate > 0 ? duration_text(left / rate) : "?");
}

void ProgressLine::show(std::uint64_t done_bytes, std::uint64_t total_bytes) {
    const std::string line =
        what_ + " " + progress_text({.done_bytes = done_bytes, .total_bytes = total_bytes, .seconds = seconds()});
    if (console_.is_terminal()) return console_.live_now_and_then(line);
    const std::uint64_t tenths = done_bytes >= total_bytes ? 10 : done_bytes / (total_bytes / 10 + 1);
    if (tenths <= tenths_) return;
    tenths_ = tenths;
    console_.info(line);
}

double ProgressLine::seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace penstock::trainer
