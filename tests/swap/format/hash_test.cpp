#include "swap/format/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

namespace penstock::testing {
namespace {

TEST(Hash, DependsOnEveryPartOfTheIdentityAndOnEveryByte) {
    std::vector<std::byte> bytes(5000, std::byte{7});
    const store::TileIdentity identity{.store = 1, .object = 2, .tile = 3, .generation = 4};
    std::vector<store::TileHash> hashes{store::hash_tile(bytes, identity)};
    hashes.push_back(store::hash_tile(bytes, {.store = 2, .object = 2, .tile = 3, .generation = 4}));
    hashes.push_back(store::hash_tile(bytes, {.store = 1, .object = 3, .tile = 3, .generation = 4}));
    hashes.push_back(store::hash_tile(bytes, {.store = 1, .object = 3, .tile = 2, .generation = 4}));
    hashes.push_back(store::hash_tile(bytes, {.store = 1, .object = 2, .tile = 4, .generation = 4}));
    hashes.push_back(store::hash_tile(bytes, {.store = 1, .object = 2, .tile = 3, .generation = 5}));
    hashes.push_back(store::hash_tile(std::span(bytes).first(4999), identity));
    for (std::size_t at = 0; at < bytes.size(); at += 321) {
        bytes[at] ^= std::byte{1};
        hashes.push_back(store::hash_tile(bytes, identity));
        bytes[at] ^= std::byte{1};
    }
    for (std::size_t i = 0; i < hashes.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) EXPECT_NE(hashes[i], hashes[k]) << i << " and " << k;
    }
    EXPECT_EQ(store::hash_tile(bytes, identity), hashes[0]);
}

TEST(Hash, OfPartsIsTheOneOfTheWhole) {
    std::vector<std::byte> bytes(100'000);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 2654435761U >> 24);
    const store::TileIdentity identity{.store = 1, .object = 2, .tile = 3, .generation = 4};
    store::TileHasher hasher;
    for (const std::size_t part : {1UL, 512UL, 4096UL, 65'536UL, 100'000UL}) {
        hasher.begin(identity);
        for (std::size_t at = 0; at < bytes.size(); at += part)
            hasher.add(std::span(bytes).subspan(at, std::min(part, bytes.size() - at)));
        EXPECT_EQ(hasher.hash(), store::hash_tile(bytes, identity)) << "in parts of " << part;
    }
    hasher.begin(identity);
    EXPECT_EQ(hasher.hash(), store::hash_tile({}, identity));
}

// A hasher of parts takes the library's loop, a whole tile the processor's widest.
TEST(Hash, IsTheSameByAnyInstructions) {
    std::vector<std::byte> bytes(1 << 20);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 2654435761U >> 21);
    store::TileHasher hasher;
    const auto expect_same = [&](std::span<const std::byte> part) {
        const store::TileIdentity identity{.store = part.size(), .object = 2, .tile = 3, .generation = 4};
        hasher.begin(identity);
        hasher.add(part);
        EXPECT_EQ(hasher.hash(), store::hash_tile(part, identity)) << part.size();
    };
    for (std::size_t length = 0; length < 2100; ++length) expect_same(std::span(bytes).subspan(length % 67, length));
    for (std::size_t length = 4096; length < bytes.size(); length += 9973) expect_same(std::span(bytes).last(length));
}

// The format must not change by accident: a store of today is read by the program of next year.
TEST(Hash, IsTheOneOfTheFormat) {
    const std::vector<std::byte> bytes(4096, std::byte{0});
    const store::TileHash hash =
        store::hash_tile(bytes, {.store = 0x0102030405060708, .object = 9, .tile = 10, .generation = 11});
    EXPECT_EQ(hash.low, 0x41a476f488b8e1d4U);  // computed with Python's xxhash
    EXPECT_EQ(hash.high, 0x8cb410f300448ddaU);
}

}  // namespace
}  // namespace penstock::testing
