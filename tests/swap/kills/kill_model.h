// What a killed store may hold, kept outside the process that is killed: fed with what that process says before it
// starts a commit and after the commit returned. Pure.
#pragma once

#include "tests/swap/kills/kill_plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::testing {

// A generation: the version of every tile, by Layout::tile_index, and the client's state.
struct Image {
    std::optional<std::uint64_t> generation;  // nothing: no commit yet
    Version stamp = 0;
    std::vector<Version> versions;
};

// One message from the living process. Of one size, so that the last one a kill cut off can be told.
struct Told {
    enum class Kind : std::uint64_t {
        created,     // the files are there
        opened,      // the newest generation is, and was found right
        wrote,       // a tile (a) is about to be written with a version (b)
        committing,  // a commit with a stamp (a) is about to start
        committed,   // it returned: generation (a)
        struck,      // the process kills itself, in the way KillPoint::How (a)
    };
    Kind kind = Kind::wrote;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};

class KillModel {
   public:
    explicit KillModel(std::size_t tile_count) { acknowledged_.versions.resize(tile_count); }

    void told(const Told& message);

    const Image& acknowledged() const noexcept { return acknowledged_; }
    // The generation that may be there instead, because its commit was under way.
    const std::optional<Image>& under_way() const noexcept { return under_way_; }
    // A process was told that `acknowledged` is durable, since the last call of resume_with().
    bool committed_in_this_life() const noexcept { return committed_in_this_life_; }

    // The next life starts with what was found; all else of the last one is gone.
    void resume_with(Image found);

   private:
    Image acknowledged_;
    std::vector<Told> writes_;  // since the last commit
    std::optional<Image> under_way_;
    bool committed_in_this_life_ = false;
};

}  // namespace penstock::testing
