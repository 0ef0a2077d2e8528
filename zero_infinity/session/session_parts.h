// What a session is made of below its calls: the machine it runs on, the store it found or made, the memory, and what
// moves and updates.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/spill/spill.h"
#include "swap/store/open_store.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/gradients/gradient_sums.h"
#include "zero_infinity/memory/bringing.h"
#include "zero_infinity/plan/ranks/node_room.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/session/model_store.h"
#include "zero_infinity/session/session_info.h"
#include "zero_infinity/session/shelf.h"
#include "zero_infinity/threads/job_thread.h"
#include "zero_infinity/threads/workers.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

// What the session has of the machine: the directories with the way to them, the device. Throws Error: usage, storage,
// does_not_fit (the device's memory), and what events.device_opened throws.
struct Machine {
    Machine(const SessionPlan& plan, const SessionEvents& events, const SessionSeams& seams);

    // Of Purpose::forwards, once the store has its weights: it is locked as readers lock it, beside others.
    void open_shared(const SessionPlan& plan, const SessionSeams& seams);

    RankDirectories directories;  // before the store, which is in them
    store::OpenStore open;
    std::unique_ptr<Device> device;
};

// All ranks call it, before any of them opens something: what must be alike is. Throws Error (usage).
void agree_on_plan(Communicator& communicator, const SessionPlan& plan);
// The room of this rank: alike on all of its node, who share it. All ranks call it.
MachineRoom room_of_rank(Communicator& communicator, const MachineRoom& room);
// Likewise, before any of them takes memory. Throws Error (does_not_fit), with the same words on all.
void check_nodes(Communicator& communicator, const RankRoom& own, std::string_view budget);
// Likewise, before any of them makes a store, whose directories are there.
void check_disks(Communicator& communicator, Machine& machine, const SessionPlan& plan);

// As open_model_store().
ModelStore open_store(Machine& machine, const SessionPlan& plan, Communicator& communicator, const SessionSeams& seams,
                      const store::ClientState& initial_client, const SessionEvents& events);
std::unique_ptr<pool::PinnedPool> make_pool(const SessionPlan& plan);

class DriverMover final : public ShelfMover {
   public:
    explicit DriverMover(Driver& driver) : driver_(driver) {}
    store::SpillBlock allocate(std::uint64_t bytes) override { return driver_.allocate_spill(bytes); }
    void out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) override {
        driver_.spill_out(block, memory, unit);
    }
    void in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) override {
        driver_.spill_in(block, memory, unit);
    }
    void wait(store::SpillBlock block) override { driver_.wait_for_spill(block); }
    bool failed() const override { return driver_.failed(); }

   private:
    Driver& driver_;
};

// What moves and updates: over a store that is open and memory that is there, which outlive it.
struct SessionWork {
    SessionWork(const SessionPlan& plan, Machine& machine, const ModelStore& opened, pool::PinnedPool& pool,
                Lane* lane);

    Workers workers;
    const std::unique_ptr<Bringing> bringing;
    // What is done beside compute: what host memory holds is counted and updated. What fails there fails the driver.
    // None where compute reads host memory, or sums do not stay there.
    const std::unique_ptr<JobThread> beside;
    store::Spill spill;  // touches no disk until something is spilled
    GradientSums gradients;
    // Before the driver, which may be at its memory until its own end.
    std::optional<Shelf> shelf;
    Driver driver;
    DriverMover mover;
};

// Why host memory is not registered with the ring, or nothing where it is, or need not be. `lockable`: bytes that may
// be (MachineRoom).
std::string register_with_ring(aio::Io& io, const pool::PinnedPool& pool, std::uint64_t lockable);
SessionInfo info_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened);
// What there is to say at the start.
std::vector<std::string> notes_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened,
                                  const pool::PinnedPool& pool, const std::string& unregistered);

}  // namespace penstock::zero
