#include "zero_infinity/layout/unit.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "pinned_pool/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

namespace penstock::zero {
namespace {

// Elements of one unit at most: 2^56, so that bytes of any format and the padding of any rank count do not overflow.
constexpr std::uint64_t max_numel = 1ULL << 56;

std::uint32_t tiles_of(std::uint64_t numel, std::uint64_t tile_numel) {
    const std::uint64_t tiles = (numel + tile_numel - 1) / tile_numel;
    PENSTOCK_CHECK(tiles <= std::numeric_limits<std::uint32_t>::max(), "{} elements in tiles of {}", numel, tile_numel);
    return static_cast<std::uint32_t>(tiles);
}

void check_names(const UnitSpec& unit) {
    if (unit.name.empty()) throw Error(ExitCode::usage, "a unit of the model has no name");
    std::set<std::string_view> seen;
    for (const ParameterSpec& parameter : unit.parameters)
        if (!seen.insert(parameter.name).second)
            throw Error(ExitCode::usage,
                        fmt::format("unit '{}' has two parameters named '{}'", unit.name, parameter.name));
}

void check_frozen_type(const UnitSpec& unit) {
    if (unit.frozen_type == PlaneType::u16)
        throw Error(ExitCode::usage, fmt::format("unit '{}': frozen parameters are bf16, fp16, fp32 or u8", unit.name));
}

std::uint64_t checked_numel(const UnitSpec& unit, const ParameterSpec& parameter) {
    const std::uint64_t numel = parameter.numel();
    if (numel == 0)
        throw Error(ExitCode::usage,
                    fmt::format("parameter '{}' of unit '{}' has no elements", parameter.name, unit.name));
    return numel;
}

}  // namespace

ParameterCount count_parameters(std::span<const UnitSpec> units) {
    ParameterCount count;
    for (const UnitSpec& unit : units)
        for (const ParameterSpec& parameter : unit.parameters) {
            const std::uint64_t numel = parameter.numel();
            count.all += numel;
            if (parameter.training == Training::trainable) count.trainable += numel;
        }
    return count;
}

UnitLayout::UnitLayout(UnitSpec spec, Partition partition, std::uint64_t tile_numel)
    : spec_(std::move(spec)), partition_(partition), tile_numel_(tile_numel) {
    PENSTOCK_CHECK(tile_numel > 0 && tile_numel % tile_alignment == 0, "tile_numel {} is no multiple of {}", tile_numel,
                   tile_alignment);
    PENSTOCK_CHECK(partition.rank < partition.ranks, "rank {} of {}", partition.rank, partition.ranks);
    check_names(spec_);
    check_frozen_type(spec_);
    for (const ParameterSpec& parameter : spec_.parameters) {
        std::uint64_t& end = parameter.training == Training::frozen ? frozen_numel_ : trainable_numel_;
        const std::uint64_t numel = checked_numel(spec_, parameter);
        places_.push_back({parameter.training, end, numel});
        end += round_up(numel, parameter_alignment);
        if (end > max_numel)
            throw Error(ExitCode::usage, fmt::format("unit '{}' has more than {} elements", spec_.name, max_numel));
    }
    // Padded to no more than the alignment, so that a unit of one small norm stays small: the store rounds extents
    // itself.
    const std::uint64_t shards_alignment = parameter_alignment * partition.ranks;
    trainable_numel_ = round_up(trainable_numel_, shards_alignment);
    frozen_numel_ = round_up(frozen_numel_, shards_alignment);
}

std::uint64_t UnitLayout::parameter_numel() const noexcept {
    std::uint64_t numel = 0;
    for (const ParameterPlace& place : places_) numel += place.numel;
    return numel;
}

std::uint64_t UnitLayout::shard_numel() const noexcept {
    return trainable_numel_ / partition_.ranks;
}
std::uint64_t UnitLayout::frozen_shard_numel() const noexcept {
    return frozen_numel_ / partition_.ranks;
}
std::uint64_t UnitLayout::shard_first() const noexcept {
    return shard_numel() * partition_.rank;
}

std::uint64_t UnitLayout::frozen_shard_first() const noexcept {
    return frozen_shard_numel() * partition_.rank;
}

std::uint32_t UnitLayout::tile_count() const noexcept {
    return tiles_of(shard_numel(), tile_numel_);
}
std::uint32_t UnitLayout::frozen_tile_count() const noexcept {
    return tiles_of(frozen_shard_numel(), tile_numel_);
}

std::uint64_t UnitLayout::tile_numel(std::uint32_t tile) const {
    PENSTOCK_CHECK(tile < tile_count(), "tile {} of {} in unit '{}'", tile, tile_count(), spec_.name);
    return std::min(tile_numel_, shard_numel() - tile * tile_numel_);
}

std::uint64_t UnitLayout::frozen_tile_numel(std::uint32_t tile) const {
    PENSTOCK_CHECK(tile < frozen_tile_count(), "frozen tile {} of {} in unit '{}'", tile, frozen_tile_count(),
                   spec_.name);
    return std::min(tile_numel_, frozen_shard_numel() - tile * tile_numel_);
}

std::vector<store::ObjectSpec> UnitLayout::objects(const StateFormat& format) const {
    std::vector<store::ObjectSpec> objects;
    const auto append = [&](const char* kind, std::uint64_t numel, auto tile_bytes) {
        if (numel == 0 || tile_bytes(tile_alignment) == 0) return;
        const std::uint64_t stride = pool::whole_granules(tile_bytes(tile_numel_));
        const std::uint64_t whole_tiles = (numel - 1) / tile_numel_;
        const std::uint64_t bytes = whole_tiles * stride + tile_bytes(numel - whole_tiles * tile_numel_);
        objects.push_back({spec_.name + "." + kind, bytes, stride});
    };
    const auto weights = [&](std::uint64_t numel) { return numel * format.weights_bytes(); };
    const auto states = [&](std::uint64_t numel) { return format.states_bytes(numel); };
    const auto frozen = [&](std::uint64_t numel) { return numel * bytes_of(weight_type(Training::frozen, format)); };
    append("weights", shard_numel(), weights);
    append("states", shard_numel(), states);
    append("frozen", frozen_shard_numel(), frozen);
    return objects;
}

std::uint64_t ParameterSpec::numel() const {
    std::uint64_t product = 1;
    for (const std::int64_t extent : shape) {
        const auto factor = static_cast<std::uint64_t>(extent);
        if (extent < 0 || __builtin_mul_overflow(product, factor, &product) || product > max_numel)
            throw Error(ExitCode::usage,
                        fmt::format("parameter '{}' has the impossible shape [{}]", name, fmt::join(shape, ", ")));
    }
    return product;
}

}  // namespace penstock::zero
