// One step after the other of a forecast, in virtual time: what session and driver decide, over a VirtualDevice.
#pragma once

#include "zero_infinity/forecast/gradient_replay.h"
#include "zero_infinity/forecast/shelf_replay.h"
#include "zero_infinity/forecast/step_forecast.h"
#include "zero_infinity/forecast/virtual_device.h"
#include "zero_infinity/order/step_order.h"
#include "zero_infinity/order/window_plan.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// What takes the time of compute, by how it is dealt out to the cores.
enum class Dealt : std::uint8_t { beforehand, by_piece };

// What it is given outlives it.
class StepReplay final : StepHands {
   public:
    StepReplay(const StepSetting& setting, std::span<const UnitSeconds> seconds, const HostSeconds& host,
               const DeviceRates& rates);
    StepReplay(const StepReplay&) = delete;
    StepReplay& operator=(const StepReplay&) = delete;

    StepForecast step(bool commits);

   private:
    enum class TileState : std::uint8_t { at_rest, reading, staged, writing };
    struct Fetched {
        std::uint64_t fetch = 0;
        bool arrived = true;
        bool of_compute = false;  // as compute reads it
    };
    // A place in the window from where updated weights are still written.
    struct Unwritten {
        std::uint32_t unit = 0;
        std::uint64_t offset_bytes = 0;
        std::uint64_t bytes = 0;
        std::uint32_t tiles = 0;
    };
    struct WaitingFetch {
        Fetch fetch;
        std::uint64_t bytes = 0;  // that are read for it
    };

    bool streamed(std::uint32_t unit) const { return window_.units()[unit].bytes > 0; }
    bool last_pass() const { return pass_ == setting_.passes; }  // of the step
    bool is_to_come(std::uint32_t unit) const { return order_.owes(unit); }
    bool departs() const { return order_.at() == UpdateAt::departure; }

    // Virtual time.
    void pass(double seconds);
    template <typename Reached>
    void wait(double& waited, Reached reached);
    void work(double seconds, Dealt dealt);
    void ended(const VirtualTransfer& transfer);

    // The window.
    void visit(const Visit& visit, std::span<const Visit> ahead);
    void begin_fetches(std::span<const Fetch> fetches, bool for_update);
    void pump_fetches();
    void await_weights(std::uint32_t unit);

    // The update, as the order of steps has it made.
    std::span<const Visit> expected() const override { return setting_.training; }
    void begin(const BegunUpdate& update) override;
    void update(std::uint32_t unit) override;
    void end_of_residents() override {}
    void end_of_step() override {}
    void begin_commit() override;
    void finish_commit() override;
    void finish_writes() override;
    void undo(const std::vector<std::uint32_t>& units) override;
    void take_in_hand(std::uint32_t unit);
    void write_tile(std::uint64_t number, std::uint32_t unit);
    void pump_states();
    bool is_written(std::uint32_t unit) const;
    void demand(std::uint32_t unit);
    void sum_gradient(std::uint32_t unit);
    void norm();

    std::vector<std::size_t> last_visits() const;
    void compute(std::size_t index, bool backward);
    void make_pass();
    void make_update(bool commits);

    // What the step is of; constant after construction.
    const StepSetting& setting_;
    const ModelLayout& layout_;
    std::span<const UnitSeconds> seconds_;
    const HostSeconds& host_;

    // Virtual time, and what is told of the step under way.
    double now_ = 0;
    VirtualDevice device_;
    StepForecast report_;

    // The window: what is in it, and what moves there.
    WindowPlan window_;
    bool passing_ = false;
    bool window_spent_ = false;
    std::vector<Fetched> fetched_;  // by unit
    std::deque<WaitingFetch> waiting_fetches_;
    std::vector<Unwritten> unwritten_;

    // What a pass moves beside weights.
    GradientReplay gradients_;
    ShelfReplay shelf_;

    // The update: its order, and its tiles.
    StepOrder order_;
    std::uint64_t pass_ = 1;        // of the step
    std::vector<TileState> tiles_;  // by number
    std::vector<bool> begun_;       // by unit, in this update
    std::deque<std::uint64_t> waiting_tiles_;
    std::uint32_t free_slots_;
    std::uint64_t unwritten_tiles_ = 0;
    std::optional<double> committed_at_;  // the commit under way, once nothing is written any more
};

}  // namespace penstock::zero
