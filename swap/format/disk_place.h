// Where a path leads on the disk, whether something is there yet or not.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

namespace penstock::store {

// Two spellings of one place are equal: links, "..", a bind mount of the directory itself. (What is beneath a bind
// mount of a directory within another is not known to be beneath that other one.) What may not be looked at counts as
// not there yet. A value.
class DiskPlace {
   public:
    explicit DiskPlace(const std::string& path);

    bool operator==(const DiskPlace& other) const {
        return device_ == other.device_ && inode_ == other.inode_ && rest_ == other.rest_;
    }
    bool is_beneath(const DiskPlace& directory) const;
    bool is_at_or_beneath(const DiskPlace& directory) const { return *this == directory || is_beneath(directory); }

    bool is_there() const { return rest_.empty(); }
    const std::filesystem::path& nearest() const { return there_; }  // that is there, without links
    // Becomes the directory around it; false: there is none.
    bool go_up();

   private:
    void look();

    std::filesystem::path there_;
    std::filesystem::path rest_;  // beneath it: not there yet
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace penstock::store
