#include "zero_infinity/codec/codec.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"

#include <array>
#include <numeric>

namespace penstock::zero {
namespace {

// The one list of codecs; a new one is added here. In the order in which they are shown to users.
std::array<const Codec*, 5> all_codecs() noexcept {
    return {&split_codec(), &plain_fp32_codec(), &plain_bf16_codec(), &plain_fp16_codec(), &compact_codec()};
}

const StatePlane* find(const Codec& codec, PlaneOf of, bool scales) noexcept {
    for (const StatePlane& plane : codec.states)
        if (plane.of == of && (plane.elements > 1) == scales) return &plane;
    return nullptr;
}

}  // namespace

const StatePlane* Codec::plane(PlaneOf of) const noexcept {
    return find(*this, of, false);
}
const StatePlane* Codec::scales(PlaneOf of) const noexcept {
    return find(*this, of, true);
}

const Codec* find_codec(std::string_view name) noexcept {
    for (const Codec* codec : all_codecs())
        if (codec->name == name) return codec;
    return nullptr;
}

std::vector<std::string_view> codec_names() {
    std::vector<std::string_view> names;
    for (const Codec* codec : all_codecs()) names.push_back(codec->name);
    return names;
}

std::uint64_t StateFormat::weights_bytes() const noexcept {
    return bytes_of(codec->weights);
}

bool StateFormat::keeps(const StatePlane& plane) const noexcept {
    return plane.of == PlaneOf::master || (plane.of == PlaneOf::moment0 ? moments > 0 : moments > 1);
}

Ratio StateFormat::states_bytes() const noexcept {
    Ratio sum;
    for (const StatePlane& plane : codec->states) {
        if (!keeps(plane)) continue;
        const std::uint64_t common = std::lcm(sum.denominator, std::uint64_t{plane.elements});
        sum.numerator = sum.numerator * (common / sum.denominator) + bytes_of(plane.type) * (common / plane.elements);
        sum.denominator = common;
    }
    const std::uint64_t divisor = std::gcd(sum.numerator, sum.denominator);
    return {sum.numerator / divisor, sum.denominator / divisor};
}

std::uint64_t StateFormat::states_bytes(std::uint64_t tile_numel) const noexcept {
    std::uint64_t end = 0;
    for (const StatePlane& plane : codec->states) {
        if (!keeps(plane)) continue;
        const std::uint64_t values = (tile_numel + plane.elements - 1) / plane.elements;
        end = round_up(end, bytes_of(plane.type)) + values * bytes_of(plane.type);
    }
    return end;
}

std::uint64_t StateFormat::offset_bytes(const StatePlane& wanted, std::uint64_t tile_numel) const noexcept {
    std::uint64_t end = 0;
    for (const StatePlane& plane : codec->states) {
        if (!keeps(plane)) continue;
        const std::uint64_t begin = round_up(end, bytes_of(plane.type));
        if (&plane == &wanted) return begin;
        end = begin + (tile_numel + plane.elements - 1) / plane.elements * bytes_of(plane.type);
    }
    PENSTOCK_CHECK(false, "codec {} keeps no such plane", codec->name);
}

std::uint64_t StateFormat::moment_offset_bytes(std::uint32_t moment, std::uint64_t tile_numel) const noexcept {
    PENSTOCK_CHECK(moment < moments && moments <= 2, "moment {} of {}", moment, moments);
    return offset_bytes(*codec->plane(plane_of_moment(moment)), tile_numel);
}

std::uint64_t StateFormat::master_offset_bytes(std::uint64_t tile_numel) const noexcept {
    const StatePlane* plane = codec->plane(PlaneOf::master);
    PENSTOCK_CHECK(plane != nullptr, "codec {} keeps no master in the states", codec->name);
    return offset_bytes(*plane, tile_numel);
}

}  // namespace penstock::zero
