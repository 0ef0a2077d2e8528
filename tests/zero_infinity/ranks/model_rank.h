// One rank of a CommitModel: what lies on its drive, and how far it is.
#pragma once

#include "zero_infinity/ranks/set_recovery.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace penstock::testing {

using Byte = std::uint8_t;

// What was written by whom. `count`: generation + 1; 0: nothing whole.
struct Tag {
    Byte count, incarnation, set;
    bool operator==(const Tag&) const = default;
};

struct Copy {  // of a manifest
    Tag of;
    Byte slot;
    std::pair<Byte, Byte> recency() const { return {of.count, of.incarnation}; }
};

enum class Stage : Byte {
    ended,
    recovering,  // has decided, and done nothing yet
    asking,      // is at before_write()
    cleared,     // may write
    torn,        // writes
    flushed,
    copied,  // the manifest's first copy is whole
};

enum class Word : Byte { none, owed, said };  // in the small collective of this step

struct Rank {
    std::array<std::array<Copy, 2>, 2> manifests;  // by file, by copy
    std::array<Tag, 2> slots;
    Stage stage;
    zero::RecoveryStep step;
    Byte next;         // generation
    Byte mine, least;  // CommitBarrier's, + 1
    Word word;
};

struct Look {
    std::optional<Copy> newest, previous;
    bool doubtful = false;
};

Look look_at(const Rank& rank);  // as swap/directory/recovery.cpp looks
bool is_intact(const Rank& rank, const Copy& copy);
zero::FoundTiles read_tiles(const Rank& rank, const Copy& copy);
std::size_t other_slot(const Rank& rank);  // where the next generation is written

// It carries out what was decided, and has then committed something, or creates.
void recover(Rank& rank);

}  // namespace penstock::testing
