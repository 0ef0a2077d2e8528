#include "trainer/ckpt/find_snapshot.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/snapshot_list.h"
#include "trainer/ckpt/retention.h"
#include "trainer/cli/ckpt_words.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

namespace penstock::trainer {
namespace {

// What cannot be looked at, e.g. without permission, may be one: then opening it says why not.
bool may_be_directory(const std::string& path) {
    return store::Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) ||
           (errno != ENOENT && errno != ENOTDIR);
}

std::optional<std::string> of_step(const SnapshotFolder& folder, std::int64_t step,
                                   const std::vector<store::ListedSnapshot>& snapshots) {
    const std::string usual = folder.path_of(step_name(static_cast<std::uint64_t>(step)));  // as a run names its own
    if (may_be_directory(usual)) return usual;
    const auto found = std::find_if(snapshots.rbegin(), snapshots.rend(), [&](const store::ListedSnapshot& snapshot) {
        return snapshot.manifest && step_of(snapshot.manifest->client) == step;
    });
    return found == snapshots.rend() ? std::nullopt : std::optional(folder.path_of(found->name));
}

}  // namespace

std::string find_snapshot(const SnapshotFolder& folder, const std::string& name) {
    if (name.find('/') != std::string::npos) {
        if (may_be_directory(name)) return name;
        throw Error(ExitCode::usage, fmt::format("there is no directory {}; check the path of the snapshot", name));
    }
    if (store::is_snapshot_name(name) && may_be_directory(folder.path_of(name))) return folder.path_of(name);
    const std::vector<store::ListedSnapshot> snapshots = folder.list();
    if (const auto step = number_in(name); step && *step >= 0)
        if (const auto found = of_step(folder, *step, snapshots)) return *found;
    std::vector<std::string> names;
    for (const store::ListedSnapshot& snapshot : snapshots) names.push_back(snapshot.name);
    throw Error(ExitCode::usage,
                fmt::format("{} has no snapshot '{}'; {}", folder.path(), name,
                            names.empty() ? "there are none" : fmt::format("there are: {}", fmt::join(names, ", "))));
}

}  // namespace penstock::trainer
