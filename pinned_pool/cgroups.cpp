#include "pinned_pool/cgroups.h"

#include <fstream>
#include <sstream>

namespace penstock::pool {
namespace {

void add_up_to(const std::string& mount, std::string group, int version, std::vector<CgroupFolder>& folders) {
    while (!group.empty() && group != "/") {
        folders.push_back({mount + group, version});
        group.erase(group.find_last_of('/'));
    }
    folders.push_back({mount, version});
}

bool lists(const std::string& controllers, std::string_view wanted) {
    std::istringstream words(controllers);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == wanted) return true;
    }
    return false;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root) {
    std::vector<CgroupFolder> folders;
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // "4:memory:/user", or "0::/user" for version 2
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        if (controllers.empty()) {
            add_up_to("/sys/fs/cgroup", group, 2, folders);
            add_up_to("/sys/fs/cgroup/unified", group, 2, folders);
        } else if (lists(controllers, controller)) {
            add_up_to("/sys/fs/cgroup/" + std::string(controller), group, 1, folders);
        }
    }
    return folders;
}

}  // namespace penstock::pool
