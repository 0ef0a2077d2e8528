// Ranks that are processes, killed at any instant: one of them, or all; by the clock, or at an I/O of a rank's, which
// is also torn. What goes on has lost no step that all of them had reported, mixes no histories, and ends with the bits
// of the plain loop.
#include "aio/backend.h"
#include "tests/seeds.h"
#include "tests/swap/kills/kill_backend.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/socket_ranks.h"
#include "tests/zero_infinity/session/ranks/ranked_loop.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>

namespace penstock::testing {
namespace {

constexpr std::uint64_t last_step = 80;  // is said in a byte

struct Ended {
    bool whole = true;         // all have made the last step
    std::string problem;       // of a rank that ended by an error of its own
    std::uint64_t newest = 0;  // the newest step that all ranks have reported
};

// Of one rank, which kills itself there.
struct KillAtIo {
    std::uint32_t rank = 0;
    std::optional<KillPoint> point;
};

struct Deaf final : KillListener {
    void hear(std::span<const Told>) override {}
};

decltype(zero::SessionSeams::backend) killing(const KillPoint& point) {
    return [point](const store::StoreDirectory& directory) {
        static Deaf nobody;
        aio::ChosenBackend chosen = aio::open_backend(directory.lock_fd(), {});
        chosen.backend = std::make_unique<KillBackend>(std::move(chosen.backend), point, nobody);
        return chosen;
    };
}

// One life of the ranks, in processes of their own. Each writes two bytes for each step that was reported to it: its
// rank, and the step.
class Life {
   public:
    Life(const std::string& directory, const RankCourse& course, const KillAtIo& at_io)
        : count_(course.ranks), at_io_(at_io) {
        SocketRanks control(count_), bulk(count_);
        if (::pipe2(reported_, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
        for (std::uint32_t rank = 0; rank < count_; ++rank) {
            const pid_t child = ::fork();
            if (child == 0) ::_exit(be(directory, course, rank, control, bulk));
            children_.push_back(child);
        }
    }
    ~Life() {
        ::close(reported_[0]);
        ::close(reported_[1]);
    }
    void kill(std::uint32_t rank) const { ::kill(children_[rank], SIGKILL); }

    // Within seconds, whatever happened to one of them.
    Ended wait() {
        Ended ended;
        for (const pid_t child : children_) {
            int status = 0;
            for (int tries = 0; ::waitpid(child, &status, WNOHANG) == 0; ++tries) {
                if (tries > 2000) {
                    ended.problem = "a rank does not end";
                    ::kill(child, SIGKILL);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
            ended.whole = ended.whole && WIFEXITED(status) && WEXITSTATUS(status) == 0;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 1) ended.problem = "a rank has failed by itself";
            if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
                ended.problem = fmt::format("a rank ended by signal {}", WTERMSIG(status));
        }
        std::array<std::uint8_t, 2> said{};
        std::vector<std::uint64_t> newest(count_);
        while (::read(reported_[0], said.data(), said.size()) == static_cast<ssize_t>(said.size()))
            newest[said[0]] = std::max<std::uint64_t>(newest[said[0]], said[1]);
        ended.newest = *std::ranges::min_element(newest);
        return ended;
    }

   private:
    int be(const std::string& directory, const RankCourse& course, std::uint32_t rank, SocketRanks& control,
           SocketRanks& bulk) const {
        const auto small = control.become(rank), large = bulk.become(rank);
        try {
            zero::SessionSeams seams{.ranks = {small.get(), large.get()}};
            if (rank == at_io_.rank && at_io_.point) seams.backend = killing(*at_io_.point);
            Client client(directory, course.setting, seams);
            for (std::uint64_t step = client.steps() + 1; step <= last_step; ++step) {
                train_rank(client, course, step, step, rank);
                const std::array<std::uint8_t, 2> said{static_cast<std::uint8_t>(rank),
                                                       static_cast<std::uint8_t>(step)};
                static_cast<void>(::write(reported_[1], said.data(), said.size()));
            }
            return 0;
        } catch (const Error& error) {
            if (error.code() == ExitCode::peer_lost) return 7;
            fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        } catch (const std::exception& error) {
            fmt::print(stderr, "rank {}: {}\n", rank, error.what());
        }
        return 1;
    }

    std::uint32_t count_;
    KillAtIo at_io_;
    int reported_[2] = {-1, -1};
    std::vector<pid_t> children_;
};

TEST(RankKills, LoseNothingAndMixNothing) {
    const std::uint64_t first = first_seed();
    std::uint64_t by_clock = 0, at_ios = 0;
    for (std::uint64_t seed = first; seed < first + seed_count(2); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        RankCourse course{.ranks = static_cast<std::uint32_t>(2 + seed % 2), .steps = last_step};
        if (random() % 2 == 0) course.setting.residency.states = zero::Tier::host;
        if (random() % 3 == 0) course.setting.sum_order = zero::SumOrder::ranks_first;
        const TemporaryDirectory parent;
        std::uint64_t reported = 0, lives = 0;
        for (bool whole = false; !whole; ++lives) {
            const auto one = static_cast<std::uint32_t>(random() % course.ranks);
            KillAtIo at_io{.rank = one, .point = {}};
            if (random() % 2 == 0)
                at_io.point = KillPoint{.how = static_cast<KillPoint::How>(random() % 4),
                                        .nth = 1 + random() % (100 + 50 * lives),
                                        .seed = random()};
            Life life(parent / "swap", course, at_io);
            if (!at_io.point) {
                // Later and later, so that it ends on a machine that is busy, too.
                std::this_thread::sleep_for(std::chrono::microseconds(random() % (30'000 + 10'000 * lives)));
                const bool all = random() % 4 == 0;
                for (std::uint32_t rank = 0; rank < course.ranks; ++rank)
                    if (all || rank == one) life.kill(rank);
            }
            const Ended ended = life.wait();
            if (!ended.whole) ++(at_io.point ? at_ios : by_clock);
            ASSERT_EQ(ended.problem, "");
            reported = std::max(reported, ended.newest);
            whole = ended.whole || reported == last_step;
        }
        // Ended, and looked at by threads of this process, which no fork follows.
        RankedLoop loop = plain(course);
        SocketRanks control(course.ranks), bulk(course.ranks);
        std::vector<pid_t> lookers;
        for (std::uint32_t rank = 0; rank < course.ranks; ++rank) {
            const pid_t child = ::fork();
            if (child == 0) {
                const auto small = control.become(rank), large = bulk.become(rank);
                int code = 1;
                try {
                    Client client(parent / "swap", course.setting, {.ranks = {small.get(), large.get()}});
                    code = client.steps() < reported ? 2 : 0;
                    train_rank(client, course, client.steps() + 1, last_step, rank);
                    if (code == 0 && client.state() != loop.parameters()) code = 3;
                } catch (const std::exception& error) {
                    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
                }
                ::_exit(code);
            }
            lookers.push_back(child);
        }
        control.close();
        bulk.close();
        for (const pid_t child : lookers) {
            int status = 0;
            ::waitpid(child, &status, 0);
            ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
            ASSERT_NE(WEXITSTATUS(status), 2) << "a step that was reported is lost: " << reported;
            ASSERT_NE(WEXITSTATUS(status), 3) << "other bits than the loop's";
            ASSERT_EQ(WEXITSTATUS(status), 0);
        }
    }
    fmt::print(
        "RESULT rank_kills: {} kills of 2 and 3 ranks, {} by the clock, {} at an I/O: nothing lost, equal bits\n",
        by_clock + at_ios, by_clock, at_ios);
}

}  // namespace
}  // namespace penstock::testing
