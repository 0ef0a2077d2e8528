#include "zero_infinity/ranks/in_pieces.h"

#include <algorithm>
#include <vector>

namespace penstock::zero {

void gather_in_pieces(Transport& transport, std::span<const std::byte> shard, std::span<std::byte> all,
                      std::size_t piece_bytes) {
    for (std::size_t at = 0; at < shard.size(); at += piece_bytes) {
        const std::size_t bytes = std::min(piece_bytes, shard.size() - at);
        transport.all_gather(shard.subspan(at, bytes), {all.data() + at, shard.size(), bytes});
    }
}

void reduce_in_pieces(Transport& transport, const ReduceCall& call, std::span<std::byte> area,
                      std::size_t piece_bytes) {
    const std::size_t part = call.addend.size() / transport.ranks();
    std::vector<const std::byte*> addends(transport.ranks());
    for (std::size_t at = 0; at < part; at += piece_bytes) {
        const std::size_t bytes = std::min(piece_bytes, part - at);
        const RankBlocks come{area.data(), bytes, bytes};
        transport.exchange({call.addend.data() + at, part, bytes}, come);
        for (std::uint32_t rank = 0; rank < transport.ranks(); ++rank) addends[rank] = come.of(rank);
        const std::uint64_t first = at / bytes_of(call.wire);
        sum_in_order(addends, call.wire, call.of, call.start, call.type, call.sum.data() + first * bytes_of(call.type),
                     bytes / bytes_of(call.wire));
    }
}

}  // namespace penstock::zero
