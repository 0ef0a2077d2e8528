// What a store holds after a run, read back through the store itself.
#pragma once

#include "swap/format/manifest.h"
#include "tests/zero_infinity/engine/reference_loop.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

struct Snapshot {
    std::map<std::string, std::vector<std::byte>> objects;  // logical bytes, all tiles
    store::ClientState client;
    std::uint64_t generation = 0;
    bool operator==(const Snapshot&) const = default;
};

// Every tile of the newest committed generation, verified.
Snapshot read_snapshot(const std::vector<std::string>& directories, const std::string& job);
inline Snapshot read_snapshot(const std::string& directory, const std::string& job) {
    return read_snapshot(std::vector{directory}, job);
}

// "unit/parameter" → master and moments, decoded from the objects of a model with these units. The kinds of moments are
// Adam's: of others, with exact codecs only.
std::map<std::string, ReferenceState> decode_states(const Snapshot& snapshot, const engine::Model& model,
                                                    const std::string& codec, std::uint64_t tile_numel,
                                                    std::uint32_t moments = 2);

}  // namespace penstock::testing
