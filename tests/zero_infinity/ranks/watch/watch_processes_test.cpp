// Ranks that are processes: one is killed, stopped, or fails, and all others end with its word.
#include "tests/child.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/watch/file_board.h"
#include "zero_infinity/ranks/watch/watch.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;
using zero::BeatTimes;
using zero::RunEnd;
using zero::Watch;

constexpr std::uint32_t ranks = 3;
constexpr BeatTimes quick{.beat = 20ms, .deadline = 800ms, .doubt = 300ms, .arrival = 20s};

// What a rank has of the others: a lock that the kernel gives up where a process is gone, as it closes its connections.
class Connections {
   public:
    Connections(const std::filesystem::path& directory, std::uint32_t rank) : rank_(rank) {
        for (std::uint32_t each = 0; each < ranks; ++each)
            files_.push_back(
                ::open((directory / ("process-" + std::to_string(each))).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (::flock(files_[rank_], LOCK_EX | LOCK_NB) != 0) throw Error(ExitCode::internal, "two of one rank");
    }
    bool one_is_closed() const {
        for (std::uint32_t each = 0; each < ranks; ++each)
            if (each != rank_ && ::flock(files_[each], LOCK_SH | LOCK_NB) == 0) return true;
        return false;
    }

   private:
    std::uint32_t rank_;
    std::vector<int> files_;
};

struct RankProgram {
    BeatTimes times = quick;
    std::function<void(Watch&)> body = [](Watch&) {};  // once all are there; returns: the rank works on
};

// All collectives are made: each has come so far.
void meet_at_the_end(zero::Board& board) {
    const auto is_on = [&](std::uint32_t rank) {
        const auto text = board.get(zero::beat_key(rank));
        return text && zero::beat_of(*text).value_or(zero::Beat{}).state == zero::Beat::State::on;
    };
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        while (is_on(rank)) std::this_thread::sleep_for(1ms);
}

// Works until the run has ended, or until `last`, which is its normal end. Says how it ended.
void live(const std::filesystem::path& directory, std::uint32_t rank, const RankProgram& program,
          Child::Clock::time_point last, const Child::Say& say) {
    FileBoard board(directory);
    const Connections connections(directory, rank);
    Watch watch(board, {.rank = rank, .ranks = ranks, .host = "worker-" + std::to_string(rank), .times = program.times},
                [](const RunEnd&) {});
    watch.at("step 7");
    say("up\n");
    for (std::uint32_t each = 0; each < ranks; ++each)
        while (!board.get(zero::beat_key(each))) std::this_thread::sleep_for(1ms);
    program.body(watch);
    std::optional<RunEnd> end;
    for (; !end && Child::Clock::now() < last; std::this_thread::sleep_for(5ms)) {
        end = watch.ended();
        if (!end && connections.one_is_closed())
            end = watch.failed(Error(ExitCode::peer_lost, "connection closed by peer"));
    }
    if (end) return say((end->is_told_here ? "says " : "knows ") + end->cause.words());
    watch.finished();
    meet_at_the_end(board);
    say("finished");
}

class WatchOfProcesses : public ::testing::Test {
   protected:
    void start(const std::function<RankProgram(std::uint32_t rank)>& program_of,
               std::chrono::nanoseconds training = 20s) {
        const auto last = Child::Clock::now() + training;
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            children_.push_back(std::make_unique<Child>(
                [&, rank](const Child::Say& say) { live(directory_.path(), rank, program_of(rank), last, say); }));
        for (const auto& each : children_) EXPECT_EQ(each->hear(3), "up\n");
    }
    void signal(std::uint32_t rank, int number) { ::kill(children_[rank]->pid(), number); }
    std::string end_of(std::uint32_t rank) {
        const ChildEnd end = children_[rank]->end(Child::Clock::now() + 15s);
        EXPECT_FALSE(end.hung) << "rank " << rank;
        return end.said + end.complaint;
    }
    // Of these ranks one says it, the others know it.
    void expect_one_voice(const std::vector<std::uint32_t>& all, const std::string& cause) {
        int told = 0;
        for (const std::uint32_t rank : all) {
            const std::string end = end_of(rank);
            told += end.starts_with("says ") ? 1 : 0;
            EXPECT_NE(end.find(" " + cause), std::string::npos) << "rank " << rank << ": " << end;
        }
        EXPECT_EQ(told, 1);
    }

    TemporaryDirectory directory_;
    std::vector<std::unique_ptr<Child>> children_;
};

RankProgram usual(std::uint32_t) {
    return {};
}

TEST_F(WatchOfProcesses, AllEndWell) {
    start(usual, 300ms);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(end_of(rank), "finished");
}

TEST_F(WatchOfProcesses, AKilledOneIsNamed) {
    start(usual);
    std::this_thread::sleep_for(100ms);
    signal(1, SIGKILL);
    expect_one_voice({0, 2}, "rank 1 (worker-1): silent for 0 s; it was in step 7; rank ");
}

TEST_F(WatchOfProcesses, AStoppedOneIsNamedAndFindsItWhenItGoesOn) {
    start(usual);
    std::this_thread::sleep_for(100ms);
    signal(0, SIGSTOP);
    expect_one_voice({1, 2}, "rank 0 (worker-0): silent for 0 s; it was in step 7");
    signal(0, SIGCONT);
    EXPECT_TRUE(end_of(0).starts_with("knows rank 0 (worker-0): silent for 0 s")) << "the accused one";
}

TEST_F(WatchOfProcesses, OneThatFailsIsTheCause) {
    start([](std::uint32_t rank) {
        RankProgram program;
        if (rank == 2) program.body = [](Watch& watch) { watch.failed(Error(ExitCode::usage, "out of rows")); };
        return program;
    });
    expect_one_voice({0, 1, 2}, "rank 2 (worker-2): out of rows");
}

TEST_F(WatchOfProcesses, OneThatLeavesWithoutAWordIsNamed) {
    start([](std::uint32_t rank) {
        RankProgram program;
        if (rank == 0) program.body = [](Watch&) { ::_exit(3); };
        return program;
    });
    expect_one_voice({1, 2}, "rank 0 (worker-0): silent for 0 s");
}

// It was away for longer than its own deadline, twice, and the others have patience.
TEST_F(WatchOfProcesses, OneThatWasStoppedAccusesNobody) {
    start(
        [](std::uint32_t rank) {
            RankProgram program;
            program.times.deadline = rank == 1 ? 200ms : 20'000ms;
            return program;
        },
        1300ms);
    for (int turn = 0; turn < 2; ++turn) {
        signal(1, SIGSTOP);
        std::this_thread::sleep_for(500ms);
        signal(1, SIGCONT);
        std::this_thread::sleep_for(50ms);
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) EXPECT_EQ(end_of(rank), "finished");
}

}  // namespace
}  // namespace penstock::testing
