// The fault matrix: each fault x each backend x read and write x direct and buffered ends in right data or a clear
// error, never silence, never a hang, also where the caller promotes meanwhile. A library without
// GoogleTest: the tests run it on the product, the controls in mutants/ on a product with a fault of its own.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "aio/io.h"
#include "tests/aio/fakes/faulty_backend.h"
#include "tests/aio/fakes/scratch.h"

#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::aio {

struct Fault {
    const char* name;
    FaultChances chances;
    std::set<int> errors;  // that may be reported; 0 is a count of nothing
};
const std::vector<Fault>& faults();
const std::vector<BackendKind>& fault_backends();

// Bounds so small that a few blocks meet them.
IoLimits draw_limits(std::mt19937_64& random);

// One fault over one backend; its runs share the backend and the files. A run depends on its seed alone. Not
// thread-safe.
class FaultMatrix {
   public:
    static constexpr std::size_t block_bytes = 4096;
    static constexpr std::size_t file_bytes = 32 * block_bytes;
    static constexpr std::uint64_t combinations = 4;  // consecutive seeds go through read, write x direct, buffered

    // Throws Error where the backend cannot be made.
    FaultMatrix(const Fault& fault, BackendKind kind);

    // What is wrong with this run; empty when it ended as it must.
    std::vector<std::string> run(std::uint64_t seed);

    // Sums over all runs so far.
    struct Tally {
        std::uint64_t errors = 0;
        std::uint64_t promoted = 0;
        FaultCounts struck;

        Tally& operator+=(const Tally& other);
        bool operator==(const Tally&) const = default;
    };
    const Tally& tally() const noexcept { return tally_; }

    // What a run works on: one file and memory of the same length, and what the file holds.
    struct Bench {
        Bench(const std::string& path, Caching caching);
        File file;
        ScratchMemory image{file_bytes};
    };

   private:
    const Fault& fault_;
    TemporaryDirectory directory_;
    // Reads never change their file. Writes have others, since a mix of direct and buffered writes waits for the disk.
    Bench direct_read_, buffered_read_, direct_write_, buffered_write_;
    ScratchMemory memory_{file_bytes};
    std::unique_ptr<Backend> backend_;
    Tally tally_;
};

}  // namespace penstock::aio
