#include "swap/format/manifest.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/format/little_endian.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace penstock::store {
namespace {

// Offsets and lengths as in swap/FORMAT.md.
constexpr std::string_view magic = "PENSTOCK";
constexpr std::size_t reserved_offset = 12;
constexpr std::size_t encoded_bytes_offset = 16;
constexpr std::size_t hash_offset = 24;
constexpr std::size_t body_offset = 40;
constexpr std::size_t header_bytes = 136;
constexpr std::size_t share_bytes = 2;
constexpr std::size_t object_fixed_bytes = 18;
constexpr std::size_t tile_record_bytes = 25;
constexpr std::size_t client_fixed_bytes = 8;
constexpr unsigned slot_flag = 1;
constexpr unsigned written_flag = 2;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t granule) {
    return (bytes + granule - 1) & ~(granule - 1);
}

// Of everything but the hash itself.
TileHash hash_manifest(std::span<const std::byte> bytes) {
    struct Free {
        void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
    };
    const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
    PENSTOCK_CHECK(state != nullptr, "no memory for a hash");
    XXH3_128bits_reset(state.get());
    XXH3_128bits_update(state.get(), bytes.data(), hash_offset);
    XXH3_128bits_update(state.get(), bytes.data() + body_offset, bytes.size() - body_offset);
    const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
    return {.low = hash.low64, .high = hash.high64};
}

// ---------------------------------------------------------------- encode

class Writer {
   public:
    explicit Writer(std::span<std::byte> out) : out_(out) {}
    std::size_t position() const noexcept { return position_; }

    void u8(unsigned value) { *take(1) = static_cast<std::byte>(value); }
    void u16(std::uint16_t value) { store_u16(take(2), value); }
    void u32(std::uint32_t value) { store_u32(take(4), value); }
    void u64(std::uint64_t value) { store_u64(take(8), value); }
    void hash(const TileHash& value) { u64(value.low), u64(value.high); }
    void text(std::string_view value) { bytes(std::as_bytes(std::span(value))); }
    void bytes(std::span<const std::byte> value) {
        if (!value.empty()) std::memcpy(take(value.size()), value.data(), value.size());
    }

   private:
    std::byte* take(std::size_t count) {
        PENSTOCK_CHECK(count <= out_.size() - position_, "{} bytes at {} of {}", count, position_, out_.size());
        return out_.data() + std::exchange(position_, position_ + count);
    }

    std::span<std::byte> out_;
    std::size_t position_ = 0;
};

std::uint64_t encoded_client_bytes(const ClientState& client) {
    std::uint64_t bytes = 0;
    for (const auto& [key, value] : client) bytes += client_fixed_bytes + key.size() + value.size();
    return bytes;
}

void write_header(Writer& writer, const Manifest& manifest) {
    writer.text(magic);
    writer.u32(manifest.hashed_as == HashedAs::origin ? shared_format_version : format_version);
    writer.u32(0);
    writer.u64(0);  // the length and the hash come last
    writer.hash({});
    writer.bytes(manifest.store);
    writer.u64(manifest.generation);
    writer.u64(manifest.incarnation);
    writer.u64(manifest.time_s);
    writer.u64(manifest.geometry.granule_bytes);
    writer.u32(manifest.geometry.slots);
    writer.u32(manifest.geometry.device_count());
    writer.u32(static_cast<std::uint32_t>(manifest.objects.size()));
    writer.u32(static_cast<std::uint32_t>(manifest.tiles.size()));
    writer.u32(static_cast<std::uint32_t>(manifest.client.size()));
    writer.u32(0);
    const Origin origin = manifest.origin.value_or(Origin{});
    writer.bytes(origin.store);
    writer.u64(origin.generation);
}

void write_body(Writer& writer, const Manifest& manifest) {
    for (const std::uint16_t share : manifest.geometry.shares) writer.u16(share);
    for (const ObjectSpec& object : manifest.objects) {
        writer.u64(object.bytes);
        writer.u64(object.tile_bytes);
        writer.u16(static_cast<std::uint16_t>(object.name.size()));
        writer.text(object.name);
    }
    for (const TileRecord& tile : manifest.tiles) {
        writer.hash(tile.hash);
        writer.u64(tile.generation);
        writer.u8((tile.slot != 0 ? slot_flag : 0) | (tile.written ? written_flag : 0));
    }
    for (const auto& [key, value] : manifest.client) {
        writer.u32(static_cast<std::uint32_t>(key.size()));
        writer.u32(static_cast<std::uint32_t>(value.size()));
        writer.text(key);
        writer.text(value);
    }
}

// ---------------------------------------------------------------- decode

// Reads within its bytes only: past the end everything is zero and ok() is false.
class Reader {
   public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    bool ok() const noexcept { return ok_; }
    std::span<const std::byte> rest() const noexcept { return bytes_; }

