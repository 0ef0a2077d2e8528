// The control groups that this process is in. Source: Documentation/admin-guide/cgroup-v1/cgroups.rst and cgroup-v2.rst
// of Linux.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::pool {

struct CgroupFolder {
    std::string path;  // "/sys/fs/cgroup/user/job"
    int version = 2;
};

// Folders of the groups that the controller ("memory", "cpu") holds this process in, from its own up to the root's: any
// of them may be the tight one. In a container the path in /proc is often the host's and only the root's exists:
// folders that are not there are named as well. `root` stands before /proc, so that a test shows another machine; it is
// not in the paths.
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root = "");

}  // namespace penstock::pool
