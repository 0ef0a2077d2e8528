#include "swap/format/manifest.h"
#include "aio/words/error.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace penstock::testing {
namespace {

store::Manifest random_manifest(std::mt19937_64& random) {
    store::Manifest manifest;
    for (std::byte& byte : manifest.store) byte = static_cast<std::byte>(random());
    manifest.generation = random() % 1000;
    manifest.incarnation = random();
    manifest.time_s = random();
    manifest.geometry = {
        .shares = std::vector<std::uint16_t>(random() % 4 + 1, static_cast<std::uint16_t>(random() % 5 + 1)),
        .slots = 2,
        .granule_bytes = 512ULL << (random() % 5)};
    if (random() % 4 == 0) {
        manifest.generation = 0;
        manifest.geometry.slots = 1;
        manifest.origin = store::Origin{.store = {std::byte{1}}, .generation = random() >> 1};
        if (random() % 2 == 0) manifest.hashed_as = store::HashedAs::origin;
    }
    const std::uint64_t newest =
        manifest.hashed_as == store::HashedAs::origin ? manifest.origin->generation : manifest.generation;
    for (std::uint64_t i = 0, count = random() % 5; i < count; ++i) {
        manifest.objects.push_back({"object" + std::to_string(i), random() % 100'000 + 1, random() % 50'000 + 5000});
    }
    manifest.tiles.resize(store::Layout(manifest.objects, manifest.geometry).tile_count());
    for (store::TileRecord& tile : manifest.tiles) {
        if (random() % 4 == 0) continue;
        tile = {.hash = {random(), random()},
                .generation = random() % (newest + 1),
                .slot = static_cast<std::uint32_t>(random() % manifest.geometry.slots),
                .written = true};
    }
    for (std::uint64_t i = 0, count = random() % 5; i < count; ++i) {
        manifest.client[std::string(random() % 9, static_cast<char>(random()))] =
            std::string(random() % 300, static_cast<char>(random()));
    }
    return manifest;
}

std::vector<std::byte> encoded(const store::Manifest& manifest) {
    std::vector<std::byte> place(manifest_capacity(store::Layout(manifest.objects, manifest.geometry)),
                                 std::byte{0xee});
    place.resize(encode(manifest, place));
    return place;
}

// By the words of swap/FORMAT.md, not by the code under test.
void fix_hash(std::vector<std::byte>& bytes) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + 16, 8);
    if (length < 40 || length > bytes.size()) length = bytes.size();
    std::vector<std::byte> hashed(bytes.begin(), bytes.begin() + 24);
    hashed.insert(hashed.end(), bytes.begin() + 40, bytes.begin() + static_cast<std::ptrdiff_t>(length));
    const XXH128_hash_t hash = XXH3_128bits(hashed.data(), hashed.size());
    std::memcpy(bytes.data() + 24, &hash.low64, 8);
    std::memcpy(bytes.data() + 32, &hash.high64, 8);
}

void put_u32(std::vector<std::byte>& bytes, std::size_t at, std::uint32_t value) {
    std::memcpy(bytes.data() + at, &value, 4);
}
void put_u64(std::vector<std::byte>& bytes, std::size_t at, std::uint64_t value) {
    std::memcpy(bytes.data() + at, &value, 8);
}

store::Manifest small_manifest() {
    store::Manifest manifest{.store = {},
                             .generation = 5,
                             .incarnation = 2,
                             .time_s = 7,
                             .geometry = {.granule_bytes = 512},
                             .origin = {},
                             .objects = {{"ab", 3000, 2000}},
                             .tiles = {},
                             .client = {{"k", "v"}, {"l", ""}}};
    manifest.tiles = {{.hash = {1, 2}, .generation = 5, .slot = 1, .written = true},
                      {.hash = {3, 4}, .generation = 4, .slot = 0, .written = true}};
    return manifest;
}

TEST(Manifest, RoundTripsAndItsPlaceIsLargeEnough) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(200); ++seed) {
        std::mt19937_64 random(seed);
        const store::Manifest manifest = random_manifest(random);
        const std::vector<std::byte> bytes = encoded(manifest);
        EXPECT_EQ(bytes.size() % manifest.geometry.granule_bytes, 0U);
        const store::DecodedManifest decoded = store::decode(bytes);
        ASSERT_TRUE(decoded.valid) << decoded.problem << ", " << replay(seed);
        ASSERT_EQ(decoded.manifest, manifest) << replay(seed);
    }
}

TEST(Manifest, EverySingleBitFlipIsRefused) {
    std::vector<std::byte> bytes = encoded(small_manifest());
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
        bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        const store::DecodedManifest decoded = store::decode(bytes);
        ASSERT_FALSE(decoded.valid) << "bit " << bit;
        ASSERT_FALSE(decoded.problem.empty()) << "bit " << bit;
        bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    EXPECT_TRUE(store::decode(bytes).valid);
}

