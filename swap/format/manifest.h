// The record that makes a generation: which slot of each tile is current, its hash, and the client's state. Pure
// encoding; byte layout and recovery rules are in swap/FORMAT.md.
#pragma once

#include "swap/format/hash.h"
#include "swap/format/layout.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::store {

inline constexpr std::uint32_t format_version = 2;
inline constexpr std::uint32_t shared_format_version = 3;  // of snapshots that share blocks, and of nothing else
inline constexpr std::uint64_t max_client_bytes = 256U
                                                  << 10;  // of the encoded client state: 8 bytes per entry and its text

// What the client needs to continue exactly: step, data position, random generators, … Small keys and values, any
// bytes.
using ClientState = std::map<std::string, std::string>;

using StoreUuid = std::array<std::byte, 16>;
std::string to_string(const StoreUuid& uuid);  // 8-4-4-4-12 hexadecimal digits

struct TileRecord {
    TileHash hash;                 // of the whole extent, zeros past the tile's length included
    std::uint64_t generation = 0;  // in which the current slot was written
    std::uint32_t slot = 0;        // 0 or 1: which one is current
    bool written = false;          // false: never written, unreadable, and all else here is zero
    bool operator==(const TileRecord&) const = default;
};

// What a kept snapshot is a copy of.
struct Origin {
    StoreUuid store{};  // never all zero
    std::uint64_t generation = 0;
    bool operator==(const Origin&) const = default;
};

// Whose identity is in the hashes of tiles.
enum class HashedAs : std::uint8_t {
    own,     // the store's
    origin,  // of a kept snapshot whose blocks are its origin's: as the tiles were written there
};

struct Manifest {
    StoreUuid store{};
    std::uint64_t generation = 0;
    std::uint64_t incarnation = 0;  // of the life that committed it; each start draws a higher one
    std::uint64_t time_s = 0;       // when its commit began: seconds since 1970, UTC; told to people, decides nothing
    Geometry geometry;
    std::optional<Origin>
        origin;  // set in a kept snapshot, and only there: such a store has one slot and one generation
    HashedAs hashed_as = HashedAs::own;  // origin: only where there is one
    std::vector<ObjectSpec> objects;
    std::vector<TileRecord> tiles;  // by Layout::tile_index
    ClientState client;
    bool operator==(const Manifest&) const = default;
};

// Of a tile that was written in `generation`: by the origin where tiles are hashed as its.
TileIdentity identity_of(const Manifest& manifest, TileId tile, std::uint64_t generation) noexcept;

// Bytes one encoded manifest takes at most, rounded up to the granule: the size of its place on disk.
std::uint64_t manifest_capacity(const Layout& layout);

// Throws Error (usage) when the client state is larger than max_client_bytes.
void check_client(const ClientState& client);

// Writes into `out` (REQUIRES: out.size() >= manifest_capacity) and returns the used bytes, rounded up to the granule,
// zero filled. Throws as check_client().
std::size_t encode(const Manifest& manifest, std::span<std::byte> out);

struct DecodedManifest {
    bool valid = false;
    Manifest manifest;
    std::string problem;  // why it is not valid, e.g. "its hash does not match", "format version 7 is newer than 3"
};
// Never throws on hostile input (but bad_alloc), never allocates more than a small multiple of bytes.size(). What is
// valid encodes to the same bytes again. Bytes past the manifest's own length are not looked at.
DecodedManifest decode(std::span<const std::byte> bytes);

}  // namespace penstock::store
