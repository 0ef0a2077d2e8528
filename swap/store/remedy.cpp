#include "swap/store/remedy.h"

#include "swap/directory/snapshot_list.h"

#include <fmt/format.h>

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

}  // namespace penstock::store
