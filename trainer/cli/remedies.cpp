#include "trainer/cli/remedies.h"

#include "swap/directory/snapshot_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::trainer {
namespace {

// Before a store is taken for lost.
constexpr const char* check_drive = "Check the drive (dmesg, smartctl), then put a copy of the directory in its place";

class ScrubRemedies : public store::Remedies {
   public:
    explicit ScrubRemedies(StoreNames names) : names_(std::move(names)) {}

    std::string of_damage(const std::string& directory) const override {
        return fmt::format("{}. {}", Remedies::of_damage(directory), going_back(directory));
    }
    std::string of_loss(const std::string& directory) const override {
        return fmt::format(
            "{}; or move the kept snapshots out of it ({}/{}, if there are any), remove the rest, and start again, "
            "from a snapshot with --resume-from",
            check_drive, directory, store::snapshot_folder_name);
    }
    std::string of_data(const std::string& directory) const override {
        return fmt::format("{} and makes the file anew; or put a copy of the directory in its place",
                           going_back(directory));
    }
    std::string of_further_directory(const std::string& directory) const override {
        return fmt::format("{} and makes the directory anew", going_back(directory));
    }

   protected:
    // The store's first directory, and the others behind it.
    std::string scrub_command(const std::string& directory) const {
        std::string command = "penstock ckpt scrub " + (is_own(directory) ? names_.directories.front() : directory);
        for (std::size_t i = 1; is_own(directory) && i < names_.directories.size(); ++i)
            command += " --also " + names_.directories[i];
        return command + folder_option(directory);
    }
    std::string list_command(const std::string& directory) const {
        return fmt::format("penstock ckpt ls {}{}", directory, folder_option(directory));
    }

   private:
    bool is_own(const std::string& directory) const {
        return std::find(names_.directories.begin(), names_.directories.end(), directory) != names_.directories.end();
    }
    std::string folder_option(const std::string& directory) const {
        const std::string usual = fmt::format("{}/{}", directory, store::snapshot_folder_name);
        return names_.snapshots.empty() || names_.snapshots == usual ? "" : " --kept " + names_.snapshots;
    }
    std::string going_back(const std::string& directory) const {
        return fmt::format("--resume-from goes back to a kept snapshot ('{}' lists them)", list_command(directory));
    }

    StoreNames names_;
};

class StoreRemedies final : public ScrubRemedies {
   public:
    using ScrubRemedies::ScrubRemedies;

    std::string of_damage(const std::string& directory) const override {
        return fmt::format(
            "{}. '{}' mends what a kept snapshot still has; --resume-from goes back to one ('{}' "
            "lists them)",
            Remedies::of_damage(directory), scrub_command(directory), list_command(directory));
    }
    std::string of_data(const std::string& directory) const override {
        return fmt::format("'{}' makes an empty one and mends what a kept snapshot still has; {}",
                           scrub_command(directory), ScrubRemedies::of_data(directory));
    }
    // What cannot be read can be renamed unread.
    std::string of_manifest(const std::string& directory) const override {
        return fmt::format(
            "Put it back from where the directory came; or take the file out of the directory, if it is still there, "
            "and run '{}', which makes an empty one: that gives up what it held, and goes on from the other one's "
            "generation where that is still whole",
            scrub_command(directory));
    }
    std::string of_lock(const std::string& directory) const override {
        return fmt::format("'{}' makes it anew from the manifests (--job NAME where run.name is not 'penstock')",
                           scrub_command(directory));
    }
};

class SnapshotRemedies final : public store::Remedies {
   public:
    std::string of_damage(const std::string& directory) const override {
        return Remedies::of_damage(directory) + another;
    }
    std::string of_damaged_snapshot(const std::string& directory) const override { return of_damage(directory); }
    std::string of_loss(const std::string& /*directory*/) const override {
        return fmt::format("{}{}", check_drive, another);
    }
    std::string of_nothing(const std::string& /*directory*/) const override {
        return fmt::format(
            "Its copy never ended, or its manifests were emptied: put a copy of the directory in its "
            "place{}",
            another);
    }
    // The one that is lost may be the one that says nothing.
    std::string of_manifest(const std::string& directory) const override {
        return fmt::format(
            "Put it back from where the directory came; or take the file out of the directory, if it is still there, "
            "and run 'penstock ckpt scrub {}', which makes an empty one and helps where the other one is the "
            "snapshot's{}",
            directory, another);
    }
    std::string of_lock(const std::string& directory) const override {
        return fmt::format(
            "'penstock ckpt scrub {}' makes it anew from the manifests (--job NAME where run.name is "
            "not 'penstock')",
            directory);
    }

   private:
    static constexpr const char* another =
        ", or take another snapshot ('penstock ckpt ls DIRECTORY', of the run's store, lists them)";
};

}  // namespace

store::SharedRemedies remedies_of_store(StoreNames names) {
    return std::make_shared<StoreRemedies>(std::move(names));
}

store::SharedRemedies remedies_of_scrub(StoreNames names) {
    return std::make_shared<ScrubRemedies>(std::move(names));
}

store::SharedRemedies remedies_of_snapshot() {
    static const store::SharedRemedies remedies = std::make_shared<SnapshotRemedies>();
    return remedies;
}

}  // namespace penstock::trainer
