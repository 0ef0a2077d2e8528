#include "trainer/cli/remedies.h"

#include "swap/directory/snapshot_list.h"

#include <fmt/format.h>

namespace penstock::trainer {
namespace {

class ProgramRemedies final : public store::Remedies {
   public:
    std::string of_damage(const std::string& directory) const override {
        return fmt::format(
            "{}. 'penstock ckpt scrub {}' mends what a kept snapshot still has; --resume-from goes back to one "
            "('penstock ckpt ls {}' lists them)",
            Remedies::of_damage(directory), directory, directory);
    }
    std::string of_damaged_snapshot(const std::string& directory) const override {
        return Remedies::of_damage(directory) + ", and take another snapshot ('penstock ckpt ls' lists them)";
    }
    std::string of_loss(const std::string& directory) const override {
        return fmt::format(
            "Check the drive (dmesg, smartctl), then put a copy of the directory in its place; or move the kept "
            "snapshots out of it ({}/{}, if there are any), remove the rest, and start again, from a snapshot with "
            "--resume-from",
            directory, store::snapshot_folder_name);
    }
    // What cannot be read can be renamed unread.
    std::string of_manifest(const std::string& directory) const override {
        return fmt::format(
            "Put it back from where the directory came; or take the file out of the directory, if it is still there, "
            "and "
            "run 'penstock ckpt scrub {}', which makes an empty one: that gives up what it held, and goes on from the "
            "other one's generation where that is still whole",
            directory);
    }
    std::string of_lock(const std::string& directory) const override {
        return fmt::format(
            "'penstock ckpt scrub {}' makes it anew from the manifests (--job NAME where run.job is not 'penstock')",
            directory);
    }
};

}  // namespace

const store::Remedies& program_remedies() noexcept {
    static const ProgramRemedies remedies;
    return remedies;
}

}  // namespace penstock::trainer
