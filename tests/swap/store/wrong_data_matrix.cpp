#include "tests/swap/store/wrong_data_matrix.h"

#include "aio/words/check.h"
#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/fault_matrix.h"
#include "tests/aio/fakes/repeatable_backend.h"
#include "tests/swap/hashing/hashers_at_once.h"
#include "tests/swap/store/exercise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace penstock::testing {
namespace {

constexpr std::size_t depth = 16;
constexpr int most_rounds = 20'000;

// One life of a store on a device that lies about tiles.
class Run {
   public:
    Run(const Lie& lie, aio::Backend& backend, std::uint64_t seed)
        : lie_(lie),
          random_(seed),
          exercise_(seed),
          caching_(random_() % 2 == 0 ? aio::Caching::direct : aio::Caching::buffered),
          device_(*new aio::FaultyBackend(std::make_unique<aio::RepeatableBackend>(backend, 1 + random_() % depth), {},
                                          alignment_of(scratch_, caching_), seed)),
          io_(std::unique_ptr<aio::Backend>(&device_), aio::draw_limits(random_)) {}

    std::vector<std::string> operator()(WrongDataMatrix::Tally& tally);

   private:
    struct Reading {
        Reading(store::TileId id, std::uint64_t bytes) : tile(id), memory(bytes) {}
        store::TileId tile;
        aio::ScratchMemory memory;
        TestTile operation;
    };

    template <typename... Values>
    void complain(fmt::format_string<Values...> format, Values&&... values) {
        complaints_.push_back(fmt::format(format, std::forward<Values>(values)...));
    }
    void drain();
    void write(std::uint64_t generation, bool all);
    void commit_soundly();
    void reopen();
    void check(WrongDataMatrix::Tally& tally);
    void examine(const Reading& reading, WrongDataMatrix::Tally& tally);
    bool holds(store::TileId tile, std::span<const std::byte> found) const;
    bool sound_on_disk(store::TileId tile) const;

