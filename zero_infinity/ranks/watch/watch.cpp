#include "zero_infinity/ranks/watch/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::zero {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds lingers_between{20};

}  // namespace

// The thread alone talks to the board, and decides; whoever calls leaves a wish and waits for its effect.
class Watch::Thread {
   public:
    Thread(Board& board, WatchOptions options, OnEnded on_ended)
        : board_(&board),
          options_(std::move(options)),
          on_ended_(std::move(on_ended)),
          peers_(options_.rank, options_.ranks, options_.times),
          looked_at_(Clock::now()),
          thread_([this] { run(); }) {}

    ~Thread() {
        leave();
        thread_.join();
    }

    void at(std::string_view where) {
        const std::lock_guard lock(mutex_);
        wishes_.at = where;
    }

    RunEnd failed(const Error& error) {
        std::unique_lock lock(mutex_);
        if (stage_ == Stage::finished) return {own_cause(error), true};
        if (!wishes_.error) wishes_.error = error;
        wake();
        changed_.wait(lock, [&] { return ended_ && stage_ == Stage::ended; });
        return *ended_;
    }

    void finished() {
        std::unique_lock lock(mutex_);
        wishes_.finish = true;
        wake();
        changed_.wait(lock, [&] { return stage_ == Stage::ended || stage_ == Stage::finished; });
    }

    std::optional<RunEnd> ended() const {
        const std::lock_guard lock(mutex_);
        return ended_;
    }

   private:
    enum class Stage : std::uint8_t {
        watching,
        alone,     // the board is gone with a rank 0 that had finished: nothing to look at
        ended,     // and on_ended has returned
        finished,  // by finished()
    };
    struct Wishes {
        std::string at;
        std::optional<Error> error;
        bool finish = false;
        bool leave = false;  // by the destructor
    };

    void wake() {
        is_woken_ = true;
        changed_.notify_all();
    }
    void leave() {
        const std::lock_guard lock(mutex_);
        const bool is_open = stage_ == Stage::watching || stage_ == Stage::alone;
        if (is_open && !wishes_.error)
            wishes_.error = Error(ExitCode::internal, "its training was closed before it was finished");
        wishes_.leave = true;
        wake();
    }

