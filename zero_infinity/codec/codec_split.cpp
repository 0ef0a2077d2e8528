// The codec `split`: the fp32 master as two 16-bit halves, of which the upper one is the weight.
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/kernels.h"

namespace penstock::zero {
namespace {

void decode(const std::byte* weights, const std::byte* master, float* value, std::size_t count) noexcept {
    kernels().join(reinterpret_cast<const std::uint16_t*>(weights), reinterpret_cast<const std::uint16_t*>(master),
                   value, count);
}

void encode(const float* value, std::byte* weights, std::byte* master, std::size_t count) noexcept {
    kernels().split(value, reinterpret_cast<std::uint16_t*>(weights), reinterpret_cast<std::uint16_t*>(master), count);
}

constexpr StatePlane states[] = {
    {PlaneOf::moment0, PlaneType::fp32}, {PlaneOf::moment1, PlaneType::fp32}, {PlaneOf::master, PlaneType::u16}};

constexpr Codec codec{.name = "split",
                      .weights = PlaneType::bf16,
                      .states = states,
                      .exact = true,
                      .master_needs_weights = true,
                      .form = EncodedForm::split,
                      .decode_master = decode,
                      .encode_master = encode};

}  // namespace

const Codec& split_codec() noexcept {
    return codec;
}

}  // namespace penstock::zero
