#include "tests/fuzz/sections.h"

#include "swap/format/little_endian.h"

#include <algorithm>
#include <array>

namespace penstock::fuzz {
namespace {

constexpr std::size_t head_bytes = 5;

}  // namespace

std::vector<Section> split(std::span<const std::byte> input) {
    std::vector<Section> sections;
    while (input.size() >= head_bytes && sections.size() < max_sections) {
        const std::size_t wanted = store::load_u32(input.data() + 1);
        const auto body = input.subspan(head_bytes, std::min(wanted, input.size() - head_bytes));
        sections.push_back({.tag = std::to_integer<std::uint8_t>(input[0]), .bytes = {body.begin(), body.end()}});
        input = input.subspan(head_bytes + body.size());
    }
    return sections;
}

Bytes join(const std::vector<Section>& sections) {
    Bytes bytes;
    for (const Section& section : sections) {
        std::array<std::byte, head_bytes> head{std::byte{section.tag}};
        store::store_u32(head.data() + 1, static_cast<std::uint32_t>(section.bytes.size()));
        bytes.insert(bytes.end(), head.begin(), head.end());
        bytes.insert(bytes.end(), section.bytes.begin(), section.bytes.end());
    }
    return bytes;
}

void mutate_sections(Bytes& bytes, Random& random, const RawMutation& raw, std::uint8_t tag_count,
                     void (*mutate_section)(Section&, Random&, const RawMutation&)) {
    std::vector<Section> sections = split(bytes);
    if (sections.empty()) sections.push_back({});
    const std::size_t at = random() % sections.size();
    const auto any_tag = [&] { return static_cast<std::uint8_t>(random() % tag_count); };
    switch (random() % 16) {
        case 0:
            if (sections.size() < max_sections) sections.push_back({.tag = any_tag(), .bytes = {}});
            break;
        case 1:
            sections.erase(sections.begin() + static_cast<std::ptrdiff_t>(at));
            break;
        case 2:
            if (sections.size() < max_sections) sections.push_back({.tag = any_tag(), .bytes = sections[at].bytes});
            break;
        case 3:
            sections[at].tag = any_tag();
            break;
        default:
            mutate_section(sections[at], random, raw);
    }
    bytes = join(sections);
}

}  // namespace penstock::fuzz