    void run() noexcept {
        for (Wishes wishes; !wishes.leave;) {
            wishes = take_turn();
            if (stage_ == Stage::alone)
                go_on_alone(wishes);
            else if (stage_ == Stage::watching)
                look(wishes);
        }
        linger();
    }
    Wishes take_turn() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, options_.times.beat, [&] { return is_woken_; });
        is_woken_ = false;
        return wishes_;
    }

    void look(const Wishes& wishes) {
        try {
            look_at_board(wishes);
        } catch (const std::exception& lost) {
            lose_board(wishes, lost.what());
        }
    }
    void look_at_board(const Wishes& wishes) {
        const auto now = Clock::now();
        const auto since_last = now - std::exchange(looked_at_, now);
        if (wishes.finish) {
            beat(Beat::State::finished, "");
            return become(Stage::finished);
        }
        beat(Beat::State::on, wishes.at);
        const bool lost = wishes.error && wishes.error->code() == ExitCode::peer_lost;
        if (wishes.error && (!lost || wishes.leave)) return put(own_cause(*wishes.error), wishes);
        if (const auto stands = board_->get(end_cause_key)) return end({end_cause_of(*stands), false}, wishes);
        if (lost) peers_.begin_doubt();
        if (const auto silence = peers_.looked(since_last, beats())) return put(cause_of(*silence, wishes), wishes);
        if (peers_.doubt_is_over()) put(own_cause(*wishes.error), wishes);
    }
    std::vector<PeerBeats::Read> beats() {
        std::vector<PeerBeats::Read> read;
        for (const std::uint32_t peer : peers_.to_read()) read.push_back({peer, beat_at_board(peer)});
        return read;
    }
    std::optional<Beat> beat_at_board(std::uint32_t peer) {
        const auto text = board_->get(beat_key(peer));
        return text ? beat_of(*text) : std::nullopt;
    }
    void beat(Beat::State state, const std::string& at) {
        board_->put(beat_key(options_.rank), board_text({state, ++number_, options_.host, at}));
    }

    EndCause own_cause(const Error& error) const { return {options_.rank, options_.rank, options_.host, error.what()}; }
    EndCause cause_of(const Silence& silence, const Wishes& wishes) const {
        const std::string found =
            wishes.error ? fmt::format("; rank {} found: {}", options_.rank, wishes.error->what()) : "";
        return {options_.rank, silence.rank, silence.last ? silence.last->host : "", silence.words() + found};
    }

    void put(const EndCause& cause, const Wishes& wishes) {
        const std::string own = board_text(cause), stands = board_->put_first(end_cause_key, own);
        end({stands == own ? cause : end_cause_of(stands), stands == own}, wishes);
    }
    void end(RunEnd how, const Wishes& wishes) {
        {
            const std::lock_guard lock(mutex_);
            ended_ = how;
        }
        if (!wishes.leave) on_ended_(how);
        become(Stage::ended);
        try {
            beat(Beat::State::ended, "");
        } catch (const std::exception&) {  // nobody is left who reads it
        }
    }
    void become(Stage stage) {
        const std::lock_guard lock(mutex_);
        stage_ = stage;
        changed_.notify_all();
    }

    // No rank sees what another one does: each says what is its own, and one of them what all see.
    void lose_board(const Wishes& wishes, const std::string& why) {
        const std::optional<Beat>& host = peers_.last(0);
        if (wishes.finish) return become(Stage::finished);
        if (host && host->state == Beat::State::finished) {
            become(Stage::alone);
            return go_on_alone(wishes);
        }
        if (wishes.error && wishes.error->code() != ExitCode::peer_lost)
            return end({own_cause(*wishes.error), true}, wishes);
        const std::string at = host && !host->at.empty() ? "; rank 0 was in " + host->at : "";
        end({{options_.rank, 0, host ? host->host : "", "the board is lost that mostly goes with it: " + why + at},
             speaks_for_all()},
            wishes);
    }
    bool speaks_for_all() const {
        std::uint32_t first = 1;
        while (first < options_.ranks && peers_.is_at_end(first)) ++first;
        return options_.rank == first;
    }
    void go_on_alone(const Wishes& wishes) {
        if (wishes.finish)
            become(Stage::finished);
        else if (wishes.error)
            end({own_cause(*wishes.error), true}, wishes);
    }

    void linger() noexcept {
        if (options_.rank != 0) return;
        std::vector<std::uint32_t> away;  // who may not have read it yet
        for (std::uint32_t peer = 1; peer < options_.ranks; ++peer)
            if (!ended_ || ended_->cause.rank != peer) away.push_back(peer);
        try {
            for (const auto last = Clock::now() + options_.linger; Clock::now() < last;) {
                std::erase_if(away, [&](std::uint32_t peer) {
                    const auto beat = beat_at_board(peer);
                    return !beat || beat->state != Beat::State::on;
                });
                if (away.empty()) return;
                std::this_thread::sleep_for(lingers_between);
            }
        } catch (const std::exception&) {  // the board is gone
        }
    }

    Board* board_;
    WatchOptions options_;
    OnEnded on_ended_;

    // The thread's own.
    PeerBeats peers_;
    Clock::time_point looked_at_;
    std::uint64_t number_ = 0;

    mutable std::mutex mutex_;  // for all below; of stage_ and ended_ the thread's own reads need none
    std::condition_variable changed_;
    Wishes wishes_;
    bool is_woken_ = true;  // the first look is at once
    Stage stage_ = Stage::watching;
    std::optional<RunEnd> ended_;

    std::thread thread_;
};

Watch::Watch(Board& board, WatchOptions options, OnEnded on_ended)
    : thread_(std::make_unique<Thread>(board, std::move(options), std::move(on_ended))) {}

Watch::~Watch() = default;

void Watch::at(std::string_view where) {
    thread_->at(where);
}

RunEnd Watch::failed(const Error& error) {
    return thread_->failed(error);
}

void Watch::finished() {
    thread_->finished();
}

std::optional<RunEnd> Watch::ended() const {
    return thread_->ended();
}

}  // namespace penstock::zero
