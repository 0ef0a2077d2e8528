// The codec `compact`; its arithmetic is in compact.h.
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/compact.h"
#include "zero_infinity/kernels/kernels.h"

namespace penstock::zero {
namespace {

std::uint8_t* u8(std::byte* bytes) noexcept {
    return reinterpret_cast<std::uint8_t*>(bytes);
}
std::uint16_t* u16(std::byte* bytes) noexcept {
    return reinterpret_cast<std::uint16_t*>(bytes);
}
const std::uint8_t* u8(const std::byte* bytes) noexcept {
    return reinterpret_cast<const std::uint8_t*>(bytes);
}
const std::uint16_t* u16(const std::byte* bytes) noexcept {
    return reinterpret_cast<const std::uint16_t*>(bytes);
}

void decode_master(const std::byte* weights, const std::byte* own, float* value, std::size_t count) noexcept {
    kernels().join_compact(u16(weights), u8(own), value, count);
}

void encode_master(const float* value, std::byte* weights, std::byte* own, std::size_t count) noexcept {
    kernels().split_compact(value, u16(weights), u8(own), count);
}

void decode_moment(MomentKind kind, const std::byte* values, const std::byte* scales, float* moment,
                   std::size_t count) noexcept {
    const auto decode = kind == MomentKind::square ? kernels().decode_squares : kernels().decode_signed;
    decode(u8(values), u16(scales), moment, count);
}

void encode_moment(MomentKind kind, const float* moment, std::byte* values, std::byte* scales,
                   std::size_t count) noexcept {
    const auto encode = kind == MomentKind::square ? kernels().encode_squares : kernels().encode_signed;
    encode(moment, u8(values), u16(scales), count);
}

constexpr StatePlane states[] = {{PlaneOf::moment0, PlaneType::u8},
                                 {PlaneOf::moment1, PlaneType::u8},
                                 {PlaneOf::master, PlaneType::u8},
                                 {PlaneOf::moment0, PlaneType::u16, compact_block},
                                 {PlaneOf::moment1, PlaneType::u16, compact_block}};

constexpr Codec codec{.name = "compact",
                      .weights = PlaneType::bf16,
                      .states = states,
                      .exact = false,
                      .master_needs_weights = true,
                      .form = EncodedForm::compact,
                      .error = {.master = 0x1p-16,
                                .master_tiny = 0x1p-142,
                                .moment = 1.0 / 125,
                                .root = 1.0 / 254,
                                .least_largest = compact_least_scale,
                                .moment_limit = compact_largest_scale},
                      .decode_master = decode_master,
                      .encode_master = encode_master,
                      .decode_moment = decode_moment,
                      .encode_moment = encode_moment};

}  // namespace

const Codec& compact_codec() noexcept {
    return codec;
}

}  // namespace penstock::zero
