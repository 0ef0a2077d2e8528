#include "swap/store/remedy.h"

#include "swap/directory/snapshot_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace penstock::store {

std::string remedy_of_damage(const std::string& directory) {
    return fmt::format(
        "The drive, its connection or the memory is failing, or something else wrote to the file: check the drive "
        "(dmesg, smartctl). 'penstock ckpt scrub {}' mends what a kept snapshot still has",
        directory);
}

std::string remedy_of_damaged_snapshot() {
    return "The drive, its connection or the memory is failing, or something else wrote to the file: check the drive "
           "(dmesg, smartctl), and take another snapshot ('penstock ckpt ls' lists them)";
}

std::string remedy_of_loss(const std::string& directory) {
    return fmt::format(
        "Check the drive (dmesg, smartctl), then put a copy of the directory in its place; or move the kept snapshots "
        "out of it ({}/{}, if there are any), remove the rest, and start again, from a snapshot with --resume-from",
        directory, snapshot_folder_name);
}

std::string refusal_of_missing(const std::string& directory, const std::vector<std::string>& manifests) {
    return fmt::format(
        "{}: there is no '{}', which says what the data is. Put it back from where the directory came. {}", directory,
        fmt::join(manifests, "' and no '"),
        manifests.size() == 1
            ? fmt::format(
                  "Without it, 'penstock ckpt scrub {}' makes an empty one: that gives up what it held, and goes "
                  "on from the other one's generation where that is still whole",
                  directory)
            : fmt::format("Without them the data is of no use: move the kept snapshots out of it ({}/{}, if there are "
                          "any), remove the rest, and start again, from a snapshot with --resume-from",
                          directory, snapshot_folder_name));
}

// Passing causes (descriptors, memory, a link that dropped) go by themselves. What stays unreadable can be renamed
// unread, which is to say that what it holds is given up; scrub makes an empty one in its place.
std::string refusal_of_unread(const std::string& directory, const std::vector<std::string>& lines) {
    return fmt::format(
        "{}: a manifest could not be read, and the newest generation may be in it. {}. Nothing was changed. Try again "
        "when the cause is gone (dmesg, ulimit -n). If it does not go, move that file out of the directory and run "
        "'penstock ckpt scrub {}': that gives up what the file holds, and goes back to the other manifest's generation "
        "where that is still whole",
        directory, fmt::join(lines, "; "), directory);
}

}  // namespace penstock::store
