#include "tests/swap/bad_disks/faults_image.h"

#include "aio/words/check.h"
#include "swap/directory/recovery.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

namespace penstock::testing {
namespace {

std::optional<StoreImage::Bytes> contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    StoreImage::Bytes bytes(std::filesystem::file_size(path));
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    PENSTOCK_CHECK(file.good() || bytes.empty(), "{} cannot be read", path);
    return bytes;
}

std::span<std::byte> part(std::optional<StoreImage::Bytes>& file, std::uint64_t offset_bytes, std::uint64_t bytes) {
    return std::span(file.value()).subspan(offset_bytes, bytes);
}
std::span<const std::byte> part(const std::optional<StoreImage::Bytes>& file, std::uint64_t offset_bytes,
                                std::uint64_t bytes) {
    return std::span(file.value()).subspan(offset_bytes, bytes);
}

// Whether that changed anything.
bool overwrite(std::span<std::byte> place, std::span<const std::byte> bytes) {
    const bool same = std::equal(place.begin(), place.end(), bytes.begin());
    std::copy(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(place.size()), place.begin());
    return !same;
}

void flip(std::span<std::byte> bytes, std::uint64_t bit) {
    bit %= bytes.size() * 8;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
}

// One to four tiles.
template <typename Change>
std::uint64_t each_of_some(Scene& scene, Change change) {
    std::uint64_t faults = 0;
    for (std::uint64_t left = 1 + scene.random() % 4; left > 0; --left) {
        const TilePlace& tile = scene.tiles[scene.random() % scene.tiles.size()];
        if (change(tile, part(scene.now.data(tile.device), tile.offset_bytes, tile.bytes))) ++faults;
    }
    return faults;
}

std::uint64_t put_tiles_of(Scene& scene, const StoreImage& image) {
    return each_of_some(scene, [&](const TilePlace& tile, std::span<std::byte> place) {
        return overwrite(place, part(image.data(tile.device), tile.offset_bytes, tile.bytes));
    });
}

const StoreImage& any_older(Scene& scene) {
    return scene.older[scene.random() % scene.older.size()];
}

}  // namespace

StoreImage StoreImage::take(const std::vector<std::string>& directories) {
    StoreImage image;
    for (const std::string& directory : directories)
        image.files_.push_back({directory + "/" + store::data_file_name, {}});
    for (const char* name : store::manifest_file_names) image.files_.push_back({directories.front() + "/" + name, {}});
    for (Entry& file : image.files_) file.bytes = contents(file.path);
    return image;
}

void StoreImage::put_back() const {
    for (const Entry& file : files_) {
        if (!file.bytes) {
            ::unlink(file.path.c_str());
            continue;
        }
        std::ofstream out(file.path, std::ios::binary | std::ios::trunc);
        out.write(reinterpret_cast<const char*>(file.bytes->data()), static_cast<std::streamsize>(file.bytes->size()));
        PENSTOCK_CHECK(out.good(), "{} cannot be written", file.path);
    }
}

// ---------------------------------------------------------------- tiles

std::uint64_t flip_bits_of_tiles(Scene& scene) {
    return each_of_some(scene, [&](const TilePlace&, std::span<std::byte> place) {
        flip(place, scene.random());
        return true;
    });
}

std::uint64_t lose_sectors(Scene& scene) {
    const StoreImage::Bytes zeros(512);
    return each_of_some(scene, [&](const TilePlace&, std::span<std::byte> place) {
        return overwrite(place.subspan(scene.random() % (place.size() / 512) * 512, 512), zeros);
    });
}

std::uint64_t put_back_tiles(Scene& scene) {
    return put_tiles_of(scene, any_older(scene));
}

std::uint64_t put_tiles_of_other_life(Scene& scene) {
    return put_tiles_of(scene, scene.other_life);
}

std::uint64_t misplace_tiles(Scene& scene) {
    return each_of_some(scene, [&](const TilePlace& tile, std::span<std::byte> place) {
        const TilePlace& other = scene.tiles[scene.random() % scene.tiles.size()];
        if (other.bytes < tile.bytes) return false;
        return overwrite(place, part(std::as_const(scene.now).data(other.device), other.offset_bytes, tile.bytes));
    });
}

// ---------------------------------------------------------------- data files

std::uint64_t put_back_data(Scene& scene) {
    const std::size_t device = scene.random() % scene.now.device_count();
    scene.now.data(device) = any_older(scene).data(device);
    return 1;
}

std::uint64_t put_data_of_other_store(Scene& scene) {
    const std::size_t device = scene.random() % scene.now.device_count();
    scene.now.data(device) = scene.other_store.data(device);
    return 1;
}

std::uint64_t cut_data(Scene& scene) {
    StoreImage::Bytes& data = scene.now.data(scene.random() % scene.now.device_count()).value();
    data.resize(scene.random() % data.size());
    return 1;
}

std::uint64_t remove_data(Scene& scene) {
    scene.now.data(scene.random() % scene.now.device_count()).reset();
    return 1;
}

// ---------------------------------------------------------------- manifests

std::uint64_t flip_bits_of_manifests(Scene& scene) {
    const std::uint64_t faults = 1 + scene.random() % 4;
    for (std::uint64_t i = 0; i < faults; ++i) {
        StoreImage::Bytes& file = scene.now.manifest(scene.random() % 2).value();
        const std::uint64_t copy = scene.random() % 2;
        flip(std::span(file).subspan(copy * (file.size() / 2), 4096), scene.random());
    }
    return faults;
}

// The newest manifest as it was two generations ago: its write was lost.
std::uint64_t put_back_manifest(Scene& scene) {
    const std::size_t file = scene.generation % 2;
    scene.now.manifest(file) = scene.older[scene.generation - 2].manifest(file);
    return 1;
}

std::uint64_t swap_manifests(Scene& scene) {
    std::swap(scene.now.manifest(0), scene.now.manifest(1));
    return 1;
}

std::uint64_t put_manifests_of_other_store(Scene& scene) {
    const std::uint64_t which = 1 + scene.random() % 3;
    for (std::size_t file = 0; file < 2; ++file) {
        if ((which >> file & 1) != 0) scene.now.manifest(file) = scene.other_store.manifest(file);
    }
    return which == 3 ? 2 : 1;
}

std::uint64_t remove_manifests(Scene& scene) {
    const std::uint64_t which = 1 + scene.random() % 3;
    for (std::size_t file = 0; file < 2; ++file) {
        if ((which >> file & 1) != 0) scene.now.manifest(file).reset();
    }
    return which == 3 ? 2 : 1;
}

std::uint64_t cut_manifest(Scene& scene) {
    StoreImage::Bytes& file = scene.now.manifest(scene.random() % 2).value();
    file.resize(scene.random() % 128);
    return 1;
}

// Behind the first copy, which is as good as before.
std::uint64_t shorten_manifest(Scene& scene) {
    StoreImage::Bytes& file = scene.now.manifest(scene.random() % 2).value();
    file.resize(file.size() / 2 + scene.random() % (file.size() / 2));
    return 1;
}

std::uint64_t put_back_all(Scene& scene) {
    scene.now = any_older(scene);
    return 1;
}

}  // namespace penstock::testing
