// Why the ranks end, told by the one that knew first. Internal to the ranks over MPI.
#pragma once

#include "aio/words/error.h"

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::zero {

// Once per rank: what it says first or hears first is how its run has ended. Any thread. MPI may touch it until the
// process ends, unless it was closed.
class LastWords {
   public:
    explicit LastWords(MPI_Comm ranks);  // which nobody else uses

    // To all others, where nothing was said or heard before; waits for nobody.
    void say(std::string_view cause) noexcept;
    // Whether something was.
    bool said() const noexcept { return said_; }
    // The same, and looks whether something has come.
    bool listen() noexcept;

    // Whether a rank before this one says the same within that time as this one has said: all find what all can see.
    // REQUIRES: said().
    bool is_said_before(std::chrono::milliseconds at_most) noexcept;

    Error error() const;                                       // REQUIRES: said()
    std::optional<std::uint32_t> other() const;                // the rank that it was heard from
    void see_off(std::chrono::milliseconds at_most) noexcept;  // until what this rank said has gone
    void close();                                              // all ranks are at their end, and nothing was said

   private:
    using Text = std::array<char, 512>;

    const MPI_Comm ranks_;
    std::uint32_t own_ = 0;
    mutable std::mutex mutex_;  // of all below
    std::atomic<bool> said_ = false;
    std::uint32_t by_ = 0;
    Text text_{}, heard_{};
    MPI_Request hearing_ = MPI_REQUEST_NULL;
    std::vector<MPI_Request> sending_;  // one for each rank
};

}  // namespace penstock::zero
