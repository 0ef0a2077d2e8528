// What all ranks go on from together: the newest generation that each of them has, of one life.
//
// A set is the stores of one run at one number of ranks, one per rank. By the rule of CommitBarrier their newest
// generations differ by one at most, and who is ahead has written nothing since: what it would go back to is whole.
#pragma once

#include "aio/words/error.h"
#include "swap/format/manifest.h"
#include "zero_infinity/layout/unit.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// What is known of the tiles that a generation names.
enum class FoundTiles : std::uint8_t {
    unread,   // not all were read: they are as the rules of commits leave them
    right,    // each was read, and is what was written
    damaged,  // one was read, and is not
};

struct FoundGeneration {
    std::uint64_t generation = 0;
    std::uint64_t incarnation = 0;  // of the life that committed it
    FoundTiles tiles = FoundTiles::unread;
};

// A store with something committed. Of a fixed length, so that one gather brings those of all ranks.
struct FoundStore {
    store::StoreUuid set{};
    std::uint64_t epoch = 1;  // of the set: one more than that of the set that it was re-sharded from
    Partition place;          // of the store in its set
    FoundGeneration newest;
    std::optional<FoundGeneration> previous;  // Recovery::previous
    bool doubtful = false;                    // Recovery::doubtful(): a newer one may be lost; the tiles were read
};

// What one rank of the run found: nothing, the store in its own place, those of other sets that no lower rank sees.
using FoundStores = std::vector<FoundStore>;

// What a rank does at its opening. Whoever has done it waits for all others before the first write (CommitBarrier).
enum class RecoveryStep : std::uint8_t {
    take,             // the newest generation
    go_back,          // erases the newest, durably, and takes the one before
    verify_previous,  // reads all tiles of the one before; then all ranks decide again, before anybody does anything
    make,             // a new store, over what is there
};

struct SetDecision {
    store::StoreUuid set{};           // all zero: a new one
    std::uint64_t generation = 0;     // that all ranks will have
    std::vector<RecoveryStep> steps;  // by rank
    std::optional<Error> refusal;     // for all ranks to throw; then there are no steps, and nothing may be changed
};

// By rank of the run. Every rank decides by itself, with the same answer. The newest set counts whose generation 0 was
// committed on all its ranks, or of which a rank is past generation 0: any other is a creation or a re-sharding that
// was interrupted, and holds nothing that cannot be made again. Refuses (storage) stores that are lost, damaged, of
// several runs or put back from copies of several moments, and (usage) a set of another number of ranks.
SetDecision decide(std::span<const FoundStores> of_all_ranks);

}  // namespace penstock::zero
