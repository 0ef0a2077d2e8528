#include "trainer/run/snapshot_policy.h"

#include "aio/words/error.h"
#include "swap/directory/snapshot_list.h"
#include "trainer/ckpt/retention.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
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

bool was_taken(const store::StoreUuid& store, const std::string& folder, const std::string& name) {
    const std::vector<store::ListedSnapshot> all = store::list_snapshots(folder);
    return std::any_of(all.begin(), all.end(),
                       [&](const store::ListedSnapshot& one) { return one.name == name && is_copy_of(one, store); });
}

}  // namespace

SnapshotSchedule::Decision SnapshotSchedule::step_ended(std::int64_t step, Asked asked, bool copying) {
    const bool due = asked == Asked::yes || (every_ > 0 && step % every_ == 0);
    if (!due && !waiting_) return Decision::nothing;
    if (!copying) {
        waiting_ = false;
        return Decision::begin;
    }
    return std::exchange(waiting_, true) ? Decision::nothing : Decision::wait;
}

bool SnapshotSchedule::take_waiting() {
    return std::exchange(waiting_, false);
}

SnapshotPolicy::SnapshotPolicy(SnapshotOptions options, engine::Session& session, Console& console)
    : options_(std::move(options)), schedule_(options_.every), session_(session), console_(console) {}

void SnapshotPolicy::remove_unfinished(const std::string& job) {
    if (!options_.planned) return;
    remove_empty_snapshots(options_.folder);
    try {
        for (const store::ListedSnapshot& left : left_unfinished(store::list_snapshots(options_.folder), job)) {
            store::remove_snapshot(left.path, aio::default_deadline, told_to(console_));
            console_.info(fmt::format("removed {}, whose copy was interrupted", left.path));
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
}

bool SnapshotPolicy::step_ended(std::int64_t step, Asked asked) {
    if (!options_.planned) {
        if (asked == Asked::yes)
            console_.warn(
                "SIGUSR1: nothing is kept, because no memory was planned for it: give keep.every or keep.folder");
        return false;
    }
    tell_ended();
    const auto decision = schedule_.step_ended(step, asked, session_.snapshot_progress().under_way);
    if (decision == SnapshotSchedule::Decision::wait)
        console_.info(fmt::format("the next snapshot waits: the copy of step {} is still under way", copied_step_));
    if (decision != SnapshotSchedule::Decision::begin) return false;
    begin(step);
    return true;
}

void SnapshotPolicy::finish(std::int64_t step, RunEnd end, const std::function<bool()>& wanted) {
    if (!options_.planned) return;
    wait(wanted);
    if (!schedule_.take_waiting() || end == RunEnd::stopped || !wanted()) return;
    begin(step);
    wait(wanted);
}

void SnapshotPolicy::begin(std::int64_t step) {
    const std::string name = step_name(static_cast<std::uint64_t>(step));
    const std::string path = options_.folder + "/" + name;
    try {
        // Of a run that went back and has come here again, with the same bits.
        if (exists(path) && was_taken(session_.info().store, options_.folder, name)) {
            session_.engine().settle();
            console_.info(fmt::format("{} was kept before and is left as it is", path));
            return;
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
    copied_step_ = step;
    session_.begin_snapshot(path);
}

void SnapshotPolicy::wait(const std::function<bool()>& wanted) {
    ProgressLine line(console_, fmt::format("copying step {}", copied_step_));
    session_.finish_snapshot([&](const zero::SnapshotProgress& progress) {
        if (progress.total_bytes > 0) line.show(progress.copied_bytes, progress.total_bytes);
        return wanted();
    });
    tell_ended();
}

void SnapshotPolicy::tell_ended() {
    for (const zero::EndedSnapshot& copy : session_.take_snapshots()) {
        if (copy.problem) {
            console_.warn(fmt::format("{} is no snapshot: {}", copy.path, *copy.problem));
        } else {
            console_.info(
                fmt::format("kept {} ({})", copy.path, copy.bytes > 0 ? bytes_text(copy.bytes) : "shared blocks"));
            remove_old();
        }
    }
}

void SnapshotPolicy::remove_old() {
    if (options_.last == 0) return;
    try {
        for (const store::ListedSnapshot& old :
             beyond_retention(store::list_snapshots(options_.folder), session_.info().store, options_.last)) {
            store::remove_snapshot(old.path, aio::default_deadline, told_to(console_));
            console_.info(fmt::format("removed {}: keep.last is {}", old.path, options_.last));
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
}

}  // namespace penstock::trainer
