// One life of a process on a store: it opens the store, finds what the model says, goes on step by step and tells the
// model what it does. Where it runs and how it ends is the caller's: in a process that is killed (kill_process.h), or
// on a device that loses power.
#pragma once

#include "tests/swap/kills/kill_model.h"
#include "tests/swap/kills/kill_window.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

// What is in the directories now, held against the model.
struct Found {
    std::unique_ptr<store::TensorStore> store;  // null: nothing was ever committed
    Image image;
    std::string complaint;  // why it is not what the model says
};
Found examine(aio::Io& io, const std::vector<store::StoreDirectory*>& directories, const KillPlan& plan,
              const KillModel& model);

class KillListener {
   public:
    virtual ~KillListener() = default;
    virtual void hear(std::span<const Told> messages) = 0;
};

class KillLife {
   public:
    // `life` is another number for each life on a store.
    KillLife(const KillPlan& plan, const KillModel& model, std::uint64_t life, KillListener& listener);

    // Until that many commits returned, or would have in a scratch store. What is wrong, or nothing.
    std::string run(aio::Io& io, const std::vector<store::StoreDirectory*>& directories, std::uint64_t commits);

   private:
    std::string step(bool everything);
    std::string commit(aio::Io& io);
    Version new_version() { return first_version_ + version_count_++; }
    bool is_read_first(store::TileId tile) const;
    void tell(Told::Kind kind, std::uint64_t a = 0) const;

    const KillPlan& plan_;
    const KillModel& model_;
    KillListener& listener_;
    std::uint64_t first_version_;
    std::uint64_t version_count_ = 0;
    std::unique_ptr<store::TensorStore> store_;
    std::unique_ptr<KillWindow> window_;
    std::vector<Version> versions_;  // the newest ones
};

}  // namespace penstock::testing
