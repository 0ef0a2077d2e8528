#include "tests/fuzz/store_image.h"

#include "swap/format/little_endian.h"
#include "tests/fuzz/manifest_forge.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::fuzz {
namespace {

// Of sections. Those in pairs are of directory 0 and 1.
enum Tag : std::uint8_t {
    manifest_copies = 0,   // 4: file 0 copy 1, file 0 copy 2, file 1 copy 1, file 1 copy 2
    manifest_lengths = 4,  // 2: u64
    locks = 6,
    data_heads = 8,
    data_lengths = 10,  // u64
    natures = 12,       // pairs of bytes: directory * 4 + file, nature
    plan = 13,          // a byte: bit 0 both directories are given, bit 1 the second first, bit 2 buffered
};

constexpr std::uint64_t longest_manifest = 8U << 20;
constexpr std::uint64_t longest_refused = 1ULL << 40;  // above what recover() looks at
constexpr std::uint64_t longest_data = 1ULL << 62;

std::uint64_t number(const Bytes& bytes) {
    std::array<std::byte, 8> padded{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), padded.size()), padded.begin());
    return store::load_u64(padded.data());
}

Bytes bytes_of_number(std::uint64_t value) {
    Bytes bytes(8);
    store::store_u64(bytes.data(), value);
    return bytes;
}

Bytes read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return bytes_of(std::string{std::istreambuf_iterator<char>(in), {}});
}

Bytes without_zeros_at_the_end(Bytes bytes) {
    while (!bytes.empty() && bytes.back() == std::byte{0}) bytes.pop_back();
    return bytes;
}

// A manifest as it is encoded, with the zeros that its length wants.
Bytes one_copy(std::span<const std::byte> place) {
    const store::DecodedManifest decoded = store::decode(place);
    return decoded.valid ? encoded(decoded.manifest) : without_zeros_at_the_end({place.begin(), place.end()});
}

// As a forger does who can compute: each tile that is marked written gets the hash of what its slot holds.
void hash_tiles(Bytes& copy, const std::array<Bytes, image_directories>& data) {
    store::DecodedManifest decoded = store::decode(copy);
    if (!decoded.valid) return;
    const store::Layout layout = layout_of(decoded.manifest);
    for (std::uint32_t i = 0; i < std::min(layout.tile_count(), 64U); ++i) {
        store::TileRecord& tile = decoded.manifest.tiles[i];
        const store::TileId id = layout.tile(i);
        const store::Extent extent = layout.extent(id, tile.slot);
        if (!tile.written || extent.device >= data.size() || extent.bytes > 1U << 20) continue;
        Bytes held(extent.bytes);
        const Bytes& from = data[extent.device];
        const std::uint64_t begin = std::min<std::uint64_t>(extent.offset_bytes, from.size());
        const std::uint64_t end = std::min<std::uint64_t>(extent.offset_bytes + extent.bytes, from.size());
        std::copy(from.begin() + static_cast<std::ptrdiff_t>(begin), from.begin() + static_cast<std::ptrdiff_t>(end),
                  held.begin());
        tile.hash = store::hash_tile(held, {.store = store::load_u64(decoded.manifest.store.data()),
                                            .object = id.object,
                                            .tile = id.tile,
                                            .generation = tile.generation});
    }
    copy = encoded(decoded.manifest);
}

void mutate_section(Section& section, Random& random, const RawMutation& raw) {
    if (section.tag < manifest_lengths) {
        mutate_manifest(section.bytes, random, raw);
    } else if (section.tag == natures) {
        section.bytes = {static_cast<std::byte>(random() % (image_directories * image_file_names.size())),
                         static_cast<std::byte>(random() % file_nature_count)};
    } else if (section.tag == plan) {
        section.bytes = {static_cast<std::byte>(random() % 8)};
    } else {
        raw(section.bytes);
    }
}

}  // namespace

StoreImage::StoreImage(std::span<const std::byte> input) {
    for (Section& section : split(input)) {
        const std::uint8_t tag = section.tag;
        if (tag < manifest_lengths) {
            Content& content = contents_[0][2 + tag / 2];
            content.copies[tag % 2] = std::move(section.bytes);
            content.there = true;
        } else if (tag < locks) {
            contents_[0][2 + (tag - manifest_lengths)].length = number(section.bytes);
            contents_[0][2 + (tag - manifest_lengths)].there = true;
        } else if (tag < data_heads) {
            contents_[tag - locks][0] = {{std::move(section.bytes)}, std::nullopt, true};
        } else if (tag < data_lengths) {
            contents_[tag - data_heads][1].copies[0] = std::move(section.bytes);
            contents_[tag - data_heads][1].there = true;
        } else if (tag < natures) {
            contents_[tag - data_lengths][1].length = number(section.bytes);
            contents_[tag - data_lengths][1].there = true;
        } else if (tag == natures) {
            for (std::size_t i = 0; i + 1 < section.bytes.size(); i += 2) {
                const auto file = std::to_integer<std::size_t>(section.bytes[i]) % 8;
                const auto nature = std::to_integer<std::uint8_t>(section.bytes[i + 1]) % file_nature_count;
                natures_[file / 4][file % 4] = static_cast<FileNature>(nature);
            }
        } else if (tag == plan && !section.bytes.empty()) {
            plan_ = std::to_integer<unsigned>(section.bytes[0]);
        }
    }
}

