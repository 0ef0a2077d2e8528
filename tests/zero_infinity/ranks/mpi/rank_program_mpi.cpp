// What mpi_ranks_test.cpp starts by mpirun: a rank that does one of the things below, as a program's main() would.
#include "aio/words/error.h"
#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/lane_program.h"
#include "tests/zero_infinity/ranks/moved_blocks.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"
#include "zero_infinity/ranks/rank_probe.h"

#include <mpi.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

bool one_thread_at_a_time = false;

}  // namespace

// In front of the library's.
extern "C" int MPI_Init_thread(int* count, char*** arguments, int wanted, int* given) {
    const int code = PMPI_Init_thread(count, arguments, wanted, given);
    if (one_thread_at_a_time) *given = MPI_THREAD_SERIALIZED;
    return code;
}

namespace penstock::testing {
namespace {

using zero::Lane;
using zero::MpiRanks;

constexpr std::uint32_t strange = 1;  // the rank that does something else
constexpr std::size_t chunk = std::size_t{256} << 10;

bool is_strange(MpiRanks& ranks) {
    return ranks.place().rank == strange;
}

void gather(zero::Transport& transport, std::size_t bytes) {
    const std::vector<std::byte> mine(bytes);
    std::vector<std::byte> all(transport.ranks() * bytes);
    transport.all_gather(mine, {all.data(), bytes, bytes});
}

void moves(MpiRanks& ranks, std::uint64_t seed) {
    if (ranks.place().local_ranks != ranks.place().ranks || ranks.place().local_rank != ranks.place().rank)
        throw std::runtime_error("the ranks of one machine do not see that they are");
    for (std::uint64_t i = 0; i < 40; ++i) move_blocks(ranks.control(), seed + i, 1 + mix(seed + i) % 50);
    for (const std::size_t bytes : {chunk - 1, chunk, chunk + 1, 2 * chunk, 5 * chunk + 17})
        move_blocks(ranks.bulk(), seed + bytes, bytes);
    for (std::uint64_t i = 0; i < 40; ++i)
        run_lane_program(ranks.bulk(), ranks.control(), lane_program(mix(seed + i)), seed + i);
    zero::probe_ranks(ranks.bulk(), ranks.control(), std::size_t{1} << 20);
}

void fails(MpiRanks& ranks, std::uint64_t /*seed*/) {
    gather(ranks.control(), 8);
    if (is_strange(ranks)) throw Error(ExitCode::storage, "the drive is gone");
    gather(ranks.bulk(), 5 * chunk);
}

struct Left {};  // past all that would tell a cause

void leaves(MpiRanks& ranks, std::uint64_t /*seed*/) {
    if (is_strange(ranks)) throw Left();
    gather(ranks.bulk(), 8);
}

void is_killed(MpiRanks& ranks, std::uint64_t /*seed*/) {
    gather(ranks.bulk(), 8);
    if (is_strange(ranks)) ::raise(SIGKILL);
    gather(ranks.bulk(), 8);
}

void is_silent(MpiRanks& ranks, std::uint64_t /*seed*/) {
    gather(ranks.bulk(), 8);
    if (is_strange(ranks)) ::raise(SIGSTOP);
    gather(ranks.bulk(), 8);
}

void calls_another(MpiRanks& ranks, std::uint64_t /*seed*/) {
    RankLane own(ranks.bulk(), ranks.control());
    const std::vector<std::byte> mine(8);
    std::vector<std::byte> all(ranks.place().ranks * mine.size());
    own.lane.wait(is_strange(ranks) ? own.lane.post_small("the norm", mine, all)
                                    : own.lane.post_gather(2, {mine, all}, zero::Inputs::there));
}

void gives_less(MpiRanks& ranks, std::uint64_t /*seed*/) {
    if (!is_strange(ranks)) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what is less has come
    gather(ranks.bulk(), is_strange(ranks) ? 64 : 128);
}

// Who waits sleeps.
void comes_late(MpiRanks& ranks, std::uint64_t /*seed*/) {
    gather(ranks.bulk(), 8);
    const std::clock_t before = std::clock();
    if (is_strange(ranks)) std::this_thread::sleep_for(std::chrono::seconds(1));
    gather(ranks.bulk(), 2 * chunk);
    const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
    if (seconds > 0.2)
        throw std::runtime_error("a rank that waited for 1 s took the processor for " + std::to_string(seconds));
}

using Deed = std::function<void(MpiRanks&, std::uint64_t seed)>;
const std::map<std::string, Deed> deeds = {{"moves", moves},
                                           {"fails", fails},
                                           {"leaves", leaves},
                                           {"is_killed", is_killed},
                                           {"is_silent", is_silent},
                                           {"is_stopped", is_silent},
                                           {"calls_another", calls_another},
                                           {"gives_less", gives_less},
                                           {"comes_late", comes_late},
                                           {"has_one_thread", moves},
                                           {"is_miscounted", moves}};

void run(MpiRanks& ranks, const Deed& deed, std::uint64_t seed) {
    try {
        deed(ranks, seed);
        ranks.finish();
    } catch (const std::exception& error) {
        ranks.control().abort(error.what());
        std::printf("%s: %s\n", ranks.is_told_here() ? "told" : "heard", error.what());
        throw;
    }
}

int main_of_rank(const std::string& deed, std::uint64_t seed) {
    auto launch = zero::mpi_launch([](const char* name) { return std::getenv(name); });
    if (!launch) {
        int begun = 0;
        MPI_Initialized(&begun);
        std::printf("alone, MPI %d\n", begun);
        return 0;
    }
    one_thread_at_a_time = deed == "has_one_thread";
    if (deed == "is_miscounted") ++launch->ranks;
    std::unique_ptr<MpiRanks> ranks;
    try {
        zero::BeatTimes beats;
        if (deed == "is_stopped") beats.deadline = std::chrono::seconds(2);
        ranks =
            zero::join_mpi(*launch, deed == "is_silent" ? std::chrono::seconds(2) : std::chrono::seconds(30), beats);
    } catch (const Error& error) {
        std::printf("refused: %s\n", error.what());
        return static_cast<int>(error.code());
    }
    try {
        run(*ranks, deeds.at(deed), seed);
    } catch (const Error& error) {
        return static_cast<int>(error.code());
    } catch (const std::exception&) {
        return static_cast<int>(ExitCode::internal);
    } catch (const Left&) {
        ranks.reset();
        std::this_thread::sleep_for(std::chrono::milliseconds(500));  // mpirun leaves the others as long
        return 3;
    }
    std::printf("rank %u is done\n", ranks->place().rank);
    return 0;
}

}  // namespace
}  // namespace penstock::testing

int main(int count, char** arguments) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return count == 3 ? penstock::testing::main_of_rank(arguments[1], std::stoull(arguments[2])) : 2;
}