TEST(Manifest, EveryTruncationIsRefused) {
    const std::vector<std::byte> bytes = encoded(small_manifest());
    for (std::size_t length = 0; length < bytes.size(); ++length)
        ASSERT_FALSE(store::decode(std::span(bytes).first(length)).valid) << length;
}

TEST(Manifest, WhatFollowsItIsNotLookedAt) {
    std::vector<std::byte> bytes = encoded(small_manifest());
    bytes.insert(bytes.end(), 777, std::byte{0x55});  // of a longer one that was there before
    EXPECT_EQ(store::decode(bytes).manifest, small_manifest());
}

// A hash is no signature: with the right hash each part must still be checked by itself. Offsets are those of
// FORMAT.md.
TEST(Manifest, HostilePartsWithTheRightHashAreRefused) {
    const auto problem = [](auto change) {
        std::vector<std::byte> bytes = encoded(small_manifest());
        change(bytes);
        fix_hash(bytes);
        const store::DecodedManifest decoded = store::decode(bytes);
        EXPECT_EQ(decoded.valid, decoded.problem.empty());
        return decoded.problem;
    };
    const std::size_t objects = 136 + 2;
    const std::size_t tiles = objects + 18 + 2;
    const std::size_t client = tiles + 2 * 25;
    EXPECT_EQ(problem([](auto&) {}), "");
    EXPECT_EQ(problem([](auto& b) { put_u32(b, 8, 7); }), "format version 7 is newer than 3");
    EXPECT_EQ(problem([](auto& b) { put_u32(b, 8, 3); }), "it shares blocks with no origin");
    EXPECT_EQ(problem([](auto& b) { put_u32(b, 8, 1); }), "format version 1 is of before the first release");
    EXPECT_NE(problem([](auto& b) { put_u32(b, 8, 0); }), "");
    EXPECT_NE(problem([](auto& b) { put_u32(b, 12, 1); }), "");
    EXPECT_NE(problem([](auto& b) { put_u64(b, 16, UINT64_MAX); }), "");
    EXPECT_NE(problem([](auto& b) { put_u64(b, 16, 511); }), "");
    EXPECT_NE(problem([](auto& b) { put_u64(b, 80, 0); }), "");  // the granule
    EXPECT_NE(problem([](auto& b) { put_u64(b, 80, 513); }), "");
    EXPECT_NE(problem([](auto& b) { put_u64(b, 80, 1ULL << 40); }), "");
    for (const std::uint32_t slots : {0U, 1U, 3U, UINT32_MAX})
        EXPECT_NE(problem([=](auto& b) { put_u32(b, 88, slots); }), "");
    for (const std::size_t count : {92, 96, 100, 104}) {
        for (const std::uint32_t value : {0U, 3U, 1'000'000U, UINT32_MAX}) {
            EXPECT_NE(problem([=](auto& b) { put_u32(b, count, value); }), "") << count << " " << value;
        }
    }
    EXPECT_NE(problem([](auto& b) { put_u32(b, 108, 1); }), "");
    EXPECT_NE(problem([](auto& b) { b[112] = std::byte{1}; }), "");  // an origin, but two slots
    EXPECT_NE(problem([](auto& b) { put_u64(b, 128, 1); }), "");     // an origin's generation without its store
    EXPECT_NE(problem([](auto& b) { b[136] = std::byte{0}; }), "");  // a share of nothing
    EXPECT_NE(problem([](auto& b) { b[137] = std::byte{2}; }), "");  // a round of 513 tiles
    EXPECT_NE(problem([=](auto& b) { put_u64(b, objects, 0); }), "");
    EXPECT_NE(problem([=](auto& b) { put_u64(b, objects, 5000); }), "");  // three tiles
    EXPECT_NE(problem([=](auto& b) { put_u64(b, objects, UINT64_MAX); }), "");
    EXPECT_NE(problem([=](auto& b) { put_u64(b, objects + 8, 0); }), "");
    EXPECT_NE(problem([=](auto& b) { b[objects + 16] = std::byte{255}; }), "");  // the name's length
    EXPECT_NE(problem([=](auto& b) { b[objects + 18] = std::byte{10}; }), "");   // a control character in it
    EXPECT_NE(problem([=](auto& b) { put_u64(b, tiles + 16, 6); }), "");         // written after its manifest
    EXPECT_NE(problem([=](auto& b) { b[tiles + 24] = std::byte{4}; }), "");      // an unknown flag
    EXPECT_NE(problem([=](auto& b) { b[tiles + 24] = std::byte{0}; }), "");      // unwritten, but with a hash
    EXPECT_NE(problem([=](auto& b) { put_u32(b, client, UINT32_MAX); }), "");
    EXPECT_NE(problem([=](auto& b) { put_u32(b, client + 4, UINT32_MAX); }), "");
    EXPECT_NE(problem([=](auto& b) { b[client + 8] = std::byte{'l'}; }), "");       // the same key twice
    EXPECT_NE(problem([](auto& b) { b.back() = std::byte{1}; }), "");               // in the padding
    EXPECT_NE(problem([](auto& b) { b.resize(1024), put_u64(b, 16, 1024); }), "");  // a granule too long
}

