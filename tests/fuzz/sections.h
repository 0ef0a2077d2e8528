// One input that stands for several files: sections with a tag, one after the other.
#pragma once

#include "tests/fuzz/fuzz_target.h"

#include <cstdint>

namespace penstock::fuzz {

struct Section {
    std::uint8_t tag = 0;
    Bytes bytes;
};

inline constexpr std::size_t max_sections = 16;

// Any bytes are sections: tag u8, length u32, that many bytes or as many as there are; at most max_sections.
std::vector<Section> split(std::span<const std::byte> input);
Bytes join(const std::vector<Section>& sections);

// Changes one section, by `mutate_section` if that is its choice, or adds, drops, doubles or renames one.
void mutate_sections(Bytes& bytes, Random& random, const RawMutation& raw, std::uint8_t tag_count,
                     void (*mutate_section)(Section&, Random&, const RawMutation&));

}  // namespace penstock::fuzz