    const Lie& lie_;
    std::mt19937_64 random_;
    Exercise exercise_;
    aio::Caching caching_;
    TemporaryDirectory scratch_{aio::quick_temporary_path()};
    aio::FaultyBackend& device_;  // the Io's
    aio::Io io_;
    HashersAtOnce hashers_{io_};
    store::TileHashers* used_ = random_() % 2 == 0 ? &hashers_ : nullptr;
    store::StoreDirectory directory_{scratch_.file("store"), "test"};
    std::unique_ptr<store::TensorStore> store_;
    std::vector<std::uint64_t> written_;  // by tile: the generation whose bytes it must hold
    std::vector<std::string> complaints_;
};

std::vector<std::string> Run::operator()(WrongDataMatrix::Tally& tally) {
    store_ = store::TensorStore::create(io_, {&directory_},
                                        {.objects = Exercise::objects(), .caching = caching_, .hashers = used_});
    written_.resize(store_->layout().tile_count());
    write(0, true);
    commit_soundly();
    for (std::uint64_t generation = 1; generation <= 3; ++generation) {
        device_.set_chances(lie_.writing);
        write(generation, false);
        device_.set_chances({});
        if (random_() % 2 == 0) check(tally);  // before the commit as well
        commit_soundly();
        if (random_() % 2 == 0) reopen();
        check(tally);
    }
    for (const std::string& note : notes_of(*store_))  // others are of manifests
        tally.read_again += note.find("when it was read again") != std::string::npos ? 1 : 0;
    tally.struck += device_.counts();
    return std::move(complaints_);
}

void Run::drain() {
    int rounds = 0;
    while (!io_.idle()) {
        PENSTOCK_CHECK(++rounds < most_rounds, "the store does not come to an end");
        io_.wait(std::chrono::milliseconds(1));
    }
}

// All at once. Each is reported as written: the device lies.
void Run::write(std::uint64_t generation, bool all) {
    std::deque<TestTile> operations;
    std::deque<aio::ScratchMemory> memories;
    for (std::uint32_t index = 0; index < written_.size(); ++index) {
        if (!all && random_() % 3 == 0) continue;
        const store::TileId tile = store_->layout().tile(index);
        aio::ScratchMemory& memory = memories.emplace_back(store_->extent_bytes(tile));
        exercise_.fill(memory.span(), tile, generation);
        store_->write(operations.emplace_back(), tile, memory.span(), aio::Urgency::write_back);
        written_[index] = generation;
    }
    drain();
    for (const TestTile& operation : operations) {
        if (operation.error()) complain("a write was refused: {}", operation.error()->message);
    }
}

void Run::commit_soundly() {
    TestCommit operation;
    store_->commit(operation, {});
    drain();
    if (operation.error()) complain("a commit failed: {}", operation.error()->message);
}

void Run::reopen() {
    store_.reset();
    store_ = store::TensorStore::open(io_, {&directory_}, {.caching = caching_, .hashers = used_});
}

void Run::check(WrongDataMatrix::Tally& tally) {
    std::deque<Reading> readings;
    device_.set_chances(lie_.reading);
    for (std::uint32_t index = 0; index < written_.size(); ++index) {
        const store::TileId tile = store_->layout().tile(index);
        Reading& reading = readings.emplace_back(tile, store_->extent_bytes(tile));
        store_->read(reading.operation, tile, reading.memory.span(), aio::Urgency::demand);
    }
    drain();
    device_.set_chances({});
    for (const Reading& reading : readings) examine(reading, tally);
}

void Run::examine(const Reading& reading, WrongDataMatrix::Tally& tally) {
    const store::TileLocation place = store_->location(reading.tile);
    const std::string name = fmt::format("object {} tile {}", reading.tile.object, reading.tile.tile);
    const bool sound = sound_on_disk(reading.tile);
    const auto& error = reading.operation.error();
    ++tally.reads;
    if (!error) {
        if (!holds(reading.tile, reading.memory.span())) complain("{} was read wrong, without an error", name);
        return;
    }
    ++tally.damaged;
    if (sound && lie_.reading.wrong_read == 0) complain("{} is whole and was refused: {}", name, error->message);
    const bool named = error->message.find(place.path) != std::string::npos &&
                       error->message.find(fmt::format("offset {} ", place.offset_bytes)) != std::string::npos;
    if (error->kind != store::StoreError::Kind::damaged || !named) {
        complain("{} is not called damaged, by file and offset: {}", name, error->message);
    }
}

bool Run::holds(store::TileId tile, std::span<const std::byte> found) const {
    aio::ScratchMemory right(found.size());
    exercise_.fill(right.span(), tile, written_[store_->layout().tile_index(tile)]);
    std::fill(right.data() + store_->layout().tile_bytes(tile), right.data() + found.size(), std::byte{0});
    return std::equal(found.begin(), found.end(), right.data());
}

bool Run::sound_on_disk(store::TileId tile) const {
    const store::TileLocation place = store_->location(tile);
    aio::ScratchMemory found(store_->extent_bytes(tile));
    const int fd = ::open(place.path.c_str(), O_RDONLY | O_CLOEXEC);
    const ssize_t count = ::pread(fd, found.data(), found.span().size(), static_cast<off_t>(place.offset_bytes));
    ::close(fd);
    PENSTOCK_CHECK(count == static_cast<ssize_t>(found.span().size()), "{}: pread gives {}", place.path, count);
    return holds(tile, found.span());
}

}  // namespace

std::uint32_t alignment_of(const TemporaryDirectory& scratch, aio::Caching caching) {
    const std::string path = scratch.file("probe");
    return aio::File(AT_FDCWD, path, path, {.mode = aio::FileMode::create, .caching = caching})
        .alignment()
        .offset_bytes;
}

const std::vector<Lie>& lies() {
    static const std::vector<Lie> all = {
        {"none", {}, {}},
        {"wrong_read", {}, {.wrong_read = 20}},
        {"wrong_write", {.wrong_write = 10}, {}},
        {"misdirected", {.misdirected = 10}, {}},
        {"lost", {.lost = 10}, {}},
        {"all", {.wrong_write = 4, .misdirected = 4, .lost = 4}, {.delay = 20, .wrong_read = 10}},
    };
    return all;
}

WrongDataMatrix::WrongDataMatrix(const Lie& lie)
    : lie_(lie), backend_(aio::make_thread_backend({.depth = depth, .threads_per_device = 2})) {}

std::vector<std::string> WrongDataMatrix::run(std::uint64_t seed) {
    return Run(lie_, *backend_, seed)(tally_);
}

}  // namespace penstock::testing
