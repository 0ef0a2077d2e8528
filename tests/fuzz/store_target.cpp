// A whole hostile store: opened, read tile by tile, written, committed and opened again. Whatever its files say,
// nothing outside of its directories is touched, what is read is what lies in its files, and a commit that was reported
// is found.
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/store/blocking.h"
#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/fuzz/inline_backend.h"
#include "tests/fuzz/manifest_forge.h"
#include "tests/fuzz/store_image.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

namespace penstock::fuzz {
namespace {

constexpr std::uint32_t most_tiles = 32;
constexpr std::uint64_t most_tile_bytes = 1U << 20;

using Directories = std::vector<store::StoreDirectory*>;

// The one place that opens and makes stores here.
std::unique_ptr<store::TensorStore> open_store(aio::Io& io, const Directories& directories, aio::Caching caching) {
    return store::TensorStore::open(io, directories, {.caching = caching});
}

std::unique_ptr<store::TensorStore> create_store(aio::Io& io, const Directories& directories,
                                                 std::vector<store::ObjectSpec> objects) {
    return store::TensorStore::create(io, directories, {.objects = std::move(objects)});
}

// What lies in a folder that must stay as it is: names, lengths and the first bytes.
std::map<std::string, std::pair<std::uint64_t, Bytes>> snapshot(const std::string& folder) {
    std::map<std::string, std::pair<std::uint64_t, Bytes>> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::uint64_t length = entry.file_size();
        Bytes bytes(std::min<std::uint64_t>(length, most_tile_bytes));
        const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        PENSTOCK_CHECK(::pread(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "{}",
                       entry.path().string());
        ::close(fd);
        found[entry.path().filename().string()] = {length, std::move(bytes)};
    }
    return found;
}

std::vector<store::TileId> tiles_to_try(const store::TensorStore& store) {
    std::vector<store::TileId> tiles;
    for (std::uint32_t i = 0; i < std::min(store.layout().tile_count(), most_tiles); ++i) {
        if (store.extent_bytes(store.layout().tile(i)) <= most_tile_bytes) tiles.push_back(store.layout().tile(i));
    }
    return tiles;
}

bool lies_there(const store::TileLocation& place, std::span<const std::byte> bytes) {
    Bytes there(bytes.size());
    const int fd = ::open(place.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const ssize_t got = ::pread(fd, there.data(), there.size(), static_cast<off_t>(place.offset_bytes));
    ::close(fd);
    return got == static_cast<ssize_t>(bytes.size()) && std::equal(there.begin(), there.end(), bytes.begin());
}

// Memory as the store wants it.
class TileMemory {
   public:
    explicit TileMemory(const store::TensorStore& store)
        : alignment_(store.granule_bytes()), all_(most_tile_bytes + alignment_) {}
    std::span<std::byte> of(std::uint64_t bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(all_.data());
        return std::span(all_).subspan((alignment_ - address % alignment_) % alignment_, bytes);
    }

   private:
    std::uint64_t alignment_;
    Bytes all_;
};

// Returns the tiles that could be read, with their bytes.
std::map<std::uint32_t, Bytes> read_tiles(aio::Io& io, store::TensorStore& store, TileMemory& memory) {
    std::map<std::uint32_t, Bytes> read;
    for (const store::TileId tile : tiles_to_try(store)) {
        if (!store.written(tile)) continue;
        const std::span<std::byte> bytes = memory.of(store.extent_bytes(tile));
        try {
            read_blocking(io, store, tile, bytes);
        } catch (const Error& error) {
            PENSTOCK_CHECK(error.code() == ExitCode::storage, "{}", error.what());
            continue;
        }
        PENSTOCK_CHECK(lies_there(store.location(tile), bytes), "tile {} is not in {}", tile.tile,
                       store.location(tile).path);
        read[store.layout().tile_index(tile)] = {bytes.begin(), bytes.end()};
    }
    return read;
}

// Rewrites the first tile that is small enough and commits. Returns its index and its bytes.
std::pair<std::uint32_t, Bytes> go_on(aio::Io& io, store::TensorStore& store, TileMemory& memory) {
    const std::vector<store::TileId> tiles = tiles_to_try(store);
    if (tiles.empty()) {
        commit_blocking(io, store, {{"step", "next"}});
        return {};
    }
    const store::TileId tile = tiles.front();
    const std::span<std::byte> bytes = memory.of(store.extent_bytes(tile));
    std::fill(bytes.begin(), bytes.end(), std::byte{0xab});
    write_blocking(io, store, tile, bytes);
    commit_blocking(io, store, {{"step", "next"}});
    return {store.layout().tile_index(tile), {bytes.begin(), bytes.end()}};
}

void exercise(aio::Io& io, const Directories& directories, aio::Caching caching) {
    std::unique_ptr<store::TensorStore> store = open_store(io, directories, caching);
    TileMemory memory(*store);
    std::map<std::uint32_t, Bytes> expected = read_tiles(io, *store, memory);
    const std::uint64_t generation = store->generation().value();
    const std::uint64_t incarnation = store->incarnation();
    constexpr std::uint64_t last = (1ULL << 63) - 1;  // FORMAT.md, recovery
    if (generation == last || incarnation > last) return;
    if (store->kind() == store::StoreKind::snapshot) return;  // only read
    const auto [index, bytes] = go_on(io, *store, memory);
    if (!bytes.empty()) expected[index] = bytes;
    store = nullptr;
    try {
        store = open_store(io, directories, caching);
    } catch (const Error& error) {
        PENSTOCK_CHECK(false, "it was committed to and cannot be opened: {}", error.what());
    }
    PENSTOCK_CHECK(store->generation() == generation + 1, "generation {} after {}", store->generation().value(),
                   generation);
    PENSTOCK_CHECK(store->incarnation() > incarnation, "incarnation {} after {}", store->incarnation(), incarnation);
    PENSTOCK_CHECK(store->client() == (store::ClientState{{"step", "next"}}), "it has another client's state");
    const std::map<std::uint32_t, Bytes> found = read_tiles(io, *store, memory);
    for (const auto& [tile, held] : expected)
        PENSTOCK_CHECK(found.contains(tile) && found.at(tile) == held, "tile {} has changed", tile);
}

// What open() needs: nothing of it may be anything but a regular file in its directory.
bool all_regular(const StoreImage& image) {
    const std::vector<std::size_t> given = image.given();
    return std::all_of(given.begin(), given.end(), [&](std::size_t directory) {
        const bool manifests =
            directory != given.front() || (image.nature(directory, ImageFile::manifest_0) == FileNature::regular &&
                                           image.nature(directory, ImageFile::manifest_1) == FileNature::regular);
        return manifests && image.nature(directory, ImageFile::lock) == FileNature::regular &&
               image.nature(directory, ImageFile::data) == FileNature::regular;
    });
}

void use(aio::Io& io, const StoreImage& image, const std::string& root) {
    std::vector<store::StoreDirectory> held;
    for (const std::size_t directory : image.given()) {
        const std::optional<store::LockText> lock = image.lock(directory);
        held.emplace_back(root + "/" + std::to_string(directory), lock ? lock->job : "a job");
        static_cast<void>(held.back().content());
    }
    Directories directories;
    for (store::StoreDirectory& directory : held) directories.push_back(&directory);
    exercise(io, directories, image.buffered() ? aio::Caching::buffered : aio::Caching::direct);
    PENSTOCK_CHECK(all_regular(image), "a store was opened that has something else among its files");
}

void run(std::span<const std::byte> input) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    const std::string root = scratch.file("");
    const StoreImage image(input);
    image.build(root);
    const auto before = snapshot(root + "/outside");
    aio::Io io(std::make_unique<InlineBackend>(), {});
    try {
        use(io, image, root);
    } catch (const Error& error) {
        const ExitCode code = error.code();
        PENSTOCK_CHECK(code == ExitCode::storage || code == ExitCode::usage || code == ExitCode::does_not_fit,
                       "exit code {}: {}", static_cast<int>(code), error.what());
    }
    PENSTOCK_CHECK(snapshot(root + "/outside") == before, "something outside was changed");
}

Bytes store_of(std::vector<store::ObjectSpec> objects, std::size_t directory_count, int generations) {
    const TemporaryDirectory scratch(aio::quick_temporary_path());
    std::vector<std::string> paths;
    {
        std::vector<store::StoreDirectory> held;
        for (std::size_t i = 0; i < directory_count; ++i) {
            paths.push_back(scratch.file(std::to_string(i)));
            held.emplace_back(paths.back(), "a job");
        }
        Directories directories;
        for (store::StoreDirectory& directory : held) directories.push_back(&directory);
        aio::Io io(std::make_unique<InlineBackend>(), {});
        const auto store = create_store(io, directories, std::move(objects));
        TileMemory memory(*store);
        for (int generation = 0; generation < generations; ++generation) {
            for (const store::TileId tile : tiles_to_try(*store)) {
                const std::span<std::byte> bytes = memory.of(store->extent_bytes(tile));
                std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(16 * generation + tile.tile + 1));
                write_blocking(io, *store, tile, bytes);
            }
            commit_blocking(io, *store, {{"step", std::to_string(generation)}});
        }
    }
    return StoreImage::of_store(paths);
}

// With numbers from which nothing counts on.
Bytes at_the_end_of_numbers(const Bytes& input) {
    std::vector<Section> sections = split(input);
    for (Section& section : sections) {
        store::DecodedManifest decoded = store::decode(section.bytes);
        if (!decoded.valid) continue;
        decoded.manifest.generation = std::numeric_limits<std::uint64_t>::max() - decoded.manifest.generation % 2;
        section.bytes = encoded(decoded.manifest);
    }
    return join(sections);
}

std::vector<Bytes> seeds() {
    const Bytes small = store_of({{"a", 100, 100}}, 1, 2);
    std::vector<Bytes> all = {small,
                              store_of({{"a", 6000, 4096}, {"b", 1, 1}}, 1, 3),
                              store_of({{"a", 10'000, 4096}}, 2, 2),
                              store_of({}, 1, 1),
                              store_of({{"never", 5, 5}}, 1, 0),
                              at_the_end_of_numbers(small)};
    for (const ImageFile file : {ImageFile::lock, ImageFile::data, ImageFile::manifest_0, ImageFile::manifest_1}) {
        for (std::uint8_t nature = 1; nature < file_nature_count; ++nature)
            all.push_back(StoreImage::with_nature(small, 0, file, static_cast<FileNature>(nature)));
    }
    return all;
}

}  // namespace

const FuzzTarget store_target = {.name = "store", .run = run, .mutate = StoreImage::mutate, .seeds = seeds};

}  // namespace penstock::fuzz
