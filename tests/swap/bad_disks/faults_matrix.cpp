#include "tests/swap/bad_disks/faults_matrix.h"

#include "tests/swap/bad_disks/faults_run.h"

namespace penstock::testing {
namespace {

constexpr std::size_t depth = 16;

using Kind = BadDisk::Kind;

BadDisk blow(const char* name, Blow blow, Target target, int percent) {
    return {.name = name, .blow = blow, .target = target, .percent = percent};
}
// What lands elsewhere lands on a tile, and where its own manifest is in doubt for it the store is refused.
BadDisk misdirected(const char* name, Target target, int percent) {
    BadDisk disk = blow(name, Blow::misdirected, target, percent);
    disk.may_refuse_to_open = true;
    return disk;
}
BadDisk chances(const char* name, aio::FaultChances chances) {
    return {.name = name, .chances = chances};
}
BadDisk creation(const char* name, Blow blow) {
    return {.name = name, .kind = Kind::creation, .blow = blow, .percent = 30};
}
// A harm, and for some of the commits after it that their manifest is torn: a store that was opened in spite of the
// harm must not lose its generation then.
BadDisk harmed(const char* name, Harm harm) {
    return {.name = name,
            .kind = Kind::files,
            .blow = Blow::torn,
            .target = Target::manifest_writes,
            .percent = 100,
            .harm = harm};
}
BadDisk tiles(const char* name, Harm harm) {  // only what is read can be wrong with these
    return harmed(name, harm);
}
BadDisk files(const char* name, Harm harm, GoingBack going_back = GoingBack::never) {
    BadDisk disk = harmed(name, harm);
    disk.may_refuse_to_open = true;
    disk.going_back = going_back;
    return disk;
}

}  // namespace

const std::vector<BadDisk>& bad_disks() {
    static const std::vector<BadDisk> all = {
        blow("none", Blow::none, Target::all, 0),
        blow("read_error", Blow::io_error, Target::reads, 10),
        blow("write_error", Blow::io_error, Target::writes, 10),
        blow("write_torn", Blow::torn, Target::writes, 10),
        blow("write_no_space", Blow::no_space, Target::writes, 10),
        blow("no_bytes", Blow::no_bytes, Target::all, 5),
        blow("flush_error", Blow::io_error, Target::flushes, 60),
        blow("flush_no_space", Blow::no_space, Target::flushes, 60),
        blow("manifest_error", Blow::io_error, Target::manifest_writes, 60),
        blow("manifest_torn", Blow::torn, Target::manifest_writes, 60),
        blow("manifest_no_space", Blow::no_space, Target::manifest_writes, 60),
        blow("manifest_lost", Blow::lost, Target::manifest_writes, 70),
        blow("manifest_flipped", Blow::flipped, Target::manifest_writes, 70),
        misdirected("manifest_misdirected", Target::manifest_writes, 70),
        blow("slow", Blow::slow, Target::all, 30),
        blow("stuck", Blow::stuck, Target::all, 3),
        chances("short_transfers", {.short_transfer = 30}),
        chances("passing", {.again = 3, .again_burst = 2, .interrupted = 5, .delay = 20}),
        chances("wrong_reads", {.wrong_read = 15}),
        creation("creation_error", Blow::io_error),
        creation("creation_no_space", Blow::no_space),
        creation("creation_slow", Blow::slow),
        tiles("bit_rot", flip_bits_of_tiles),
        tiles("sectors_lost", lose_sectors),
        tiles("stale_tiles", put_back_tiles),
        tiles("tiles_of_another_life", put_tiles_of_other_life),
        tiles("tiles_misplaced", misplace_tiles),
        tiles("data_of_an_older_generation", put_back_data),
        tiles("data_of_another_store", put_data_of_other_store),
        files("data_cut", cut_data, GoingBack::rarely_noted),
        files("data_missing", remove_data),
        files("manifest_rot", flip_bits_of_manifests, GoingBack::noted),
        files("manifest_stale", put_back_manifest, GoingBack::unnoticed),
        files("manifests_swapped", swap_manifests, GoingBack::never),
        files("manifest_of_another_store", put_manifests_of_other_store, GoingBack::noted),
        files("manifest_missing", remove_manifests, GoingBack::never),
        files("manifest_cut", cut_manifest, GoingBack::noted),
        files("manifest_shortened", shorten_manifest, GoingBack::never),
        files("all_of_an_older_generation", put_back_all, GoingBack::unnoticed),
        {.name = "removed_under_way", .kind = Kind::removal, .may_refuse_to_open = true},
    };
    return all;
}

FaultTally& FaultTally::operator+=(const FaultTally& other) {
    runs += other.runs;
    faults += other.faults;
    right += other.right;
    refused += other.refused;
    committed += other.committed;
    commits_refused += other.commits_refused;
    opened += other.opened;
    opens_refused += other.opens_refused;
    went_back += other.went_back;
    stuck += other.stuck;
    return *this;
}

FaultsMatrix::FaultsMatrix(const BadDisk& disk)
    : disk_(disk), backend_(aio::make_thread_backend({.depth = depth, .threads_per_device = 2})) {}

std::vector<std::string> FaultsMatrix::run(std::uint64_t seed) {
    ++tally_.runs;
    return FaultsRun(disk_, *backend_, seed, tally_)();
}

}  // namespace penstock::testing
