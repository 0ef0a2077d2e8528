// A life on a store in a process of its own, which is killed.
#pragma once

#include "tests/swap/kills/kill_backend.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

// Holds the directories of a store and an Io, as any process does that uses it.
class StoreProcess {
   public:
    StoreProcess(const std::vector<std::string>& paths, const KillPlan& plan);
    std::unique_ptr<aio::Backend> take_backend();
    const std::vector<store::StoreDirectory*>& directories() const noexcept { return pointers_; }

   private:
    std::vector<store::StoreDirectory> owned_;
    std::vector<store::StoreDirectory*> pointers_;
    std::unique_ptr<aio::Backend> backend_;
};

struct KillOrder {
    std::optional<KillPoint> point;                  // the process kills itself there, or
    std::optional<std::chrono::microseconds> after;  // is killed from outside; or neither
    std::uint64_t commits = 1'000'000;               // ends by itself after that many
};

struct KilledLife {
    bool killed = false;
    std::vector<Told> messages;
    std::string complaint;  // of the process about the store, or how else it ended
};

// Runs life number `life` in a child process until it ends.
KilledLife run_life(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model,
                    std::uint64_t life, const KillOrder& order);

// What a process that is not killed finds in the directories, held against the model. Without the store itself.
Found look(const std::vector<std::string>& paths, const KillPlan& plan, const KillModel& model);

}  // namespace penstock::testing
