// Large collectives in pieces, so that memory for what is on its way is bounded: for collectives.h and lane.h.
#pragma once

#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/ranks/transport.h"

#include <cstddef>
#include <span>

namespace penstock::zero {

// `all` becomes the shards of all ranks, one behind the other.
void gather_in_pieces(Transport& transport, std::span<const std::byte> shard, std::span<std::byte> all,
                      std::size_t piece_bytes);

// `sum` becomes this rank's part of the sum over all ranks: sum_in_order() of optimizer/gradient.h.
struct ReduceCall {
    std::span<const std::byte> addend;  // of this rank, to the parts of all ranks in their order: elements of `wire`
    PlaneType wire = PlaneType::fp32;
    SumOf of = SumOf::total;
    SumStart start = SumStart::fresh;
    PlaneType type = PlaneType::fp32;
    std::span<std::byte> sum;  // of `type`, as many elements as a part; does not overlap `addend`
};

// REQUIRES: pieces of whole elements; `area` has a piece of each rank.
void reduce_in_pieces(Transport& transport, const ReduceCall& call, std::span<std::byte> area, std::size_t piece_bytes);

}  // namespace penstock::zero
