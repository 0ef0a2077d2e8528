#include "swap/format/disk_place.h"

#include <sys/stat.h>

#include <system_error>

namespace penstock::store {
namespace {

namespace fs = std::filesystem;

// Without links as far as it is there. In a working directory that is gone nothing is.
fs::path settled(const std::string& path) {
    std::error_code unknown;
    const fs::path whole = fs::absolute(path, unknown);
    if (unknown) return fs::path(path).lexically_normal();
    const fs::path found = fs::weakly_canonical(whole, unknown);
    return unknown ? whole.lexically_normal() : found;
}

}  // namespace

DiskPlace::DiskPlace(const std::string& path) : there_(settled(path)) {
    if (there_.has_relative_path() && !there_.has_filename()) there_ = there_.parent_path();  // "run/"
    look();
}

// Moves what is not there from the one path to the other.
void DiskPlace::look() {
    struct stat found {};
    while (::stat(there_.c_str(), &found) != 0 && there_.has_relative_path()) {
        rest_ = rest_.empty() ? there_.filename() : there_.filename() / rest_;
        there_ = there_.parent_path();
        found = {};
    }
    device_ = found.st_dev;
    inode_ = found.st_ino;
}

bool DiskPlace::go_up() {
    if (!rest_.empty()) {
        rest_ = rest_.parent_path();
        return true;
    }
    if (!there_.has_relative_path()) return false;
    there_ = there_.parent_path();
    look();
    return true;
}

bool DiskPlace::is_beneath(const DiskPlace& directory) const {
    for (DiskPlace at = *this; at.go_up();) {
        if (at == directory) return true;
    }
    return false;
}

}  // namespace penstock::store