std::optional<store::LockText> StoreImage::lock(std::size_t directory) const {
    return store::parse_lock_file(text_of(contents_[directory][0].copies[0]));
}

std::vector<std::size_t> StoreImage::given() const {
    const std::size_t first = (plan_ & 2) != 0 ? 1 : 0;
    return (plan_ & 1) != 0 ? std::vector{first, 1 - first} : std::vector{first};
}

// As the input says, else what a whole store would have.
std::uint64_t StoreImage::length_of(std::size_t directory, ImageFile file) const {
    const Content& content = contents_[directory][static_cast<std::size_t>(file)];
    if (file == ImageFile::lock) return content.copies[0].size();
    if (file == ImageFile::data) return std::min(content.length.value_or(content.copies[0].size()), longest_data);
    if (content.length) {
        return *content.length >= longest_refused ? longest_refused : *content.length % longest_manifest;
    }
    for (const Bytes& copy : content.copies) {
        const store::DecodedManifest decoded = store::decode(copy);
        if (!decoded.valid) continue;
        const std::uint64_t place = manifest_capacity(layout_of(decoded.manifest));
        if (2 * place <= longest_manifest) return 2 * place;
    }
    return 2 * std::max(content.copies[0].size(), content.copies[1].size());
}

void StoreImage::put(const std::string& path, std::size_t directory, ImageFile file) const {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return;
    const std::uint64_t length = length_of(directory, file);
    const auto& copies = contents_[directory][static_cast<std::size_t>(file)].copies;
    static_cast<void>(::pwrite(fd, copies[0].data(), copies[0].size(), 0));
    static_cast<void>(::pwrite(fd, copies[1].data(), copies[1].size(), static_cast<off_t>(length / 2)));
    static_cast<void>(!::ftruncate(fd, static_cast<off_t>(length)));
    ::close(fd);
}

void StoreImage::build(const std::string& root) const {
    std::filesystem::create_directories(root + "/outside");
    for (std::size_t directory = 0; directory < image_directories; ++directory) {
        const std::string at = root + "/" + std::to_string(directory);
        std::filesystem::create_directories(at);
        for (std::size_t i = 0; i < image_file_names.size(); ++i) {
            const auto file = static_cast<ImageFile>(i);
            const std::string path = at + "/" + image_file_names[i];
            const std::string elsewhere = root + "/outside/" + std::to_string(directory) + image_file_names[i];
            switch (nature(directory, file)) {
                case FileNature::regular:
                    if (contents_[directory][i].there) put(path, directory, file);
                    break;
                case FileNature::missing:
                    break;
                case FileNature::link_outside:
                    put(elsewhere, directory, file);
                    std::filesystem::create_symlink(elsewhere, path);
                    break;
                case FileNature::link_inside:
                    std::filesystem::create_symlink("data", path);
                    break;
                case FileNature::pipe:
                    static_cast<void>(::mkfifo(path.c_str(), 0600));
                    break;
                case FileNature::directory:
                    std::filesystem::create_directory(path);
            }
        }
    }
}

Bytes StoreImage::of_store(const std::vector<std::string>& directories) {
    std::vector<Section> sections;
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const auto tag = [i](Tag first) { return static_cast<std::uint8_t>(first + i); };
        const Bytes data = read_file(directories[i] + "/data");
        sections.push_back({tag(locks), read_file(directories[i] + "/lock")});
        sections.push_back({tag(data_heads), without_zeros_at_the_end(data)});
        sections.push_back({tag(data_lengths), bytes_of_number(data.size())});
    }
    for (std::uint8_t file = 0; file < 2; ++file) {
        const Bytes places = read_file(directories[0] + "/" + image_file_names[2 + file]);
        const auto whole = std::span(places);
        sections.push_back({static_cast<std::uint8_t>(2 * file), one_copy(whole.first(places.size() / 2))});
        sections.push_back({static_cast<std::uint8_t>(2 * file + 1), one_copy(whole.subspan(places.size() / 2))});
    }
    sections.push_back({plan, {static_cast<std::byte>(directories.size() - 1)}});
    return join(sections);
}

Bytes StoreImage::with_nature(Bytes input, std::size_t directory, ImageFile file, FileNature nature) {
    const auto place = static_cast<std::byte>(directory * image_file_names.size() + static_cast<std::size_t>(file));
    const Bytes section = join({{natures, {place, static_cast<std::byte>(nature)}}});
    input.insert(input.end(), section.begin(), section.end());
    return input;
}

void StoreImage::mutate(Bytes& bytes, Random& random, const RawMutation& raw) {
    mutate_sections(bytes, random, raw, tag_count, mutate_section);
    if (random() % 2 == 0) return;
    std::vector<Section> sections = split(bytes);
    std::array<Bytes, image_directories> data;
    for (const Section& section : sections) {
        if (section.tag >= data_heads && section.tag < data_lengths) data[section.tag - data_heads] = section.bytes;
    }
    for (Section& section : sections) {
        if (section.tag < manifest_lengths) hash_tiles(section.bytes, data);
    }
    bytes = join(sections);
}

}  // namespace penstock::fuzz
