#include "zero_infinity/codec.h"

#include "aio/check.h"

#include <array>

namespace penstock {
namespace {

// The one list of codecs; a new one is added here. In the order in which they are shown to users.
std::array<const Codec*, 4> all_codecs() noexcept {
    return {&split_codec(), &plain_fp32_codec(), &plain_bf16_codec(), &plain_fp16_codec()};
}

}  // namespace

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

std::uint64_t StateFormat::weights_bytes() const noexcept { return bytes_of(codec->weights); }

std::uint64_t StateFormat::states_bytes() const noexcept {
    const std::uint64_t master_bytes = codec->has_master_plane ? bytes_of(codec->master_plane) : 0;
    return moments * bytes_of(codec->moments) + master_bytes;
}

std::uint64_t StateFormat::moment_offset_bytes(std::uint32_t moment, std::uint64_t tile_numel) const noexcept {
    PENSTOCK_CHECK(moment < moments, "moment {} of {}", moment, moments);
    return moment * bytes_of(codec->moments) * tile_numel;
}

std::uint64_t StateFormat::master_offset_bytes(std::uint64_t tile_numel) const noexcept {
    PENSTOCK_CHECK(codec->has_master_plane, "codec {} keeps no master in the states", codec->name);
    return moments * bytes_of(codec->moments) * tile_numel;
}

const char* to_string(PlaneType type) noexcept {
    switch (type) {
        case PlaneType::u8: return "u8";
        case PlaneType::u16: return "u16";
        case PlaneType::bf16: return "bf16";
        case PlaneType::fp16: return "fp16";
        case PlaneType::fp32: return "fp32";
    }
    return "unknown";
}

}  // namespace penstock
