// The stores of a run's ranks as one set: where each lies, what it says of itself, and what all go on from.
#pragma once

#include "swap/format/manifest.h"
#include "swap/store/open_store.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/ranks/set_recovery.h"

#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

inline constexpr std::string_view set_prefix = "ranks-";
// Where a rank's store lies: in DIR/ranks-4/2 of each directory DIR of the run; of one rank in DIR itself.
std::string rank_directory(const std::string& directory, Partition partition);
// Throws Error (usage) where another number of ranks has committed something there.
void refuse_other_number(const std::string& directory, std::uint32_t ranks);
// The same where another number of ranks is about to, and this rank has committed nothing. For who has its own store
// there locked: of two that begin at once, one at least is refused.
void refuse_other_start(const std::string& directory, Partition partition);

class RankDirectories {
   public:
    // Makes those above the rank's own. Throws Error: usage (as refuse_other_number; alone, refuse_other_start),
    // storage.
    RankDirectories(const CoreOptions& options, Partition partition);
    // Those that it made, and the set's, go where they have stayed empty: what is refused leaves nothing behind.
    ~RankDirectories();
    RankDirectories(RankDirectories&&) noexcept = default;
    RankDirectories& operator=(RankDirectories&&) noexcept = delete;

    const std::vector<std::string>& own() const noexcept { return own_; }

   private:
    RankDirectories() = default;  // from here on the destructor takes back what was made, whatever is thrown

    std::vector<std::string> own_;
    std::vector<std::string> made_;
};

// A snapshot of a run of several ranks is one of each, which lies as the stores of a run do; of one rank it is `path`.
// place_of_snapshot(): makes those above it. Both throw as RankDirectories does.
std::string place_of_snapshot(const std::string& path, Partition partition);
std::string find_snapshot(const std::string& path, Partition partition);

// What the manifest of a rank's store says of its set, beside the client's keys.
struct SetMark {
    store::StoreUuid set{};
    std::uint64_t epoch = 1;
    Partition place;
    void write(store::ClientState& client) const;
};

// All ranks call it. A set of its own for a run that begins: rank 0 draws it.
SetMark new_set(Communicator& communicator, const std::string& directory);

struct SetOpening {
    RecoveryStep step = RecoveryStep::make;
    std::uint64_t generation = 0;  // that all ranks will have
    SetMark mark;                  // of `take` and `go_back`
};
// All ranks call it. Where the rules of commits do not say that a rank's generation before is whole, it is read
// (`reading` is told of it). Throws Error with the same words on each, as decide() refuses; nothing was changed.
SetOpening decide_together(Communicator& communicator, store::OpenStore& open, const store::OpenOptions& reading);
// All ranks call it. Throws Error (usage) with the same words on each where their snapshots are not of one moment of
// one run, each rank's its own.
void check_one_snapshot(Communicator& communicator, store::OpenStore& own, const std::string& path);

}  // namespace penstock::zero
