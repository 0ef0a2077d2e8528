// Bad disks under a store, from a seed: errors, lies, files that are not what they were. Whatever the fault, each tile
// is read right or refused by name, each commit has happened or is refused by name, and what was committed before is
// there again when the store is opened anew, or that is refused by name. A library without GoogleTest.
#pragma once

#include "aio/backend.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/swap/bad_disks/faults_image.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// What befalls single attempts, by a chance in percent.
enum class Blow : std::uint8_t {
    none,
    io_error,     // EIO
    no_space,     // ENOSPC
    no_bytes,     // 0 bytes moved, and no reason named
    torn,         // a write: some of its first sectors land, then EIO
    lost,         // a write: success, and nothing lands
    flipped,      // a write: success, and one bit lands wrong
    misdirected,  // a write: success, and it lands at another place or in another file of the store
    slow,         // seconds later, before the deadline
    stuck,        // not before the store's owner was told
};

enum class Target : std::uint8_t { reads, writes, flushes, manifest_writes, all };

// Whether an older generation may be found, wholly: with a note, or without one where nobody can know of a newer one.
enum class GoingBack : std::uint8_t { never, noted, rarely_noted, unnoticed };

struct BadDisk {
    const char* name;
    enum class Kind : std::uint8_t {
        attempts,  // a blow, or `chances`, while tiles are read and written and generations committed
        creation,  // a blow while the store is made
        files,     // `harm`, while no store is open
        removal,   // the files lose their names while the store is open
    };
    Kind kind = Kind::attempts;
    Blow blow = Blow::none;
    Target target = Target::all;
    int percent = 0;
    aio::FaultChances chances = {};
    Harm harm = nullptr;
    bool may_refuse_to_open = false;
    GoingBack going_back = GoingBack::never;
};
const std::vector<BadDisk>& bad_disks();

struct FaultTally {
    std::uint64_t runs = 0;
    std::uint64_t faults = 0;
    std::uint64_t right = 0;    // tiles
    std::uint64_t refused = 0;  // tiles, by object, tile, file and offset
    std::uint64_t committed = 0;
    std::uint64_t commits_refused = 0;  // by file
    std::uint64_t opened = 0;           // or made
    std::uint64_t opens_refused = 0;    // by directory
    std::uint64_t went_back = 0;        // of the opened: with an older generation
    std::uint64_t stuck = 0;            // attempts that were named
    FaultTally& operator+=(const FaultTally& other);
};

// Each run has stores of its own and depends on its seed alone. Not thread-safe.
class FaultsMatrix {
   public:
    explicit FaultsMatrix(const BadDisk& disk);

    // What is wrong with this run; empty when every fault was survived or named.
    std::vector<std::string> run(std::uint64_t seed);
    const FaultTally& tally() const noexcept { return tally_; }

   private:
    const BadDisk& disk_;
    std::unique_ptr<aio::Backend> backend_;
    FaultTally tally_;
};

}  // namespace penstock::testing
