#include "trainer/run/snapshot_keeping.h"

#include "aio/words/error.h"
#include "swap/directory/kept_list.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/step_record.h"
#include "zero_infinity/engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace penstock::trainer {
namespace {

bool exists(const std::string& path) {
    std::error_code unknown;  // e.g. no permission to look: then opening says so
    return std::filesystem::exists(path, unknown) || unknown;
}

bool was_kept(const store::StoreUuid& store, const std::string& folder, const std::string& name) {
    const std::vector<store::KeptSnapshot> all = store::list_kept(folder);
    return std::any_of(all.begin(), all.end(),
                       [&](const store::KeptSnapshot& one) { return one.name == name && is_copy_of(one, store); });
}

}  // namespace

KeepSchedule::Decision KeepSchedule::step_ended(std::int64_t step, Asked asked, bool copying) {
    const bool due = asked == Asked::yes || (every_ > 0 && step % every_ == 0);
    if (!due && !waiting_) return Decision::nothing;
    if (!copying) {
        waiting_ = false;
        return Decision::begin;
    }
    return std::exchange(waiting_, true) ? Decision::nothing : Decision::wait;
}

bool KeepSchedule::take_waiting() {
    return std::exchange(waiting_, false);
}

SnapshotKeeping::SnapshotKeeping(KeepOptions options, engine::Session& session, Console& console)
    : options_(std::move(options)), schedule_(options_.every), session_(session), console_(console) {}

bool SnapshotKeeping::step_ended(std::int64_t step, Asked asked) {
    if (!options_.planned) {
        if (asked == Asked::yes)
            console_.warn(
                "SIGUSR1: nothing is kept, because no memory was planned for it: give keep.every or keep.folder");
        return false;
    }
    tell_ended();
    const auto decision = schedule_.step_ended(step, asked, session_.keep_progress().under_way);
    if (decision == KeepSchedule::Decision::wait)
        console_.info(fmt::format("the next snapshot waits: the copy of step {} is still under way", copied_step_));
    if (decision != KeepSchedule::Decision::begin) return false;
    begin(step);
    return true;
}

void SnapshotKeeping::finish(std::int64_t step, RunEnd end, const std::function<bool()>& wanted) {
    if (!options_.planned) return;
    wait(wanted);
    if (!schedule_.take_waiting() || end == RunEnd::stopped || !wanted()) return;
    begin(step);
    wait(wanted);
}

void SnapshotKeeping::begin(std::int64_t step) {
    const std::string name = store::step_name(static_cast<std::uint64_t>(step));
    const std::string path = options_.folder + "/" + name;
    try {
        // Of a run that went back and has come here again, with the same bits.
        if (exists(path) && was_kept(session_.info().store, options_.folder, name)) {
            session_.engine().settle();
            console_.info(fmt::format("{} was kept before and is left as it is", path));
            return;
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
    copied_step_ = step;
    session_.keep(path);
}

void SnapshotKeeping::wait(const std::function<bool()>& wanted) {
    ProgressLine line(console_, fmt::format("copying step {}", copied_step_));
    session_.finish_keep([&](const zero::SnapshotProgress& progress) {
        if (progress.total_bytes > 0) line.show(progress.copied_bytes, progress.total_bytes);
        return wanted();
    });
    tell_ended();
}

void SnapshotKeeping::tell_ended() {
    for (const zero::EndedSnapshot& copy : session_.take_kept()) {
        if (copy.problem) {
            console_.warn(fmt::format("{} is no snapshot: {}", copy.path, *copy.problem));
        } else {
            console_.info(fmt::format("kept {} ({})", copy.path, bytes_text(copy.bytes)));
            remove_old();
        }
    }
}

void SnapshotKeeping::remove_old() {
    if (options_.last == 0) return;
    try {
        for (const store::KeptSnapshot& old :
             store::beyond_retention(store::list_kept(options_.folder), session_.info().store, options_.last)) {
            store::remove_kept(old.path);
            console_.info(fmt::format("removed {}: keep.last is {}", old.path, options_.last));
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
}

}  // namespace penstock::trainer
