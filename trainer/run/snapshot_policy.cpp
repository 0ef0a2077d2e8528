#include "trainer/run/snapshot_policy.h"

#include "aio/words/error.h"
#include "swap/directory/snapshot_list.h"
#include "trainer/ckpt/retention.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
#include "trainer/cli/step_record.h"
#include "zero_infinity/engine/session.h"
#include "zero_infinity/ranks/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

namespace penstock::trainer {
namespace {

bool exists(const std::string& path) {
    std::error_code unknown;  // e.g. no permission to look: then opening says so
    return std::filesystem::exists(path, unknown) || unknown;
}

// How a rank's copy ended; as it goes through a gather.
struct CopyWord {
    bool whole = false;
    std::uint64_t bytes = 0;
};

}  // namespace

SnapshotSchedule::Decision SnapshotSchedule::step_ended(std::int64_t step, Asked asked, bool copying) {
    if (!is_due(step, asked) && !waiting_) return Decision::nothing;
    if (!copying) {
        waiting_ = false;
        return Decision::begin;
    }
    return std::exchange(waiting_, true) ? Decision::nothing : Decision::wait;
}

bool SnapshotSchedule::is_due(std::int64_t step, Asked asked) const {
    return asked == Asked::yes || (every_ > 0 && step % every_ == 0);
}

bool SnapshotSchedule::take_waiting() {
    return std::exchange(waiting_, false);
}

SnapshotPolicy::SnapshotPolicy(SnapshotOptions options, engine::Session& session, Console& console)
    : options_(std::move(options)),
      folder_(options_.folder, session.ranks().partition()),
      schedule_(options_.every),
      session_(session),
      console_(console) {}

bool SnapshotPolicy::several() const {
    return session_.ranks().ranks() > 1;
}

void SnapshotPolicy::remove_unfinished(const std::string& job) {
    if (!options_.planned) return;
    remove_empty_snapshots(options_.folder);
    try {
        for (const store::ListedSnapshot& left : left_unfinished(folder_.list(), job)) {
            folder_.remove(left, told_to(console_));
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
    if (!several()) {
        tell_ended();
    } else if (schedule_.is_due(step, asked)) {
        wait([] { return true; });  // on each rank, before all begin the next one
    }
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
    // Of a run that went back and has come here again, with the same bits.
    if (is_there(name)) {
        session_.engine().settle();
        console_.info(fmt::format("{} was kept before and is left as it is", folder_.path_of(name)));
        return;
    }
    copied_step_ = step;
    session_.begin_snapshot(folder_.path_of(name));
}

// On all ranks. Where only some have theirs, that goes, and all are copied anew.
bool SnapshotPolicy::is_there(const std::string& name) {
    std::optional<store::ListedSnapshot> own;
    try {
        if (exists(folder_.path_of(name)))
            for (store::ListedSnapshot& one : folder_.list())
                if (one.name == name && is_copy_of(one, session_.info().store)) own = std::move(one);
    } catch (const Error& error) {
        console_.warn(error.what());
    }
    if (!several()) return own.has_value();
    const auto all = zero::gathered(session_.ranks(), "a snapshot that is there", std::uint8_t{own.has_value()});
    if (std::ranges::find(all, 0) == all.end()) return true;
    try {
        if (own) folder_.remove(*own, told_to(console_));
    } catch (const Error& error) {
        console_.warn(error.what());
    }
    return false;
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
        if (several()) {
            tell_of_all(copy);
        } else if (copy.problem) {
            console_.warn(fmt::format("{} is no snapshot: {}", copy.path, *copy.problem));
        } else {
            tell_kept(copy.path, copy.bytes);
        }
    }
}

void SnapshotPolicy::tell_of_all(const zero::EndedSnapshot& own) {
    const std::string path = folder_.path_of(step_name(static_cast<std::uint64_t>(copied_step_)));
    if (own.problem) console_.warn(fmt::format("{} is no snapshot: {}", own.path, *own.problem));
    const auto all = zero::gathered(session_.ranks(), "copies that have ended", CopyWord{!own.problem, own.bytes});
    const auto failed = std::ranges::find(all, false, &CopyWord::whole);
    if (failed != all.end()) {
        if (!own.problem)
            console_.warn(fmt::format("{} is no snapshot: rank {} could not copy its part (--rank-logs has why)", path,
                                      failed - all.begin()));
        return;
    }
    std::uint64_t bytes = 0;
    for (const CopyWord& each : all) bytes += each.bytes;
    tell_kept(path, bytes);
}

void SnapshotPolicy::tell_kept(const std::string& path, std::uint64_t bytes) {
    console_.info(fmt::format("kept {} ({})", path, bytes > 0 ? bytes_text(bytes) : "shared blocks"));
    remove_old();
}

void SnapshotPolicy::remove_old() {
    if (options_.last == 0) return;
    try {
        for (const store::ListedSnapshot& old :
             beyond_retention(folder_.list(), session_.info().store, options_.last)) {
            folder_.remove(old, told_to(console_));
            console_.info(fmt::format("removed {}: keep.last is {}", old.path, options_.last));
        }
    } catch (const Error& error) {
        console_.warn(error.what());
    }
}

}  // namespace penstock::trainer
