// The matrix of bad disks on the product. A failure prints the command that replays the one run.
#include "tests/swap/bad_disks/faults_matrix.h"

#include "tests/seeds.h"
#include "tests/swap/store/wrong_data_matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

namespace penstock::testing {
namespace {

constexpr std::uint64_t usual_runs = 4;  // of each bad disk

class Ledger {
   public:
    void add(const std::string& name, const FaultTally& tally) {
        sum_ += tally;
        ++kinds_;
        if (kinds_ == 1) {
            std::cout << fmt::format("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6} {:>6}\n", "bad disk",
                                     "runs", "faults", "right", "refused", "commits", "refused", "opened", "refused",
                                     "older", "stuck");
        }
        std::cout << fmt::format("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>6} {:>6}\n", name,
                                 tally.runs, tally.faults, tally.right, tally.refused, tally.committed,
                                 tally.commits_refused, tally.opened, tally.opens_refused, tally.went_back,
                                 tally.stuck);
    }
    void print_result(double seconds) const {
        std::cout << fmt::format(
            "RESULT bad disks: {} faults of {} kinds in {} runs: {} tiles read right, {} refused by name; {} commits, "
            "{} "
            "refused by name; {} opens, {} refused by name; none silent, none hung; seconds: {:.1f}\n",
            sum_.faults, kinds_, sum_.runs, sum_.right, sum_.refused, sum_.committed, sum_.commits_refused, sum_.opened,
            sum_.opens_refused, seconds);
    }

   private:
    FaultTally sum_;
    int kinds_ = 0;
};

// What came of the bad disk is what must come of it, or the runs have shown nothing.
void expect_struck(const BadDisk& disk, const FaultTally& tally) {
    SCOPED_TRACE(disk.name);
    EXPECT_EQ(tally.faults > 0, std::string(disk.name) != "none");
    EXPECT_GT(tally.opened, 0U);
    EXPECT_EQ(tally.stuck > 0, disk.blow == Blow::stuck);
    if (disk.going_back != GoingBack::rarely_noted) {
        EXPECT_EQ(tally.went_back > 0, disk.going_back != GoingBack::never);
    }
}

FaultTally tally_of(const WrongDataMatrix::Tally& lies, std::uint64_t runs) {
    const aio::FaultCounts& struck = lies.struck;
    return {.runs = runs,
            .faults = struck.wrong_reads + struck.wrong_writes + struck.misdirected + struck.lost,
            .right = lies.reads - lies.damaged,
            .refused = lies.damaged};
}

TEST(BadDisks, EndInRightDataOrAnErrorThatNamesThePlace) {
    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(usual_runs);
    const auto start = std::chrono::steady_clock::now();
    std::cout << replay(first) << " --runs=" << count << '\n';
    Ledger ledger;
    const auto run_all = [&](auto& matrix) {
        for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
            for (const std::string& complaint : matrix.run(seed)) ADD_FAILURE() << complaint << '\n' << replay(seed);
        }
    };
    for (const BadDisk& disk : bad_disks()) {
        FaultsMatrix matrix(disk);
        run_all(matrix);
        ledger.add(disk.name, matrix.tally());
        if (count >= usual_runs && !HasFailure()) expect_struck(disk, matrix.tally());
    }
    for (const Lie& lie : lies()) {
        if (std::string(lie.name) == "none") continue;
        WrongDataMatrix matrix(lie);
        run_all(matrix);
        ledger.add(fmt::format("lies: {}", lie.name), tally_of(matrix.tally(), count));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!HasFailure()) ledger.print_result(seconds.count());
}

}  // namespace
}  // namespace penstock::testing
