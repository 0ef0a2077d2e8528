// A device that reports success and lies: it returns other bytes than are stored, stores other bytes than it was
// given, stores them elsewhere or not at all. aio cannot see that; the store must: every tile is read right or refused
// as damaged with its file and offset, never silently wrong. A library without GoogleTest, as
// tests/aio/fakes/fault_matrix.h.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "tests/aio/fakes/faulty_backend.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

// Chances while tiles are written and while they are read. Commits are sound: manifests have tests of their own.
struct Lie {
    const char* name;
    aio::FaultChances writing;
    aio::FaultChances reading;
};
const std::vector<Lie>& lies();

// What offsets of a file in the directory must be multiples of.
std::uint32_t alignment_of(const TemporaryDirectory& scratch, aio::Caching caching);

// Each run has a store of its own, a few generations long, and depends on its seed alone. Not thread-safe.
class WrongDataMatrix {
   public:
    explicit WrongDataMatrix(const Lie& lie);

    // What is wrong with this run; empty when every lie was found.
    std::vector<std::string> run(std::uint64_t seed);

    // Sums over all runs so far.
    struct Tally {
        aio::FaultCounts struck;
        std::uint64_t reads = 0;
        std::uint64_t damaged = 0;     // reads that were refused
        std::uint64_t read_again = 0;  // reads that were right the second time
    };
    const Tally& tally() const noexcept { return tally_; }

   private:
    const Lie& lie_;
    std::unique_ptr<aio::Backend> backend_;
    Tally tally_;
};

}  // namespace penstock::testing
