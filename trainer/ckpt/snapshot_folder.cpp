#include "trainer/ckpt/snapshot_folder.h"

#include "zero_infinity/session/rank_set.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace penstock::trainer {
namespace {

namespace fs = std::filesystem;

// Directories in `folder` that are named so; none where it cannot be read, which listing it says.
std::vector<std::string> named(const std::string& folder, std::string_view prefix) {
    std::vector<std::string> found;
    std::error_code unknown;
    for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end; entry.increment(unknown)) {
        std::string name = entry->path().filename();
        std::error_code gone;
        if (name.starts_with(prefix) && store::is_snapshot_name(name) && entry->is_directory(gone))
            found.push_back(std::move(name));
    }
    return found;
}

void sort_by_time(std::vector<store::ListedSnapshot>& all) {
    const auto age = [](const store::ListedSnapshot& one) {
        return std::pair(one.manifest ? one.manifest->time_s : std::uint64_t{0}, one.name);
    };
    std::sort(all.begin(), all.end(), [&age](const auto& a, const auto& b) { return age(a) < age(b); });
}

}  // namespace

std::vector<store::ListedSnapshot> SnapshotFolder::list() const {
    if (place_.ranks == 1) return store::list_snapshots(folder_);
    std::vector<store::ListedSnapshot> own;
    for (const std::string& name : named(folder_, "")) {
        const fs::path part = zero::rank_directory(path_of(name), place_);
        for (store::ListedSnapshot& each : store::list_snapshots(part.parent_path())) {
            if (each.name != part.filename()) continue;
            each.name = name;
            own.push_back(std::move(each));
        }
    }
    sort_by_time(own);
    return own;
}

void SnapshotFolder::remove(const store::ListedSnapshot& snapshot, const store::WaitNotice& notice) const {
    store::remove_snapshot(snapshot.path, aio::default_deadline, notice);
    if (place_.ranks == 1) return;
    const fs::path of_all = fs::path(snapshot.path).parent_path();
    if (::rmdir(of_all.c_str()) == 0) ::rmdir(of_all.parent_path().c_str());  // refuses what is not empty
}

std::vector<store::ListedSnapshot> list_parts(const std::string& folder) {
    std::vector<store::ListedSnapshot> all = store::list_snapshots(folder);
    for (const std::string& name : named(folder, ""))
        for (const std::string& set : named(folder + "/" + name, zero::set_prefix))
            for (store::ListedSnapshot& each : store::list_snapshots(fmt::format("{}/{}/{}", folder, name, set))) {
                each.name = fmt::format("{}/{}/{}", name, set, each.name);
                all.push_back(std::move(each));
            }
    sort_by_time(all);
    return all;
}

}  // namespace penstock::trainer
