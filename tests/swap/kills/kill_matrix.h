// Stores that are used by one process after the other, each killed at a random instant: by the clock, or by itself at a
// chosen I/O. After each kill every byte is held against a model that lives outside (kill_model.h). A library without
// GoogleTest, as wrong_data_matrix.h.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {

// Sums over all kills. Each list of figures adds up to `kills`, but for the last three.
struct KillTally {
    std::uint64_t stores = 0;
    std::uint64_t kills = 0;
    std::uint64_t in_start = 0;  // while the store was created, or opened and read
    std::uint64_t in_steps = 0;
    std::uint64_t in_commit = 0;
    std::array<std::uint64_t, 4> by_point{};  // by KillPoint::How
    std::uint64_t by_clock = 0;
    std::uint64_t every_step = 0;
    std::uint64_t every_k_steps = 0;
    std::uint64_t scratch = 0;
    std::array<std::uint64_t, 3> by_residency{};
    std::array<std::uint64_t, 3> by_directories{};
    std::uint64_t new_found = 0;  // the generation whose commit was cut off was there
    std::uint64_t old_found = 0;  // the one before it
    std::uint64_t damaged = 0;    // kills after which one copy of the newest manifest was damaged as well
};
// All of it in one line.
std::string to_string(const KillTally& tally);

enum class KillFocus : std::uint8_t {
    all,           // any instant of stores of up to 40 lives
    torn_commits,  // new stores, killed while they tear the I/O of one of their first commits
};

// One thread. Forks: no other thread may run.
class KillMatrix {
   public:
    // The stores lie beneath `parent`.
    explicit KillMatrix(std::filesystem::path parent, KillFocus focus = KillFocus::all)
        : parent_(std::move(parent)), focus_(focus) {}

    // One store of many lives, all drawn from the seed but for the instants of the clock. What is wrong with it.
    std::vector<std::string> run(std::uint64_t seed);

    const KillTally& tally() const noexcept { return tally_; }

   private:
    std::filesystem::path parent_;
    KillFocus focus_;
    KillTally tally_;
};

}  // namespace penstock::testing
