// How single attempts are struck. See faults_matrix.h.
#pragma once

#include "tests/swap/bad_disks/faults_matrix.h"
#include "tests/swap/bad_disks/struck_backend.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {

// Strikes attempts on the files of `directories` as the bad disk says. A flush that fails takes one of the writes with
// it that came since the last one, as drives and page caches do. Lies about manifests strike one copy per commit: of
// two copies of one generation one must be right.
class Striker {
   public:
    Striker(const BadDisk& disk, std::vector<std::string> directories, std::uint64_t seed)
        : disk_(disk), directories_(std::move(directories)), random_(seed) {}

    std::optional<StruckBackend::Strike> operator()(aio::Attempt& attempt);
    void next_commit() { lied_ = false; }
    std::uint64_t faults() const { return faults_; }
    std::uint64_t errors() const { return errors_; }  // of the faults: what the device reported, so that someone must

   private:
    bool is_target(const aio::Attempt& attempt) const;
    void remember(const aio::Attempt& attempt, bool struck);
    void lose_a_write();
    std::int32_t land(aio::Attempt& attempt);
    std::int32_t misdirect(aio::Attempt& attempt);

    const BadDisk& disk_;
    std::vector<std::string> directories_;
    std::mt19937_64 random_;
    struct Write {
        std::string path;
        std::uint64_t offset_bytes = 0;
        std::vector<std::byte> before;
    };
    std::vector<Write> unflushed_;  // while flushes are struck
    bool lied_ = false;
    std::uint64_t faults_ = 0;
    std::uint64_t errors_ = 0;
};

}  // namespace penstock::testing
