// The files of a store of up to two directories, as an input gives them: contents, lengths, and what kind of file each
// is, links that lead elsewhere included.
#pragma once

#include "swap/format/lock_text.h"
#include "tests/fuzz/sections.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace penstock::fuzz {

inline constexpr std::size_t image_directories = 2;

enum class ImageFile : std::uint8_t { lock, data, manifest_0, manifest_1 };
inline constexpr std::array image_file_names = {"lock", "data", "manifest.0", "manifest.1"};

enum class FileNature : std::uint8_t {
    regular,
    missing,
    link_outside,  // to a file of the same content in the directory `outside`
    link_inside,   // to the directory's own data
    pipe,
    directory,
};
inline constexpr std::uint8_t file_nature_count = 6;

// What an input says. Contents begin at offset 0 (of a manifest: two copies, each at the beginning of its place).
class StoreImage {
   public:
    static constexpr std::uint8_t tag_count = 14;

    explicit StoreImage(std::span<const std::byte> input);
    // The files beneath `path`, a store that some program left, as an input.
    static Bytes of_store(const std::vector<std::string>& directories);
    // The same input, but for the nature of one file.
    static Bytes with_nature(Bytes input, std::size_t directory, ImageFile file, FileNature nature);

    // Makes root/0, root/1 and root/outside. Lengths are bounded: 8 MiB of a manifest, 2^62 of data, without disk
    // space.
    void build(const std::string& root) const;

    FileNature nature(std::size_t directory, ImageFile file) const {
        return natures_[directory][static_cast<std::size_t>(file)];
    }
    std::optional<store::LockText> lock(std::size_t directory) const;
    std::vector<std::size_t> given() const;  // the directories, in the order in which a user gives them
    bool buffered() const { return (plan_ & 4) != 0; }

    // Changes a section by what it means; then often sets the hashes of tiles right, so that they can be read.
    static void mutate(Bytes& bytes, Random& random, const RawMutation& raw);

   private:
    struct Content {
        std::array<Bytes, 2> copies;  // the second only of a manifest
        std::optional<std::uint64_t> length;
        bool there = false;
    };
    std::uint64_t length_of(std::size_t directory, ImageFile file) const;
    void put(const std::string& path, std::size_t directory, ImageFile file) const;

    std::array<std::array<Content, image_file_names.size()>, image_directories> contents_;
    std::array<std::array<FileNature, image_file_names.size()>, image_directories> natures_{};
    unsigned plan_ = 0;
};

}  // namespace penstock::fuzz
