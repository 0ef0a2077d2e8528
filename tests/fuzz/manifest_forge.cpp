#include "tests/fuzz/manifest_forge.h"

#include "swap/format/little_endian.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <limits>

namespace penstock::fuzz {
namespace {

constexpr std::size_t length_offset = 16;
constexpr std::size_t hash_offset = 24;
constexpr std::size_t body_offset = 40;
constexpr std::size_t header_bytes = 136;

// Numbers at which arithmetic goes wrong.
std::uint64_t odd_number(Random& random) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    constexpr std::array<std::uint64_t, 16> edges = {
        0,          1,          2,    511,      512,       4095, 4096, 4097, 1ULL << 21, 1ULL << 32, (1ULL << 60) - 1,
        1ULL << 60, 1ULL << 63, most, most - 1, 1ULL << 24};
    return random() % 4 == 0 ? random() >> (random() % 64) : edges[random() % edges.size()];
}

void mutate_object(store::Manifest& manifest, Random& random) {
    auto& objects = manifest.objects;
    const std::size_t at = objects.empty() ? 0 : random() % objects.size();
    switch (random() % 7) {
        case 0:
            objects.insert(objects.begin() + static_cast<std::ptrdiff_t>(at),
                           {"object" + std::to_string(random() % 8), random() % 20'000 + 1, random() % 8192 + 1});
            break;
        case 1:
            if (!objects.empty()) objects.erase(objects.begin() + static_cast<std::ptrdiff_t>(at));
            break;
        case 2:
            if (!objects.empty()) objects[at].bytes = odd_number(random);
            break;
        case 3:
            if (!objects.empty()) objects[at].tile_bytes = odd_number(random);
            break;
        case 4:
            if (!objects.empty()) objects[at].name += static_cast<char>(random());
            break;
        case 5:
            if (!objects.empty()) objects[at].bytes = objects[at].tile_bytes = odd_number(random);
            break;
        default:
            if (!objects.empty()) objects[at].name = objects.back().name;
    }
}

// As many records as the objects have tiles, where that is possible at all.
void fit_tiles(store::Manifest& manifest) {
    constexpr std::uint32_t most = 512;
    std::uint64_t tiles = 0;
    for (const store::ObjectSpec& object : manifest.objects) {
        if (object.bytes == 0 || object.tile_bytes == 0) continue;
        tiles = std::min<std::uint64_t>(
            tiles + std::min<std::uint64_t>((object.bytes - 1) / object.tile_bytes + 1, most), most);
    }
    manifest.tiles.resize(tiles);
}

void mutate_tile(store::Manifest& manifest, Random& random) {
    if (manifest.tiles.empty()) return;
    store::TileRecord& tile = manifest.tiles[random() % manifest.tiles.size()];
    switch (random() % 4) {
        case 0:
            tile.generation = odd_number(random);
            break;
        case 1:
            tile.slot = static_cast<std::uint32_t>(random() % 2);
            break;
        case 2:
            tile = store::TileRecord{};
            break;
        default:
            tile = {.hash = {random(), random()}, .generation = manifest.generation, .slot = 0, .written = true};
    }
}

void mutate_geometry(store::Manifest& manifest, Random& random) {
    store::Geometry& geometry = manifest.geometry;
    switch (random() % 5) {
        case 0:
            geometry.shares.resize(random() % (store::max_device_count + 2), 1);
            break;
        case 1:
            if (!geometry.shares.empty()) geometry.shares.back() = static_cast<std::uint16_t>(odd_number(random));
            break;
        case 2:
            geometry.slots = static_cast<std::uint32_t>(odd_number(random));
            break;
        case 3:
            geometry.granule_bytes = 1ULL << (random() % 24);
            break;
        default:
            manifest.origin = store::Origin{.store = {std::byte{1}}, .generation = odd_number(random)};
            geometry.slots = 1;
            manifest.generation = 0;
    }
}

void mutate_fields(store::Manifest& manifest, Random& random) {
    switch (random() % 7) {
        case 5:
            mutate_geometry(manifest, random);
            break;
        case 0:
            manifest.generation = odd_number(random);
            break;
        case 1:
            manifest.incarnation = odd_number(random);
            break;
        case 2:
            manifest.client[std::string(random() % 5, 'k')] = std::string(random() % 40, 'v');
            break;
        case 3:
            mutate_tile(manifest, random);
            break;
        case 4:
            manifest.store[random() % manifest.store.size()] ^= static_cast<std::byte>(1);
            break;
        default:
            mutate_object(manifest, random);
            fit_tiles(manifest);
    }
}

bool fits_its_fields(const store::Manifest& manifest) {
    const bool names = std::all_of(manifest.objects.begin(), manifest.objects.end(),
                                   [](const store::ObjectSpec& object) { return object.name.size() < 1U << 16; });
    std::uint64_t client = 0;
    for (const auto& [key, value] : manifest.client) client += 8 + key.size() + value.size();
    return names && client <= store::max_client_bytes;
}

}  // namespace

store::Layout layout_of(const store::Manifest& manifest) {
    return store::Layout(manifest.objects, manifest.geometry);
}

store::Manifest forged_manifest(std::vector<store::ObjectSpec> objects, std::uint32_t device_count,
                                std::uint64_t granule_bytes) {
    store::Manifest manifest;
    for (std::size_t i = 0; i < manifest.store.size(); ++i) manifest.store[i] = static_cast<std::byte>(i + 1);
    manifest.generation = 5;
    manifest.incarnation = 2;
    manifest.geometry = {.shares = std::vector<std::uint16_t>(device_count, 1), .granule_bytes = granule_bytes};
    manifest.objects = std::move(objects);
    manifest.tiles.resize(layout_of(manifest).tile_count());
    return manifest;
}

Bytes encoded(const store::Manifest& manifest) {
    // Each part takes less than this; the tail is rounded up to the granule.
    std::size_t bytes = 4096 + manifest.geometry.granule_bytes + 32 * manifest.tiles.size();
    for (const store::ObjectSpec& object : manifest.objects) bytes += 32 + object.name.size();
    for (const auto& [key, value] : manifest.client) bytes += 8 + key.size() + value.size();
    Bytes place(bytes);
    place.resize(encode(manifest, place));
    return place;
}

void fix_hash(Bytes& bytes) {
    if (bytes.size() < header_bytes) return;
    std::uint64_t length = store::load_u64(bytes.data() + length_offset);
    if (length < header_bytes || length > bytes.size()) {
        length = bytes.size();
        store::store_u64(bytes.data() + length_offset, length);
    }
    Bytes hashed(bytes.begin(), bytes.begin() + hash_offset);
    hashed.insert(hashed.end(), bytes.begin() + body_offset, bytes.begin() + static_cast<std::ptrdiff_t>(length));
    const XXH128_hash_t hash = XXH3_128bits(hashed.data(), hashed.size());
    store::store_u64(bytes.data() + hash_offset, hash.low64);
    store::store_u64(bytes.data() + hash_offset + 8, hash.high64);
}

void mutate_manifest(Bytes& bytes, Random& random, const RawMutation& raw) {
    store::DecodedManifest decoded = store::decode(bytes);
    if (decoded.valid && random() % 2 == 0) {
        for (std::uint64_t i = 0, count = random() % 3 + 1; i < count; ++i) mutate_fields(decoded.manifest, random);
        if (fits_its_fields(decoded.manifest)) bytes = encoded(decoded.manifest);
        return;
    }
    raw(bytes);
    if (random() % 16 != 0) fix_hash(bytes);
}

std::vector<store::Manifest> seed_manifests() {
    std::vector<store::Manifest> seeds;
    seeds.push_back(forged_manifest({}, 1, 512));
    seeds.push_back(forged_manifest({{"a", 1, 1}}, 1, 4096));
    seeds.push_back(forged_manifest({{"weights", 10'000, 4096}, {"states", 700, 700}}, 1, 512));
    seeds.push_back(forged_manifest({{"a", 10'000, 3000}, {"\xc3\xa4", 9000, 1000}, {"c", 5, 4096}}, 2, 512));
    seeds.push_back(forged_manifest({{"many", 64 * 64, 64}}, 64, 512));
    seeds.push_back(forged_manifest({{"huge", (1ULL << 60) / 4, 1ULL << 50}}, 1, 4096));
    for (store::Manifest& manifest : seeds) {
        for (std::size_t i = 0; i < manifest.tiles.size(); i += 2) {
            manifest.tiles[i] = {.hash = {i, 7},
                                 .generation = i % (manifest.generation + 1),
                                 .slot = static_cast<std::uint32_t>(i / 2 % 2),
                                 .written = true};
        }
        manifest.client = {{"", "empty key"}, {"step", "5"}, {"zero", std::string(3, '\0')}};
    }
    store::Manifest& snapshot = seeds.emplace_back(seeds[2]);
    snapshot.generation = 0;
    snapshot.geometry.slots = 1;
    snapshot.origin = store::Origin{.store = {std::byte{7}}, .generation = 5};
    for (store::TileRecord& tile : snapshot.tiles) tile.generation = tile.slot = 0;
    store::Manifest shared = snapshot;
    shared.hashed_as = store::HashedAs::origin;
    for (store::TileRecord& tile : shared.tiles) tile.generation = tile.written ? 5 : 0;
    seeds.push_back(std::move(shared));
    seeds.emplace_back(seeds[3]).geometry.shares = {3, 2};
    return seeds;
}

}  // namespace penstock::fuzz