    unsigned u8() { return std::to_integer<unsigned>(take(1)[0]); }
    std::uint16_t u16() { return load_u16(take(2).data()); }
    std::uint32_t u32() { return load_u32(take(4).data()); }
    std::uint64_t u64() { return load_u64(take(8).data()); }
    TileHash hash() {
        const std::uint64_t low = u64();
        return {.low = low, .high = u64()};
    }
    std::string text(std::size_t count) {
        if (count > bytes_.size()) {
            ok_ = false;
            return {};
        }
        const auto part = take(count);
        return {reinterpret_cast<const char*>(part.data()), part.size()};
    }
    void uuid(StoreUuid& to) {
        const auto part = take(to.size());
        std::copy_n(part.begin(), to.size(), to.begin());
    }

   private:
    static constexpr std::array<std::byte, 16> zeros{};

    // REQUIRES: count <= 16 or count <= what is left.
    std::span<const std::byte> take(std::size_t count) {
        if (count > bytes_.size()) {
            ok_ = false;
            return zeros;
        }
        const auto part = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return part;
    }

    std::span<const std::byte> bytes_;
    bool ok_ = true;
};

struct Counts {
    std::uint32_t devices = 0;
    std::uint32_t objects = 0;
    std::uint32_t tiles = 0;
    std::uint32_t client = 0;
};

// Each reader of a part returns what is wrong, or nothing.
using Problem = std::string;

bool all_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte value) { return value == std::byte{0}; });
}

Problem check_envelope(std::span<const std::byte> bytes, std::uint64_t& encoded_bytes) {
    if (bytes.size() < header_bytes) return "it is shorter than a header";
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
        return all_zero(bytes.first(header_bytes)) ? "nothing was ever written there"
                                                   : "it does not begin like a manifest";
    }
    const std::uint32_t version = load_u32(bytes.data() + magic.size());
    if (version > shared_format_version)
        return fmt::format("format version {} is newer than {}", version, shared_format_version);
    if (version == 0) return "format version 0 does not exist";
    if (version < format_version) return fmt::format("format version {} is of before the first release", version);
    if (load_u32(bytes.data() + reserved_offset) != 0) return "its reserved field is not zero";
    encoded_bytes = load_u64(bytes.data() + encoded_bytes_offset);
    if (encoded_bytes < header_bytes || encoded_bytes > bytes.size()) {
        return fmt::format("its length {} does not fit its place of {} bytes", encoded_bytes, bytes.size());
    }
    Reader hash(bytes.subspan(hash_offset));
    if (hash.hash() != hash_manifest(bytes.first(encoded_bytes))) return "its hash does not match";
    return {};
}

Problem read_header(Reader& reader, Manifest& manifest, Counts& counts) {
    reader.uuid(manifest.store);
    manifest.generation = reader.u64();
    manifest.incarnation = reader.u64();
    manifest.time_s = reader.u64();
    const std::uint64_t granule = manifest.geometry.granule_bytes = reader.u64();
    manifest.geometry.slots = reader.u32();
    counts = {.devices = reader.u32(), .objects = reader.u32(), .tiles = reader.u32(), .client = reader.u32()};
    if (reader.u32() != 0) return "its second reserved field is not zero";
    Origin origin;
    reader.uuid(origin.store);
    origin.generation = reader.u64();
    if (origin.store != StoreUuid{}) manifest.origin = origin;
    if (!manifest.origin && origin.generation != 0) return "its origin is impossible";
    if (manifest.origin.has_value() != (manifest.geometry.slots == 1)) return "its slots are not those of its kind";
    if (manifest.origin && manifest.generation != 0) return "it is a snapshot of more than one generation";
    if (manifest.hashed_as == HashedAs::origin && !manifest.origin) return "it shares blocks with no origin";
    if (granule == 0 || (header_bytes + reader.rest().size()) % granule != 0)
        return "its length is not a multiple of its granule";
    if (counts.devices > max_device_count) return "its device count is impossible";
    if (counts.client > max_client_bytes / client_fixed_bytes) return "its client state is too long";
    const std::uint64_t least =
        std::uint64_t{counts.devices} * share_bytes + std::uint64_t{counts.objects} * object_fixed_bytes +
        std::uint64_t{counts.tiles} * tile_record_bytes + std::uint64_t{counts.client} * client_fixed_bytes;
    if (least > reader.rest().size()) return "its counts do not fit its length";
    return {};
}

Problem read_geometry(Reader& reader, Manifest& manifest, const Counts& counts) {
    manifest.geometry.shares.assign(counts.devices, 0);
    for (std::uint16_t& share : manifest.geometry.shares) share = reader.u16();
    return Layout::is_possible(manifest.geometry) ? Problem{} : "its devices, slots or granule are impossible";
}

Problem read_objects(Reader& reader, Manifest& manifest, const Counts& counts) {
    manifest.objects.reserve(counts.objects);
    for (std::uint32_t i = 0; i < counts.objects && reader.ok(); ++i) {
        ObjectSpec object;
        object.bytes = reader.u64();
        object.tile_bytes = reader.u64();
        object.name = reader.text(reader.u16());
        manifest.objects.push_back(std::move(object));
    }
    if (!reader.ok()) return "its objects do not fit its length";
    try {
        const Layout layout(manifest.objects, manifest.geometry);
        if (layout.tile_count() != counts.tiles) return "its tiles are not those of its objects";
    } catch (const Error& error) {
        return error.what();
    }
    return {};
}

