// A driver over a real store in a directory of its own, with units whose weights are a known function of their place,
// and a backend that can be told to stop answering.
#pragma once

#include "aio/io.h"
#include "swap/hashing/hash_crew.h"
#include "swap/spill/spill.h"
#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/forwarding_backend.h"
#include "tests/zero_infinity/driver/rig_gather.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/order/visit_order.h"
#include "zero_infinity/plan/memory_plan.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

// What is wrong with the device, set while it is in use.
struct DeviceFaults {
    std::atomic<bool> stuck{false};        // attempts stay with it until this is cleared
    std::atomic<bool> fails_flush{false};  // EIO
    std::atomic<std::uint64_t> held{0};    // attempts that met a stuck device
    // One write of so many bytes stays with the device until this is 0 again.
    std::atomic<std::uint32_t> slow_write_bytes{0};
    std::atomic<bool> slow_write_met{false};
    std::atomic<std::uint32_t> failing_bytes{0};  // EIO for reads and writes of so many
};

class FailingBackend final : public ForwardingBackend {
   public:
    FailingBackend(std::unique_ptr<aio::Backend> inner, DeviceFaults& faults)
        : ForwardingBackend(std::move(inner)), faults_(&faults) {}
    bool submit(aio::Attempt& attempt) override;
    aio::Attempt* reap(std::chrono::nanoseconds timeout) override;
    aio::Attempt* abandon() noexcept override;
    const char* name() const noexcept override { return "failing"; }

   private:
    DeviceFaults* faults_;
    std::vector<aio::Attempt*> held_;
    aio::Attempt* slow_ = nullptr;
    aio::Attempt* failed_ = nullptr;  // to be handed back
};

// Its copies to host memory never end.
class HangingOut final : public zero::Device {
   public:
    explicit HangingOut(std::unique_ptr<zero::Device> inner) : inner_(std::move(inner)) {}
    zero::DeviceKind kind() const noexcept override { return inner_->kind(); }
    std::byte* allocate(std::uint64_t bytes, const std::string& use) override { return inner_->allocate(bytes, use); }
    std::uint64_t used_bytes() const noexcept override { return inner_->used_bytes(); }
    zero::Ticket copy_in(std::byte* device, const std::byte* host, std::uint64_t bytes, zero::Ticket after) override {
        return inner_->copy_in(device, host, bytes, after);
    }
    zero::Ticket copy_out(std::byte*, const std::byte*, std::uint64_t) override { return {zero::Ticket::Lane::out, 1}; }
    bool reached(zero::Ticket ticket) override {
        return ticket.lane != zero::Ticket::Lane::out && inner_->reached(ticket);
    }
    bool wait(zero::Ticket ticket, std::chrono::nanoseconds timeout) override {
        return ticket.lane != zero::Ticket::Lane::out && inner_->wait(ticket, timeout);
    }
    void compute_after(zero::Ticket ticket) override { inner_->compute_after(ticket); }
    zero::Ticket compute_mark() override { return inner_->compute_mark(); }
    void released(std::byte* device, std::uint64_t bytes) noexcept override { inner_->released(device, bytes); }

   private:
    std::unique_ptr<zero::Device> inner_;
};

// Of the rigs of a test that is run with each.
struct RigHashing {
    static inline unsigned threads = 0;  // for tiles of any length; 0: the driver's own
};

struct RigOptions {
    zero::Partition partition;  // of more than one: the others are not there (rig_gather.h)
    std::uint32_t depth = 2;
    zero::Residency residency;
    bool with_resident = false;                         // the second unit is resident by itself
    store::StoreKind kind = store::StoreKind::durable;  // of a new store; a scratch one commits no generation 0
    zero::DeviceKind device = zero::DeviceKind::cpu;
    std::chrono::microseconds copy_delay{50};  // of the emulated device
    bool copies_out_hang = false;              // likewise: they never end
    std::chrono::seconds deadline{60};
    // The least with which a device of its own memory gets on: weights pass to it one unit at a time.
    static constexpr std::uint64_t passage_of_one_unit = 0;
    std::uint64_t host_budget_bytes = 16 << 20;
    bool snapshots = false;
    zero::TraceRecorder* trace = nullptr;
};

