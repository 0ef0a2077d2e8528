// The codecs `plain_*`: the fp32 master whole, as the weight itself or beside a 16-bit weight rounded from it.
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/kernels.h"

#include <algorithm>

namespace penstock::zero {
namespace {

void copy(const float* from, std::byte* to, std::size_t count) noexcept {
    std::copy_n(from, count, reinterpret_cast<float*>(to));
}

void copy(const std::byte* from, float* to, std::size_t count) noexcept {
    std::copy_n(reinterpret_cast<const float*>(from), count, to);
}

// fp32: the weight is the master; there is no master plane.
void decode_weights(const std::byte* weights, const std::byte*, float* value, std::size_t count) noexcept {
    copy(weights, value, count);
}

void encode_weights(const float* value, std::byte* weights, std::byte*, std::size_t count) noexcept {
    copy(value, weights, count);
}

// 16 bits: the master has its own plane; weights are only ever written.
void decode_master(const std::byte*, const std::byte* master, float* value, std::size_t count) noexcept {
    copy(master, value, count);
}

void encode_bf16(const float* value, std::byte* weights, std::byte* master, std::size_t count) noexcept {
    copy(value, master, count);
    kernels().narrow_bf16(value, reinterpret_cast<std::uint16_t*>(weights), count);
}

void encode_fp16(const float* value, std::byte* weights, std::byte* master, std::size_t count) noexcept {
    copy(value, master, count);
    kernels().narrow_fp16(value, reinterpret_cast<std::uint16_t*>(weights), count);
}

constexpr StatePlane moments_only[] = {{PlaneOf::moment0, PlaneType::fp32}, {PlaneOf::moment1, PlaneType::fp32}};
constexpr StatePlane with_master[] = {
    {PlaneOf::moment0, PlaneType::fp32}, {PlaneOf::moment1, PlaneType::fp32}, {PlaneOf::master, PlaneType::fp32}};

constexpr Codec fp32{.name = "plain_fp32",
                     .weights = PlaneType::fp32,
                     .states = moments_only,
                     .exact = true,
                     .master_needs_weights = true,
                     .form = EncodedForm::fp32,
                     .decode_master = decode_weights,
                     .encode_master = encode_weights};

constexpr Codec bf16{.name = "plain_bf16",
                     .weights = PlaneType::bf16,
                     .states = with_master,
                     .exact = true,
                     .master_needs_weights = false,
                     .decode_master = decode_master,
                     .encode_master = encode_bf16};

constexpr Codec fp16{.name = "plain_fp16",
                     .weights = PlaneType::fp16,
                     .states = with_master,
                     .exact = true,
                     .master_needs_weights = false,
                     .decode_master = decode_master,
                     .encode_master = encode_fp16};

}  // namespace

const Codec& plain_fp32_codec() noexcept {
    return fp32;
}
const Codec& plain_bf16_codec() noexcept {
    return bf16;
}
const Codec& plain_fp16_codec() noexcept {
    return fp16;
}

}  // namespace penstock::zero
