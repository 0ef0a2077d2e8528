#include "tests/swap/block_device/power_images.h"

#include "aio/words/check.h"
#include "tests/aio/fakes/repeatable_backend.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <stdexcept>

namespace penstock::testing {
namespace {

constexpr std::uint64_t last_generation = 11;
constexpr std::uint64_t ext4_bytes = 24U << 20;
constexpr std::uint64_t xfs_bytes = 320U << 20;  // the least that mkfs.xfs takes is 300 MiB; it is hardly touched
constexpr std::size_t depth = 16;
constexpr std::array tears{Tear::whole_writes, Tear::blocks_of_4096, Tear::sectors_of_512};

std::size_t piece_bytes(Tear tear, std::size_t write_bytes) {
    switch (tear) {
        case Tear::whole_writes:
            return write_bytes;
        case Tear::blocks_of_4096:
            return 4096;
        case Tear::sectors_of_512:
            return 512;
    }
    return write_bytes;
}

const char* describe(Tear tear) {
    switch (tear) {
        case Tear::whole_writes:
            return "some writes are";
        case Tear::blocks_of_4096:
            return "some blocks of 4096 are";
        case Tear::sectors_of_512:
            return "some sectors of 512 are";
    }
    return "?";
}

std::string made(const std::string& directory) {
    if (::mkdir(directory.c_str(), 0700) != 0) throw std::runtime_error(directory + " cannot be made");
    return directory;
}

std::unique_ptr<store::TensorStore> create(aio::Io& io, store::StoreDirectory& directory) {
    return store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
}

}  // namespace

PowerImages::PowerImages(const std::string& directory, FileSystem kind, std::string keep_directory)
    : mount_point_(made(directory + "/mount")),
      kind_(kind),
      keep_directory_(std::move(keep_directory)),
      disk_(directory + "/disk", kind == FileSystem::ext4 ? ext4_bytes : xfs_bytes),
      backend_(aio::make_thread_backend({.depth = depth, .threads_per_device = 2})) {}

std::vector<std::string> PowerImages::run(std::uint64_t seed, std::uint64_t images) {
    seed_ = seed;
    random_.seed(seed);
    const Recording recording = record(seed);
    take_back(recording.events);
    const std::vector<Epoch> epochs = epochs_of(recording);
    const auto with_writes = static_cast<std::uint64_t>(
        std::count_if(epochs.begin(), epochs.end(), [](const Epoch& epoch) { return epoch.end > epoch.begin; }));
    PENSTOCK_CHECK(with_writes > 0, "nothing reached the disk");
    const std::uint64_t subsets = (std::max(images, epochs.size() + with_writes) - epochs.size()) / with_writes;
    tally_.flushes += epochs.size() - 1;
    for (const Epoch& epoch : epochs) {
        if (auto wrong = cut(recording, epoch, std::nullopt); !wrong.empty()) return {wrong};
        for (std::uint64_t i = 0; i < subsets && epoch.end > epoch.begin; ++i) {
            const Tear tear = tears[tally_.in_between % tears.size()];
            if (auto wrong = cut(recording, epoch, tear); !wrong.empty()) return {wrong};
        }
        for (std::size_t i = epoch.begin; i < epoch.end; ++i)
            put(recording.events[i].offset_bytes, recording.events[i].after);
    }
    return {};
}

std::unique_ptr<aio::Io> PowerImages::make_io() {
    return std::make_unique<aio::Io>(std::make_unique<aio::RepeatableBackend>(*backend_, depth), aio::IoLimits{});
}

// ---------------------------------------------------------------- the life

PowerImages::Recording PowerImages::record(std::uint64_t seed) {
    Recording recording;
    make_file_system(kind_, disk_.image_path());
    {
        const MountedLoop loop(disk_.path(), kind_, mount_point_);
        disk_.clear_log();
        store::StoreDirectory directory(mount_point_ + "/store", "test");
        const Exercise exercise(seed);
        const auto io = make_io();
        const auto store = create(*io, directory);
        for (std::uint64_t generation = 0; generation <= last_generation; ++generation) {
            recording.begun.push_back(disk_.event_count());
            if (const auto error = exercise.advance(*io, *store, generation)) throw std::runtime_error(error->message);
            recording.reported.push_back(disk_.event_count());
        }
    }
    for (const DiskEvent& event : disk_.log()) {
        recording.events.push_back({.offset_bytes = event.offset_bytes,
                                    .before = {event.before.begin(), event.before.end()},
                                    .after = {event.after.begin(), event.after.end()}});
    }
    return recording;
}

std::vector<PowerImages::Epoch> PowerImages::epochs_of(const Recording& recording) {
    std::vector<Epoch> epochs(1);
    for (std::size_t i = 0; i < recording.events.size(); ++i) {
        epochs.back().end = i;
        if (recording.events[i].after.empty()) epochs.push_back({.begin = i + 1, .end = i + 1});
    }
    epochs.back().end = recording.events.size();
    return epochs;
}

PowerImages::Expected PowerImages::expected(const Recording& recording, std::size_t events) {
    Expected expected;
    for (std::uint64_t generation = 0; generation < recording.begun.size(); ++generation) {
        if (recording.reported[generation] <= events) expected.least = generation;
        if (recording.begun[generation] < events) expected.most = generation;
    }
    return expected;
}

// ---------------------------------------------------------------- the cut

// The disk holds all before the epoch. The power fails at its end and nothing of it is there, or, with a tear,
// somewhere within it and a random subset is there.
std::string PowerImages::cut(const Recording& recording, Epoch epoch, std::optional<Tear> tear) {
    if (tear) epoch.end = epoch.begin + 1 + random_() % (epoch.end - epoch.begin);
    const Undo undo = tear ? lose_some(recording, epoch, *tear) : Undo{};
    disk_.clear_log();
    ++tally_.images;
    ++(tear ? tally_.in_between : tally_.at_flushes);
    if (tear && tear != Tear::whole_writes) ++tally_.torn;
    std::string wrong;
    try {
        wrong = examine(expected(recording, epoch.end));
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    take_back_log();
    if (!wrong.empty()) {
        const std::string kept = keep_directory_.empty() ? "" : "; the image is kept in " + keep_image();
        wrong = fmt::format("{}, seed {}: the power fails after event {} of {}; of those from {} on {} left: {}{}",
                            to_string(kind_), seed_, epoch.end, recording.events.size(), epoch.begin,
                            tear ? describe(*tear) : "nothing is", wrong, kept);
    }
    take_back(undo);
    return wrong;
}

PowerImages::Undo PowerImages::lose_some(const Recording& recording, const Epoch& epoch, Tear tear) {
    Undo undo;
    for (std::size_t i = epoch.begin; i < epoch.end; ++i) {
        const std::span<const std::byte> bytes(recording.events[i].after);
        const std::size_t piece = piece_bytes(tear, bytes.size());
        for (std::size_t at = 0; at < bytes.size(); at += piece) {
            if (random_() % 2 == 0) continue;
            const auto part = bytes.subspan(at, std::min(piece, bytes.size() - at));
            const std::uint64_t offset = recording.events[i].offset_bytes + at;
            const auto old = disk_.image().subspan(offset, part.size());
            undo.push_back({.offset_bytes = offset, .before = {old.begin(), old.end()}, .after = {}});
            put(offset, part);
        }
    }
    return undo;
}

void PowerImages::put(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), disk_.image().begin() + static_cast<std::ptrdiff_t>(offset_bytes));
}