// Adds one to every master: an optimizer of the user's own, on one moment that counts steps.
class CountingOptimizer : public zero::Optimizer {
   public:
    std::string name() const override { return "counting"; }
    std::uint32_t moments() const noexcept override { return 1; }
    zero::MomentKind moment_kind(std::uint32_t) const noexcept override { return zero::MomentKind::any_sign; }
    void update(const zero::UpdateSpan& span, const zero::StepValues& values) const noexcept override;
};

// Opens the store in `directory`, or creates it and commits generation 0.
class DriverRig {
   public:
    DriverRig(const std::string& directory, const RigOptions& options);
    ~DriverRig();

    // The weight that an element of a unit has after `updates` updates: an integer that bf16 holds exactly.
    static float expected(std::uint32_t unit, std::uint64_t element, std::uint64_t updates);

    // One pass that looks at every weight of every visit; returns how many were not as expected.
    std::uint64_t wrong_weights(zero::Pass pass, std::uint64_t updates);
    // The same at one visit of a pass, which is not ended.
    std::uint64_t wrong_weights(const zero::Visit& visit, std::span<const zero::Visit> ahead, std::uint64_t updates);
    void update(std::uint64_t step,
                zero::ResidentTiles residents = zero::ResidentTiles::written);  // all tiles, no commit
    void begin_update(zero::ResidentTiles residents = zero::ResidentTiles::written);
    void update_unit(std::uint32_t unit, std::uint64_t step);
    void update_tiles(std::span<const zero::StagedTile> tiles, std::uint64_t step);

    zero::Driver& driver() { return *driver_; }
    void end_driver() { driver_.reset(); }
    // Masters and moments that are not what they are after `updates` updates, read from the store. REQUIRES: the driver
    // has ended.
    std::uint64_t wrong_in_store(std::uint64_t updates) { return wrong_in(*store_, updates); }
    std::uint64_t wrong_in_snapshot(const std::string& path, std::uint64_t updates);  // the same of a kept store
    aio::Io& io() { return *io_; }
    void wake_io() { io_->wake(); }  // it looks at the faults again
    store::TensorStore& store() { return *store_; }
    const store::Spill& spill() const { return *spill_; }
    const zero::ModelLayout& layout() const { return layout_; }
    DeviceFaults faults;

   private:
    std::uint64_t wrong_in(store::TensorStore& store, std::uint64_t updates);
    std::uint64_t wrong_in(std::uint32_t unit, const zero::UnitMemory& memory, std::uint64_t updates) const;

    CountingOptimizer optimizer_;
    zero::Workers workers_{2};
    zero::ModelLayout layout_;
    std::vector<zero::Visit> training_, inference_;
    std::unique_ptr<store::StoreDirectory> directory_;
    std::unique_ptr<aio::Io> io_;
    std::unique_ptr<store::HashCrew> crew_;
    std::unique_ptr<store::TensorStore> store_;
    std::unique_ptr<store::Spill> spill_;
    std::unique_ptr<zero::Device> device_;
    std::unique_ptr<RigGather> gather_;         // of more ranks than one
    std::unique_ptr<zero::Bringing> bringing_;  // of one
    std::unique_ptr<pool::PinnedPool> pool_;
    std::unique_ptr<zero::Driver> driver_;
    std::vector<std::byte> zero_gradient_;
};

// Of a process of its own, whose device is stuck: prints what `work` throws, ends the driver, and exits with 7. The rig
// is kept: the device may still be at its memory.
[[noreturn]] void exit_with_error(DriverRig& rig, const std::function<void()>& work);

}  // namespace penstock::testing