store::Manifest small_snapshot() {
    store::Manifest manifest = small_manifest();
    manifest.generation = 0;
    manifest.geometry.slots = 1;
    manifest.origin = store::Origin{.store = {std::byte{9}}, .generation = 44};
    for (store::TileRecord& tile : manifest.tiles) tile.generation = tile.slot = 0;
    return manifest;
}

TEST(Manifest, ASnapshotHasOneSlotAndOneGeneration) {
    const store::Manifest manifest = small_snapshot();
    EXPECT_EQ(store::decode(encoded(manifest)).manifest, manifest);
    const auto problem = [&](auto change) {
        store::Manifest changed = manifest;
        change(changed);
        return store::decode(encoded(changed)).problem;
    };
    EXPECT_NE(problem([](store::Manifest& m) { m.generation = 1; }), "");
    EXPECT_NE(problem([](store::Manifest& m) { m.origin.reset(); }), "");
    EXPECT_NE(problem([](store::Manifest& m) { m.tiles[0].slot = 1; }), "");
}

// Version 3 is of snapshots that share blocks alone: an older program refuses them by number, and opens all others.
TEST(Manifest, ASnapshotThatSharesBlocksHasTheGenerationsAndTheIdentityOfItsOrigin) {
    const auto version_of = [](const store::Manifest& manifest) { return encoded(manifest)[8]; };
    store::Manifest manifest = small_snapshot();
    EXPECT_EQ(version_of(manifest), std::byte{2});
    EXPECT_EQ(identity_of(manifest, {0, 1}, 7).store, 0U);
    manifest.hashed_as = store::HashedAs::origin;
    manifest.tiles[0].generation = 44;
    EXPECT_EQ(version_of(manifest), std::byte{3});
    EXPECT_EQ(store::decode(encoded(manifest)).manifest, manifest);
    const store::TileIdentity identity = identity_of(manifest, {0, 1}, 7);
    EXPECT_EQ(identity.store, 9U);
    EXPECT_EQ(identity.tile, 1U);
    EXPECT_EQ(identity.generation, 7U);
    const auto problem = [&](auto change) {
        store::Manifest changed = manifest;
        change(changed);
        return store::decode(encoded(changed)).problem;
    };
    EXPECT_EQ(problem([](store::Manifest& m) { m.tiles[0].generation = 45; }), "its record of tile 0 is impossible");
    EXPECT_NE(problem([](store::Manifest& m) { m.tiles[0].slot = 1; }), "");
    EXPECT_NE(problem([](store::Manifest& m) { m.generation = 1; }), "");
    EXPECT_NE(problem([](store::Manifest& m) { m.hashed_as = store::HashedAs::own; }), "");  // 44 after its own 0
    std::vector<std::byte> bytes = encoded(manifest);
    put_u32(bytes, 12, 1);
    fix_hash(bytes);
    EXPECT_NE(store::decode(bytes).problem, "");
}

// Whatever is accepted is exactly what would be written: nothing is read past its place, nothing is guessed.
TEST(Manifest, MutationsWithTheRightHashAreRefusedOrCanonical) {
    const std::uint64_t first = first_seed();
    std::size_t accepted = 0;
    const std::uint64_t count = seed_count(5'000);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        std::mt19937_64 random(seed);
        store::Manifest manifest = seed % 2 == 0 ? small_manifest() : small_snapshot();
        if (seed % 4 == 1) manifest.hashed_as = store::HashedAs::origin;
        std::vector<std::byte> bytes = encoded(manifest);
        for (std::uint64_t i = 0, changes = random() % 4 + 1; i < changes; ++i) {
            const std::size_t at = random() % (random() % 2 == 0 ? 200 : bytes.size());
            bytes[at] = random() % 2 == 0 ? static_cast<std::byte>(random())
                                          : bytes[at] ^ static_cast<std::byte>(1U << (random() % 8));
        }
        fix_hash(bytes);
        const store::DecodedManifest decoded = store::decode(bytes);
        if (!decoded.valid) continue;
        ++accepted;
        ASSERT_EQ(encoded(decoded.manifest), bytes) << replay(seed);
    }
    if (count >= 1'000) {
        EXPECT_GT(accepted, count / 50);  // the mutations get past the hash
    }
}

TEST(Manifest, AClientStateThatIsTooLongIsRefused) {
    store::Manifest manifest = small_manifest();
    manifest.client = {{"k", std::string(store::max_client_bytes - 9, 'v')}};
    EXPECT_EQ(store::decode(encoded(manifest)).manifest, manifest);
    manifest.client = {{"k", std::string(store::max_client_bytes - 8, 'v')}};
    try {
        encoded(manifest);
        FAIL() << "a client state past the limit was encoded";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
    }
}

TEST(Manifest, AUuidReadsAsHexadecimal) {
    store::StoreUuid uuid{};
    for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(0x10 + i);
    EXPECT_EQ(store::to_string(uuid), "10111213-1415-1617-1819-1a1b1c1d1e1f");
}

}  // namespace
}  // namespace penstock::testing
