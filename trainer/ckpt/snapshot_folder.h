// The snapshots that a run keeps in a folder: FOLDER/NAME of one process, of several FOLDER/NAME/ranks-N/R by each.
#pragma once

#include "swap/directory/snapshot_list.h"
#include "zero_infinity/layout/unit.h"

#include <string>
#include <utility>
#include <vector>

namespace penstock::trainer {

// As one process sees it.
class SnapshotFolder {
   public:
    explicit SnapshotFolder(std::string folder, zero::Partition place = {})
        : folder_(std::move(folder)), place_(place) {}

    const std::string& path() const noexcept { return folder_; }
    // What a session is given of the snapshot NAME.
    std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
    // Its own, by NAME, each with the path of its own part; as store::list_snapshots().
    std::vector<store::ListedSnapshot> list() const;
    // Its own part; the last process's takes what is above with it. As store::remove_snapshot().
    void remove(const store::ListedSnapshot& snapshot, const store::WaitNotice& notice = {}) const;

   private:
    std::string folder_;
    zero::Partition place_;
};

// All in `folder`, of whatever number of processes: "step-6", and "step-6/ranks-2/0".
std::vector<store::ListedSnapshot> list_parts(const std::string& folder);

}  // namespace penstock::trainer
