// Ranks of which one has a drive that fails, is full or falls silent: all end within seconds, one of them with the
// cause and the others because of it; and over sound drives they go on from a step that all had reported, to the plain
// loop's bits.
#include "aio/backend.h"
#include "aio/words/error.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/ranks/watch/memory_board.h"
#include "tests/zero_infinity/session/moody_backend.h"
#include "tests/zero_infinity/session/ranks/ranked_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::uint64_t last_step = 6;

struct Trial {
    RankCourse course{.steps = last_step};
    std::uint32_t struck = 0;  // the rank whose drive it is
    aio::FaultChances chances;
    Moods moods;
    bool has_board = true;
    std::uint64_t seed = 0;
};

// Fatal ones only: what passes by itself has tests of its own.
void misfortune(Trial& trial, std::mt19937_64& random) {
    switch (random() % 4) {
        case 0:
            trial.chances.no_space = 1 + static_cast<int>(random() % 5);
            break;
        case 1:
            trial.chances.io_error = 1;
            break;
        default:
            trial.moods.fails = std::array{aio::IoKind::read, aio::IoKind::write, aio::IoKind::flush}.at(random() % 3);
            trial.moods.fails_at = random() % (trial.moods.fails == aio::IoKind::flush ? 16 : 200);
    }
}

Trial trial_of(std::uint64_t seed) {
    std::mt19937_64 random(mix(seed));
    Trial trial;
    trial.seed = seed;
    trial.course.ranks = static_cast<std::uint32_t>(2 + random() % 2);
    trial.course.passes = 1 + random() % 2;
    Setting& setting = trial.course.setting;
    if (random() % 2 == 0) setting.device = zero::DeviceKind::emulated;
    if (random() % 2 == 0) setting.residency.states = zero::Tier::host;
    if (random() % 2 == 0) setting.sum_order = zero::SumOrder::ranks_first;
    if (random() % 3 == 0) setting.durability.commit_steps = 2;
    trial.struck = static_cast<std::uint32_t>(random() % trial.course.ranks);
    trial.has_board = random() % 4 != 0;
    misfortune(trial, random);
    return trial;
}

struct OfRank {
    std::optional<Error> error;
    std::uint64_t from = 0;      // the step that it went on from
    std::uint64_t begun = 0;     // the last whose update was begun
    std::uint64_t reported = 0;  // the last that was said to be committed; in its own view
};

decltype(zero::SessionSeams::backend) drive(const Trial& trial, bool unfortunate) {
    return [&trial, unfortunate](const store::StoreDirectory&) {
        auto device = aio::make_thread_backend({.depth = 16, .threads_per_device = 1});
        if (!unfortunate) return aio::ChosenBackend{std::move(device), {}};
        auto moody = std::make_unique<MoodyBackend>(std::move(device), trial.moods, mix(trial.seed));
        return aio::ChosenBackend{
            std::make_unique<aio::FaultyBackend>(std::move(moody), trial.chances, 512, mix(trial.seed + 1)), {}};
    };
}

class Lives {
   public:
    explicit Lives(const Trial& trial) : trial_(&trial) {}

    // Ranks wait for each other as long as it takes: what ends them is never this transport's patience.
    std::vector<OfRank> live(bool unfortunate) const {
        const RankCourse& course = trial_->course;
        const ThreadMoods patient{.deadline = std::chrono::minutes(10)};
        ThreadRanks control(course.ranks, patient), bulk(course.ranks, patient);
        MemoryBoard board;
        std::vector<OfRank> all(course.ranks);
        const auto thrown = run_ranks(course.ranks, [&](std::uint32_t rank) {
            zero::SessionSeams seams{
                .ranks = {&control.of(rank), &bulk.of(rank), trial_->has_board ? &board : nullptr}};
            seams.backend = drive(*trial_, unfortunate && rank == trial_->struck);
            try {
                be(all[rank], rank, std::move(seams));
            } catch (const Error& error) {
                all[rank].error = error;
            }
        });
        EXPECT_EQ(thrown, std::vector<std::string>(course.ranks));
        return all;
    }
    const std::string& directory() const { return parent_.path(); }

   private:
    void be(OfRank& rank, std::uint32_t number, zero::SessionSeams seams) const {
        Setting setting = trial_->course.setting;
        if (trial_->moods.silent_from && number == trial_->struck) setting.io_deadline = seconds(1);
        Client client(parent_ / "swap", setting, std::move(seams));
        rank.from = rank.begun = client.steps();
        expect_state(client, rank.from);
        for (std::uint64_t step = rank.from + 1; step <= last_step; ++step) {
            train_passes(client, step, number);
            rank.begun = step;
            if (client.update(step).committed) rank.reported = step;
        }
        expect_state(client, last_step);
        client.session().settle();
        rank.reported = last_step;
    }
    void train_passes(Client& client, std::uint64_t step, std::uint32_t rank) const {
        const RankCourse& course = trial_->course;
        for (std::uint64_t pass = 0; pass < course.passes; ++pass) {
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, course.time(step, pass, rank));
            client.session().end_pass();
        }
    }
    void expect_state(Client& client, std::uint64_t step) const {
        RankCourse course = trial_->course;
        course.steps = step;
        EXPECT_TRUE(client.state() == plain(course).parameters()) << "after step " << step;
    }

    const Trial* trial_;
    const TemporaryDirectory parent_;
};

