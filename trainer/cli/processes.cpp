#include "trainer/cli/processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace penstock::trainer {
namespace {

constexpr const char* count = "WORLD_SIZE";

// A number above 1, however many digits it has; what is no number tells of nothing.
bool is_several(std::string_view text) {
    const bool number = !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); });
    if (!number) return false;
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
    return text.size() > 1 || text > "1";
}

}  // namespace

std::string complaint_about_processes(const Environment& variable) {
    const char* const value = variable(count);
    if (value == nullptr || !is_several(value)) return {};
    return fmt::format(
        "{} is {}: a launcher has started several processes that cannot speak to each other. mpirun, srun --mpi=pmix "
        "or "
        "`penstock launch train` start one training of several processes. To train several models at once, each with a "
        "store and a run.directory of its own: env -u {} penstock train ...",
        count, value, count);
}

}  // namespace penstock::trainer
