// The files of a store as bytes, and what may have become of them while nobody looked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

// `data` of each directory, then the two manifests. A file without bytes is missing.
class StoreImage {
   public:
    using Bytes = std::vector<std::byte>;
    static StoreImage take(const std::vector<std::string>& directories);
    void put_back() const;

    std::size_t device_count() const { return files_.size() - 2; }
    std::optional<Bytes>& data(std::size_t device) { return files_[device].bytes; }
    const std::optional<Bytes>& data(std::size_t device) const { return files_[device].bytes; }
    std::optional<Bytes>& manifest(std::size_t index) { return files_[device_count() + index].bytes; }
    const std::optional<Bytes>& manifest(std::size_t index) const { return files_[device_count() + index].bytes; }

   private:
    struct Entry {
        std::string path;
        std::optional<Bytes> bytes;
    };
    std::vector<Entry> files_;
};

// Where the newest bytes of a tile lie.
struct TilePlace {
    std::size_t device = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
};

// What a harm may use. All images are of stores with the same objects and directories.
struct Scene {
    StoreImage& now;
    std::uint64_t generation = 0;          // of `now`
    const std::vector<StoreImage>& older;  // of the same store, by generation, from 0 to `generation` - 1
    const StoreImage& other_life;          // of the same store: a life that wrote this generation too, and lost it
    const StoreImage& other_store;
    const std::vector<TilePlace>& tiles;  // of `now`
    std::mt19937_64& random;
};

// Each changes `now` and returns how many faults that were: 0 when by chance nothing is different.
using Harm = std::uint64_t (*)(Scene&);

std::uint64_t flip_bits_of_tiles(Scene& scene);
std::uint64_t lose_sectors(Scene& scene);
std::uint64_t put_back_tiles(Scene& scene);  // to an older generation
std::uint64_t put_tiles_of_other_life(Scene& scene);
std::uint64_t misplace_tiles(Scene& scene);
std::uint64_t put_back_data(Scene& scene);
std::uint64_t put_data_of_other_store(Scene& scene);
std::uint64_t cut_data(Scene& scene);
std::uint64_t remove_data(Scene& scene);
std::uint64_t flip_bits_of_manifests(Scene& scene);
std::uint64_t put_back_manifest(Scene& scene);
std::uint64_t swap_manifests(Scene& scene);
std::uint64_t put_manifests_of_other_store(Scene& scene);
std::uint64_t remove_manifests(Scene& scene);
std::uint64_t cut_manifest(Scene& scene);
std::uint64_t shorten_manifest(Scene& scene);
std::uint64_t put_back_all(Scene& scene);

}  // namespace penstock::testing
