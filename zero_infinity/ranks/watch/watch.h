// Ranks end together: a thread of each rank's looks at the board every second, and notices there that another one has
// failed, or is silent.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/ranks/board.h"
#include "zero_infinity/ranks/watch/end_cause.h"
#include "zero_infinity/ranks/watch/peer_beats.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::zero {

struct WatchOptions {
    std::uint32_t rank = 0, ranks = 1;
    std::string host;  // this rank's machine, for messages
    BeatTimes times;
    // How long rank 0 stays, at most, until all others have read how the run ended: the board may go with its process.
    std::chrono::nanoseconds linger = std::chrono::seconds(2);
};

// A run that has ended before its end.
struct RunEnd {
    EndCause cause;
    // This rank says it, where its user reads; the others have ended_line() in their logs, if anywhere. Once in a run,
    // as long as there is a board.
    bool is_told_here = false;
};

// One for a run and rank, on a board that had none before; of any rank. The first cause that is put on the board is the
// run's:
//
// * what a rank says that it has failed with;
// * a rank that does not beat: its process is gone, or stopped. One that waits in a debugger, or compiles, beats on;
// * a board that is lost. Of it speaks the first rank behind rank 0, which mostly hosts it.
//
// Whoever finds a connection closed knows neither who is gone nor why. It asks the board: within three seconds either
// the cause stands there, or one rank is silent, or it says what it has seen itself.
class Watch {
   public:
    using OnEnded = std::function<void(const RunEnd&)>;

    // `on_ended` is called at most once, on the watch's thread, neither behind finished() nor by the destructor: it
    // ends what this rank waits in. It throws nothing, and calls of the watch at() and ended() alone. The board
    // outlives it.
    Watch(Board& board, WatchOptions options, OnEnded on_ended);
    // Unless it was finished or has ended, as failed(), of which the others learn; to say it here is for who closes it.
    // Lingers on rank 0.
    ~Watch();

    // What this rank does, for who finds it silent. Any thread, as often as it likes.
    void at(std::string_view where);

    // This rank has failed; peer_lost: it has lost a connection. How the run has ended: by this, or by what was there
    // before. Any thread; waits for a few calls of the board and for on_ended, and some seconds where a connection was
    // lost. To be called before the others can notice by themselves, as by an abort.
    RunEnd failed(const Error& error);
    // All collectives are made: no further beat is expected, and nothing that others do ends this rank. Any thread;
    // takes a call of the board.
    void finished();

    std::optional<RunEnd> ended() const;  // any thread

   private:
    class Thread;
    std::unique_ptr<Thread> thread_;
};

}  // namespace penstock::zero
