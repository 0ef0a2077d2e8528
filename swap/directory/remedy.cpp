#include "swap/directory/remedy.h"

#include <fmt/format.h>

namespace penstock::store {

std::string Remedies::of_damage(const std::string& /*directory*/) const {
    return "The drive, its connection or the memory is failing, or something else wrote to the file: check the drive "
           "(dmesg, smartctl)";
}

std::string Remedies::of_damaged_snapshot(const std::string& directory) const {
    return of_damage(directory) + ", and use another snapshot";
}

std::string Remedies::of_loss(const std::string& directory) const {
    return fmt::format(
        "Check the drive (dmesg, smartctl), then put a copy of the directory in its place; or remove {} and start "
        "again",
        directory);
}

std::string Remedies::of_nothing(const std::string& /*directory*/) const {
    return "The store is scratch, or its first run ended before its first step, or its files were taken away: create "
           "one, put them back, or check the path";
}

std::string Remedies::of_manifest(const std::string& directory) const {
    return fmt::format("Put it back from where {} came", directory);
}

std::string Remedies::of_lock(const std::string& directory) const {
    return fmt::format("Put it back from where {} came", directory);
}

std::string Remedies::of_data(const std::string& directory) const {
    return of_loss(directory);
}

std::string Remedies::of_further_directory(const std::string& directory) const {
    return of_loss(directory);
}

const SharedRemedies& library_remedies() {
    static const SharedRemedies remedies = std::make_shared<Remedies>();
    return remedies;
}

}  // namespace penstock::store
