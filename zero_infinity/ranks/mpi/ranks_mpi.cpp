// The half for programs with Open MPI.
#include "aio/words/check.h"
#include "zero_infinity/ranks/mpi/beats_mpi.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"
#include "zero_infinity/ranks/mpi/transport_mpi.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <thread>

namespace penstock::zero {
namespace {

// Small enough for the cache and large enough for the wire; of many ranks smaller ones, so that the area stays below
// 32 MiB. What is small goes in one.
constexpr std::size_t largest_chunk = std::size_t{256} << 10, smallest_chunk = std::size_t{4} << 10;
constexpr std::size_t most_of_ranks = std::size_t{8} << 20;

std::size_t bulk_chunk(std::uint32_t ranks) {
    return std::clamp(most_of_ranks / ranks, smallest_chunk, largest_chunk);
}

// "Open MPI v4.1.4"
std::string library_name() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string_view whole = text.data();
    return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

[[noreturn]] void refuse(const std::string& words) {
    MPI_Finalize();
    throw Error(ExitCode::usage, words);
}

void begin_mpi(const MpiLaunch& launch) {
    int before = 0, threads = MPI_THREAD_SINGLE, count = 0;
    MPI_Initialized(&before);
    PENSTOCK_CHECK(before == 0, "MPI is initialised once a process");
    if (!launch.told_mpi)  // MPI_Init would end the process, in words of its own
        throw Error(
            ExitCode::usage,
            fmt::format("{} is {}, and srun has told these processes nothing by which MPI finds the others: start "
                        "them by srun --mpi=pmix, or by Open MPI's own mpirun",
                        launch.told_by, launch.ranks));
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads);
    if (threads < MPI_THREAD_MULTIPLE)
        refuse(
            fmt::format("{} gives its calls to one thread at a time (level {}), and two threads of a rank call it at "
                        "once: take an Open MPI with MPI_THREAD_MULTIPLE (`ompi_info | grep THREAD_MULTIPLE`)",
                        library_name(), threads));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (launch.ranks > 0 && launch.ranks != static_cast<std::uint32_t>(count))
        refuse(
            fmt::format("{} is {}, and {} sees {}: the launcher is not this library's. Start by Open MPI's own mpirun, "
                        "or by srun --mpi=pmix",
                        launch.told_by, launch.ranks, library_name(), count));
}

RankPlace place_now() {
    int rank = 0, ranks = 1, local_rank = 0, local_ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &local_rank);
    MPI_Comm_size(machine, &local_ranks);
    MPI_Comm_free(&machine);
    const auto count = [](int number) { return static_cast<std::uint32_t>(number); };
    return {count(rank), count(ranks), count(local_rank), count(local_ranks)};
}

MPI_Comm another_world() {
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    return made;
}

class JoinedRanks final : public MpiRanks {
   public:
    JoinedRanks(const MpiLaunch& launch, std::chrono::milliseconds deadline, const BeatTimes& beats) {
        begin_mpi(launch);
        place_ = place_now();
        for (MPI_Comm& each : worlds_) each = another_world();
        words_ = std::make_unique<LastWords>(worlds_[0]);
        const std::string name = library_name();
        bulk_ = std::make_unique<TransportMpi>(
            worlds_[1], TransportMpi::Options{name, bulk_chunk(place_.ranks), deadline}, *words_);
        control_ =
            std::make_unique<TransportMpi>(worlds_[2], TransportMpi::Options{name, smallest_chunk, deadline}, *words_);
        beats_ = std::make_unique<BeatsMpi>(worlds_[3], beats, *words_);
    }

    ~JoinedRanks() override {
        if (finished_) return;
        beats_.reset();
        words_->listen();
        words_->say("closed before its end");
        words_->see_off(std::chrono::seconds(1));
        if (is_told_elsewhere_ || words_->other()) std::this_thread::sleep_for(std::chrono::seconds(3));
        static_cast<void>(words_.release());  // MPI goes on with it until the process ends
    }

    const RankPlace& place() const noexcept override { return place_; }
    Transport& bulk() noexcept override { return *bulk_; }
    Transport& control() noexcept override { return *control_; }
    std::optional<std::uint32_t> ended_by() const override { return words_->other(); }

    bool is_told_here() override {
        PENSTOCK_CHECK(words_->said(), "no cause was said");
        is_told_elsewhere_ = words_->other() || words_->is_said_before(std::chrono::milliseconds(500));
        return !is_told_elsewhere_;
    }

    void finish() override {
        PENSTOCK_CHECK(!finished_, "the ranks are finished once");
        MPI_Request all_here = MPI_REQUEST_NULL;
        MPI_Ibarrier(worlds_[2], &all_here);
        for (int here = 0; here == 0; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
            if (words_->listen()) throw words_->error();
            MPI_Test(&all_here, &here, MPI_STATUS_IGNORE);
        }
        beats_->finish();
        words_->close();
        for (MPI_Comm& each : worlds_) MPI_Comm_free(&each);
        MPI_Finalize();
        finished_ = true;
    }

   private:
    RankPlace place_;
    std::array<MPI_Comm, 4> worlds_{};
    std::unique_ptr<LastWords> words_;
    std::unique_ptr<TransportMpi> bulk_, control_;
    std::unique_ptr<BeatsMpi> beats_;
    bool is_told_elsewhere_ = false;
    bool finished_ = false;
};

}  // namespace

std::unique_ptr<MpiRanks> join_mpi(const MpiLaunch& launch, std::chrono::milliseconds deadline,
                                   const BeatTimes& beats) {
    return std::make_unique<JoinedRanks>(launch, deadline, beats);
}

}  // namespace penstock::zero