void PowerImages::take_back(const std::vector<Event>& events) {
    for (auto event = events.rbegin(); event != events.rend(); ++event) put(event->offset_bytes, event->before);
}

void PowerImages::take_back_log() {
    const std::vector<DiskEvent> log = disk_.log();
    for (auto event = log.rbegin(); event != log.rend(); ++event) put(event->offset_bytes, event->before);
    disk_.clear_log();
}

std::string PowerImages::keep_image() const {
    const std::string path = fmt::format("{}/penstock_power_cut_{}_{}.image", keep_directory_, seed_, tally_.images);
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(disk_.image().data()), static_cast<std::streamsize>(disk_.image().size()));
    return path;
}

// ---------------------------------------------------------------- what is found

std::string PowerImages::examine(const Expected& expected) {
    const MountedLoop loop(disk_.path(), kind_, mount_point_);
    store::StoreDirectory directory(mount_point_ + "/store", "test");
    return examine_store(directory, expected);
}

std::string PowerImages::examine_store(store::StoreDirectory& directory, const Expected& expected) {
    const bool goes_on = random_() % 4 == 0;
    if (directory.content() != store::DirectoryContent::committed) {
        if (expected.least) return fmt::format("generation {} was forgotten", *expected.least);
        ++tally_.without_store;
        if (!goes_on) return {};
        const auto io = make_io();
        if (const auto error = Exercise(seed_).advance(*io, *create(*io, directory), 0)) return error->message;
        return go_on(directory, 0);
    }
    std::uint64_t generation = 0;
    {
        const auto io = make_io();
        const auto store = store::TensorStore::open(*io, {&directory});
        PENSTOCK_CHECK(store->generation(), "an open store without a generation");
        generation = *store->generation();
        if (generation < expected.least.value_or(0) || !expected.most || generation > *expected.most) {
            return fmt::format("generation {} instead of {} to {}", generation,
                               expected.least ? std::to_string(*expected.least) : "none",
                               expected.most ? std::to_string(*expected.most) : "none");
        }
        if (!expected.least || generation > *expected.least) ++tally_.newer_than_told;
        if (auto wrong = Exercise(seed_).difference(*io, *store, generation); !wrong.empty()) return wrong;
    }
    return goes_on ? go_on(directory, generation) : std::string();
}

// The store that was recovered is one to work with.
std::string PowerImages::go_on(store::StoreDirectory& directory, std::uint64_t generation) {
    const Exercise exercise(seed_);
    ++tally_.went_on;
    const auto io = make_io();
    if (const auto error = exercise.advance(*io, *store::TensorStore::open(*io, {&directory}), generation + 1))
        return error->message;
    const auto store = store::TensorStore::open(*io, {&directory});
    if (store->generation() != generation + 1) return "a generation was lost without a cut";
    return exercise.difference(*io, *store, generation + 1);
}

std::string to_string(const PowerTally& tally) {
    return fmt::format(
        "{} images ({} at flushes, {} in between, {} of them torn), {} before the first generation, {} with a "
        "generation that was not reported yet, {} gone on from, {} flushes recorded",
        tally.images, tally.at_flushes, tally.in_between, tally.torn, tally.without_store, tally.newer_than_told,
        tally.went_on, tally.flushes);
}

}  // namespace penstock::testing
