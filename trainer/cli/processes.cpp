#include "trainer/cli/processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace penstock::trainer {
namespace {

constexpr const char* counts[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};

// A number above 1, however many digits it has; what is no number tells of nothing.
bool is_several(std::string_view count) {
    const bool number = !count.empty() && std::ranges::all_of(count, [](unsigned char c) { return std::isdigit(c); });
    if (!number) return false;
    count.remove_prefix(std::min(count.find_first_not_of('0'), count.size()));
    return count.size() > 1 || count > "1";
}

}  // namespace

std::string complaint_about_processes(const Environment& variable) {
    std::vector<std::string> said, without;
    for (const char* name : counts) {
        const char* const value = variable(name);
        if (value == nullptr || !is_several(value)) continue;
        said.push_back(fmt::format("{} is {}", name, value));
        without.push_back(fmt::format("-u {}", name));
    }
    if (said.empty()) return {};
    return fmt::format(
        "{}: a launcher has started several processes, and a training is one process so far; each would train a model "
        "of its own. Start one. To train several models at once, each with a store and a run.directory of its own: env "
        "{} penstock train ...",
        fmt::join(said, ", "), fmt::join(without, " "));
}

}  // namespace penstock::trainer
