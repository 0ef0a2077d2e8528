#include "tests/swap/bad_disks/faults_run.h"

#include "aio/words/check.h"
#include "swap/directory/recovery.h"
#include "tests/aio/fakes/fault_matrix.h"
#include "tests/aio/fakes/repeatable_backend.h"
#include "tests/swap/store/wrong_data_matrix.h"

#include <algorithm>
#include <filesystem>

namespace penstock::testing {
namespace {

constexpr std::size_t depth = 16;
constexpr std::uint32_t least_alignment_bytes = 512;  // a file with contents may ask for less than the empty probe
constexpr int rounds = 8;
constexpr std::uint64_t first_generations = 3;  // 0, 1 and 2
constexpr std::uint64_t harmed_generation = 3;

std::vector<std::string> directory_paths(const TemporaryDirectory& scratch, std::uint64_t count) {
    std::vector<std::string> paths;
    for (std::uint64_t i = 0; i < count; ++i) paths.push_back(scratch.file(fmt::format("store{}", i)));
    return paths;
}

}  // namespace

FaultsRun::FaultsRun(const BadDisk& disk, aio::Backend& backend, std::uint64_t seed, FaultTally& tally)
    : disk_(disk),
      tally_(tally),
      seed_(seed),
      random_(seed),
      exercise_(seed),
      scratch_(aio::quick_temporary_path()),
      striker_(disk, directory_paths(scratch_, 1 + seed % 2), seed),
      faulty_(*new aio::FaultyBackend(std::make_unique<aio::RepeatableBackend>(backend, 1 + random_() % depth), {},
                                      std::min(alignment_of(scratch_, aio::Caching::direct), least_alignment_bytes),
                                      seed)),
      device_(*new StruckBackend(std::unique_ptr<aio::Backend>(&faulty_))),
      io_(std::unique_ptr<aio::Backend>(&device_), aio::draw_limits(random_)) {
    for (const std::string& path : directory_paths(scratch_, 1 + seed % 2)) {
        owned_.push_back(std::make_unique<store::StoreDirectory>(path, "test"));
        directories_.push_back(owned_.back().get());
    }
}

FaultsRun::~FaultsRun() = default;

std::vector<std::string> FaultsRun::operator()() {
    switch (disk_.kind) {
        case BadDisk::Kind::attempts:
            run_attempts();
            break;
        case BadDisk::Kind::creation:
            run_creation();
            break;
        case BadDisk::Kind::files:
            run_files();
            break;
        case BadDisk::Kind::removal:
            run_removal();
            break;
    }
    const aio::FaultCounts& counts = faulty_.counts();
    tally_.faults += striker_.faults() + counts.short_transfers + counts.passing + counts.delayed + counts.wrong_reads;
    for (std::string& complaint : complaints_) complaint = fmt::format("{}: {}", disk_.name, complaint);
    return std::move(complaints_);
}

// ---------------------------------------------------------------- while the store works

void FaultsRun::run_attempts() {
    create();
    write(Tiles::all);
    commit();
    for (int round = 0; round < rounds && store_ && complaints_.empty(); ++round) {
        arm();
        bool whole = write(Tiles::some);
        if (!whole) {
            disarm();
            if (commit()) complain("a generation with a tile that was not written was committed");
            if (random_() % 2 == 0) {
                reopen();
                continue;
            }
            whole = write(Tiles::failed);
            arm();
        }
        const bool committed = whole && commit();
        check_tiles();
        disarm();
        if (!committed) {
            open_after_failure();
        } else if (random_() % 2 == 0) {
            reopen();
        }
        const std::uint64_t refused = tally_.refused;
        check_tiles();
        if (tally_.refused != refused && disk_.blow != Blow::misdirected)
            complain("a tile was lost by a disk that only reported errors");
    }
}

// The store is poisoned. What the failed commit had reached may be found.
void FaultsRun::open_after_failure() {
    if (commit()) complain("a commit after a failed one succeeded");
    close();
    const std::uint64_t before = generation();
    history_.push_back(pending_);
    open(before, before + 1);
}

void FaultsRun::run_creation() {
    arm();
    for (int tries = 0; tries < rounds && !create(); ++tries) {
        if (directories_.front()->content() == store::DirectoryContent::committed)
            complain("half a store counts as one");
    }
    disarm();
    close();
    if (!create()) return complain("no store could be made after a failed creation");
    write(Tiles::all);
    commit();
    reopen();
    check_tiles();
}

// ---------------------------------------------------------------- while it does not

void FaultsRun::run_files() {
    create();
    std::vector<StoreImage> older;
    for (std::uint64_t generation = 0; generation < first_generations; ++generation) {
        write(generation == 0 ? Tiles::all : Tiles::some);
        commit();
        older.push_back(StoreImage::take(paths()));
    }
    write(Tiles::all);  // in a life that ends before its commit
    const StoreImage other_life = StoreImage::take(paths());
    reopen();
    write(Tiles::some);
    commit();
    std::vector<TilePlace> tiles;
    for (std::uint32_t index = 0; index < pending_.size(); ++index) {
        const store::TileId tile = store_->layout().tile(index);
        tiles.push_back({.device = store_->layout().extent(tile, 0).device,
                         .offset_bytes = store_->location(tile).offset_bytes,
                         .bytes = store_->extent_bytes(tile)});
    }
    close();
    const StoreImage other = other_store();
    const StoreImage now = StoreImage::take(paths());
    StoreImage harmed = now;
    Scene scene{.now = harmed,
                .generation = harmed_generation,
                .older = older,
                .other_life = other_life,
                .other_store = other,
                .tiles = tiles,
                .random = random_};
    for (int round = 0; round < rounds && complaints_.empty(); ++round) live_through_harm(now, scene);
    if (!complaints_.empty()) return;
    if (open(harmed_generation, harmed_generation)) check_tiles();
}

// What can be read is right, a generation that is committed then is whole, and when that is over all is as before.
void FaultsRun::live_through_harm(const StoreImage& now, Scene& scene) {
    scene.now = now;
    tally_.faults += disk_.harm(scene);
    scene.now.put_back();
    const std::vector<Versions> history = history_;
    if (open(harmed_generation, harmed_generation, disk_.going_back)) {
        check_tiles();
        if (random_() % 2 == 0) interrupt_a_commit();
        write(Tiles::all);
        commit();
        reopen();
        const std::uint64_t refused = tally_.refused;
        check_tiles();
        if (tally_.refused != refused) complain("a tile that was written after the fault was refused");
    }
    close();
    history_ = history;
    pending_ = history_.back();
    now.put_back();
}

void FaultsRun::interrupt_a_commit() {
    write(Tiles::some);
    arm();
    if (commit()) complain("a commit with a torn manifest succeeded");
    disarm();
    open_after_failure();
    check_tiles();
}

StoreImage FaultsRun::other_store() {
    if (disk_.harm != put_data_of_other_store && disk_.harm != put_manifests_of_other_store) return {};
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    std::vector<std::unique_ptr<store::StoreDirectory>> owned;
    std::vector<store::StoreDirectory*> directories;
    for (const std::string& path : directory_paths(scratch, directories_.size())) {
        owned.push_back(std::make_unique<store::StoreDirectory>(path, "test"));
        directories.push_back(owned.back().get());
    }
    const auto store = store::TensorStore::create(io_, directories, {.objects = Exercise::objects()});
    for (std::uint64_t generation = 0; generation <= harmed_generation; ++generation) {
        const auto error = exercise_.advance(io_, *store, generation);
        PENSTOCK_CHECK(!error, "{}", error->message);
    }
    return StoreImage::take(directory_paths(scratch, directories_.size()));
}

void FaultsRun::run_removal() {
    create();
    write(Tiles::all);
    commit();
    write(Tiles::some);
    const std::vector<std::string> places = paths();
    std::vector<std::string> files = {places.front() + "/" + store::manifest_file_names[0],
                                      places.front() + "/" + store::manifest_file_names[1]};
    for (const std::string& place : places) files.push_back(place + "/" + store::data_file_name);
    if (random_() % 2 == 0) {
        for (const std::string& place : places) tally_.faults += std::filesystem::remove_all(place);
    } else {
        std::filesystem::remove(files[random_() % files.size()]);
        ++tally_.faults;
    }
    if (commit()) complain("a generation without a file was committed");
    if (commit()) complain("a commit after a failed one succeeded");
    const std::uint64_t before = tally_.refused;
    check_tiles();
    if (tally_.refused != before) complain("a tile in a file that is still open was refused");
    close();
    if (open(0, 0)) complain("a store without its files was opened");
    close();
}

}  // namespace penstock::testing
