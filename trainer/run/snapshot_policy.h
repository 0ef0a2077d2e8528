// When a run keeps snapshots of itself, where, and how many of them stay.
#pragma once

#include "trainer/ckpt/snapshot_folder.h"
#include "trainer/config/snapshot_options.h"

#include <cstdint>
#include <functional>
#include <string>

namespace penstock::engine {
class Session;
}
namespace penstock::zero {
struct EndedSnapshot;
}

namespace penstock::trainer {

class Console;

enum class Asked : std::uint8_t { no, yes };  // by a signal

// Which steps are kept. Pure.
class SnapshotSchedule {
   public:
    enum class Decision : std::uint8_t {
        nothing,
        begin,
        wait,  // it is due, but another is still being copied: it begins at the end of a later step
    };

    explicit SnapshotSchedule(std::int64_t every) : every_(every) {}
    // At the end of each step. Says `wait` once, however long it takes.
    Decision step_ended(std::int64_t step, Asked asked, bool copying);
    bool is_due(std::int64_t step, Asked asked) const;
    bool take_waiting();  // one waits; it does not any more

   private:
    std::int64_t every_;  // 0: only what is asked for
    bool waiting_ = false;
};

// Compute thread. Session and console outlive it. Throws what Session's calls throw; what becomes of a copy or of the
// removal of old ones is said and never ends the run. Of several ranks all call it alike; they begin a copy together,
// once all have ended the one before, and rank 0 tells of what is whole on all.
class SnapshotPolicy {
   public:
    SnapshotPolicy(SnapshotOptions options, engine::Session& session, Console& console);

    // What copies of this job a stop or a kill has left unfinished goes: each would hold its space for ever. What
    // another process copies now stays.
    void remove_unfinished(const std::string& job);

    // At the end of each step. Begins a copy of it when it is due or was asked for, and a step later when one is still
    // under way then. True when it has begun one: then the step is committed.
    bool step_ended(std::int64_t step, Asked asked);

    // Waits for the copy under way; `wanted` is asked now and then whether it still is. A copy that was put off begins
    // now, when the run has reached its end.
    enum class RunEnd : std::uint8_t { finished, stopped };
    void finish(std::int64_t step, RunEnd end, const std::function<bool()>& wanted);

   private:
    bool several() const;
    void begin(std::int64_t step);
    bool is_there(const std::string& name);
    void wait(const std::function<bool()>& wanted);
    void tell_ended();
    void tell_of_all(const zero::EndedSnapshot& own);
    void tell_kept(const std::string& path, std::uint64_t bytes);
    void remove_old();

    SnapshotOptions options_;
    SnapshotFolder folder_;
    SnapshotSchedule schedule_;
    engine::Session& session_;
    Console& console_;
    std::int64_t copied_step_ = 0;  // the newest that was begun
};

}  // namespace penstock::trainer