Problem read_tiles(Reader& reader, Manifest& manifest, const Counts& counts) {
    manifest.tiles.reserve(counts.tiles);
    const std::uint64_t newest =
        manifest.hashed_as == HashedAs::origin ? manifest.origin->generation : manifest.generation;
    for (std::uint32_t i = 0; i < counts.tiles; ++i) {
        TileRecord tile{.hash = reader.hash(), .generation = reader.u64(), .slot = 0, .written = false};
        const unsigned flags = reader.u8();
        tile.slot = flags & slot_flag;
        tile.written = (flags & written_flag) != 0;
        const bool clean = tile.written ? tile.generation <= newest : tile == TileRecord{};
        if (flags > (slot_flag | written_flag) || tile.slot >= manifest.geometry.slots || !clean)
            return fmt::format("its record of tile {} is impossible", i);
        manifest.tiles.push_back(tile);
    }
    return reader.ok() ? Problem{} : "its tiles do not fit its length";
}

Problem read_client(Reader& reader, Manifest& manifest, const Counts& counts) {
    for (std::uint32_t i = 0; i < counts.client && reader.ok(); ++i) {
        const std::uint32_t key_bytes = reader.u32();
        const std::uint32_t value_bytes = reader.u32();
        std::string key = reader.text(key_bytes);
        std::string value = reader.text(value_bytes);
        if (!manifest.client.empty() && key <= manifest.client.rbegin()->first)
            return "its client keys are not in order";
        manifest.client.emplace_hint(manifest.client.end(), std::move(key), std::move(value));
    }
    if (!reader.ok() || encoded_client_bytes(manifest.client) > max_client_bytes) return "its client state is too long";
    if (reader.rest().size() >= manifest.geometry.granule_bytes || !all_zero(reader.rest()))
        return "something follows its end";
    return {};
}

}  // namespace

std::string to_string(const StoreUuid& uuid) {
    std::string text;
    for (std::size_t i = 0; i < uuid.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", std::to_integer<unsigned>(uuid[i]));
    }
    return text;
}

TileIdentity identity_of(const Manifest& manifest, TileId tile, std::uint64_t generation) noexcept {
    const StoreUuid& whose = manifest.hashed_as == HashedAs::origin ? manifest.origin->store : manifest.store;
    return {.store = load_u64(whose.data()), .object = tile.object, .tile = tile.tile, .generation = generation};
}

std::uint64_t manifest_capacity(const Layout& layout) {
    std::uint64_t bytes = header_bytes + std::uint64_t{layout.device_count()} * share_bytes +
                          std::uint64_t{layout.tile_count()} * tile_record_bytes + max_client_bytes;
    for (const ObjectSpec& object : layout.objects()) bytes += object_fixed_bytes + object.name.size();
    return rounded(bytes, layout.granule_bytes());
}

void check_client(const ClientState& client) {
    const std::uint64_t bytes = encoded_client_bytes(client);
    if (bytes <= max_client_bytes) return;
    throw Error(ExitCode::usage,
                fmt::format("the client state takes {} bytes; a manifest has room for {}", bytes, max_client_bytes));
}

std::size_t encode(const Manifest& manifest, std::span<std::byte> out) {
    check_client(manifest.client);
    Writer writer(out);
    write_header(writer, manifest);
    write_body(writer, manifest);
    const std::size_t used = writer.position();
    const std::size_t bytes = rounded(used, manifest.geometry.granule_bytes);
    PENSTOCK_CHECK(bytes <= out.size(), "a manifest of {} bytes in a place of {}", bytes, out.size());
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(used), out.begin() + static_cast<std::ptrdiff_t>(bytes),
              std::byte{0});
    store_u64(out.data() + encoded_bytes_offset, bytes);
    const TileHash hash = hash_manifest(out.first(bytes));
    store_u64(out.data() + hash_offset, hash.low);
    store_u64(out.data() + hash_offset + 8, hash.high);
    return bytes;
}

DecodedManifest decode(std::span<const std::byte> bytes) {
    DecodedManifest result;
    std::uint64_t encoded_bytes = 0;
    Counts counts;
    result.problem = check_envelope(bytes, encoded_bytes);
    if (!result.problem.empty()) return result;
    Reader reader(bytes.subspan(body_offset, encoded_bytes - body_offset));
    Manifest& manifest = result.manifest;
    if (load_u32(bytes.data() + magic.size()) == shared_format_version) manifest.hashed_as = HashedAs::origin;
    result.problem = read_header(reader, manifest, counts);
    if (result.problem.empty()) result.problem = read_geometry(reader, manifest, counts);
    if (result.problem.empty()) result.problem = read_objects(reader, manifest, counts);
    if (result.problem.empty()) result.problem = read_tiles(reader, manifest, counts);
    if (result.problem.empty()) result.problem = read_client(reader, manifest, counts);
    result.valid = result.problem.empty();
    return result;
}

}  // namespace penstock::store