// Of ranks whose last life has not ended whole. Who has nothing left to wait for may have ended before the cause.
void expect_one_cause(const Trial& trial, const std::vector<OfRank>& all, const std::string& directory) {
    ASSERT_TRUE(all[trial.struck].error) << "the others have ended for nothing";
    const Error& cause = *all[trial.struck].error;
    EXPECT_TRUE(cause.code() == ExitCode::storage || cause.code() == ExitCode::does_not_fit) << cause.what();
    EXPECT_NE(std::string(cause.what()).find(directory), std::string::npos) << cause.what();
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if (rank == trial.struck) continue;
        if (!all[rank].error) {
            EXPECT_EQ(all[rank].reported, last_step) << "rank " << rank << " has ended as if nothing were";
            continue;
        }
        const Error& other = *all[rank].error;
        EXPECT_EQ(other.code(), ExitCode::peer_lost) << other.what();
        if (!trial.has_board) continue;
        const std::string named = fmt::format("because of rank {} (", trial.struck);
        EXPECT_NE(std::string(other.what()).find(named), std::string::npos) << other.what();
        EXPECT_NE(std::string(other.what()).find(directory), std::string::npos) << other.what();
    }
}

void expect_to_go_on(const std::vector<OfRank>& before, const std::vector<OfRank>& after) {
    std::uint64_t reported = last_step, begun = 0;
    for (const OfRank& each : before) {
        reported = std::min(reported, each.reported);
        begun = std::max(begun, each.begun);
    }
    for (const OfRank& each : after) {
        EXPECT_FALSE(each.error) << each.error->what();
        EXPECT_GE(each.from, reported) << "what all had reported is lost";
        EXPECT_LE(each.from, begun);
        EXPECT_EQ(each.from, after.front().from);
    }
}

bool is_whole(const std::vector<OfRank>& all) {
    return std::ranges::none_of(all, [](const OfRank& each) { return each.error.has_value(); });
}

// A run that hangs is named before it is ended.
std::string hanging;  // NOLINT(cert-err58-cpp)
void name_it(int) {
    [[maybe_unused]] const auto told = ::write(STDERR_FILENO, hanging.data(), hanging.size());
    ::_exit(1);
}
void watch_over(std::uint64_t seed) {
    std::signal(SIGALRM, name_it);
    hanging = "ranks hang; " + replay(seed) + "\n";
    ::alarm(60);
}

TEST(RankFaults, OfOneEndAllByItsCauseAndLoseNothing) {
    const std::uint64_t first = first_seed(), count = seed_count(8);
    std::uint64_t failed = 0;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        SCOPED_TRACE(replay(seed));
        watch_over(seed);
        const Trial trial = trial_of(seed);
        const Lives lives(trial);
        const std::vector<OfRank> before = lives.live(true);
        if (!is_whole(before)) expect_one_cause(trial, before, lives.directory());
        if (count == 1 && !is_whole(before)) fmt::print("{}\n", before[trial.struck].error->what());
        failed += is_whole(before) ? 0 : 1;
        expect_to_go_on(before, lives.live(false));
    }
    ::alarm(0);
    fmt::print(
        "RESULT rank_faults: {} runs of 2 and 3 ranks, one over a drive that fails or is full: {} ended by it, "
        "all by one cause, and went on\n",
        count, failed);
    if (count >= 20) {
        EXPECT_GT(failed, 0U);
    }
}

// In a process of its own: what is stuck keeps its memory and its directory until a process ends. Its code: 0 where all
// ended as they should.
int stuck_life(const Trial& trial, const Lives& lives) {
    const auto begun = Clock::now();
    const std::vector<OfRank> all = lives.live(true);
    EXPECT_LT(Clock::now() - begun, seconds(15)) << "the drive's deadline is a second";
    if (!is_whole(all)) expect_one_cause(trial, all, lives.directory());
    return ::testing::Test::HasFailure() ? 1 : is_whole(all) ? 2 : 0;
}

TEST(RankFaults, ADriveThatFallsSilentEndsAllWithinItsDeadline) {
    const std::uint64_t first = first_seed(), count = seed_count(2);
    std::uint64_t silent = 0;
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        SCOPED_TRACE(replay(seed));
        watch_over(seed);
        Trial trial = trial_of(seed);
        trial.chances = {};
        trial.moods = {.silent_from = mix(seed + 2) % 300};
        const Lives lives(trial);
        std::fflush(stdout);
        const pid_t child = ::fork();
        if (child == 0) {
            watch_over(seed);
            const int code = stuck_life(trial, lives);
            std::fflush(stdout);
            ::_exit(code);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 1) << status;
        silent += WEXITSTATUS(status) == 0 ? 1 : 0;
        for (const OfRank& each : lives.live(false)) EXPECT_FALSE(each.error) << each.error->what();
    }
    ::alarm(0);
    fmt::print("RESULT silent_drives: {} runs of 2 and 3 ranks, one over a drive that falls silent: {} ended by it\n",
               count, silent);
}

}  // namespace
}  // namespace penstock::testing
