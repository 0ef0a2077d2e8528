// The driver's thread: takes orders, moves both lanes on, commits, and notices when a device does not answer.
#pragma once

#include "zero_infinity/keep_lane.h"
#include "zero_infinity/mailbox.h"
#include "zero_infinity/update_lane.h"
#include "zero_infinity/weight_lane.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

namespace penstock {

struct DriverLoopParts {
    Io* io = nullptr;
    TensorStore* store = nullptr;
    Device* device = nullptr;
    WeightLane* training = nullptr;
    WeightLane* inference = nullptr;
    UpdateLane* update = nullptr;
    KeepLane* keep = nullptr;
    Mailbox* mailbox = nullptr;
    std::chrono::seconds deadline{120};  // for one device copy
};

// Runs from construction to destruction, and owns the Io and the store meanwhile. Destruction waits for what is under
// way, because its memory is still in use, unless a device is stuck: then it returns at once and stuck() says so.
class DriverLoop {
   public:
    explicit DriverLoop(const DriverLoopParts& parts);
    ~DriverLoop();

    void stop();  // ends the thread
    bool stuck() const noexcept { return stuck_.load(); }

   private:
    struct Commit final : CommitOperation {
        void committed() noexcept override {}
    };

    void run() noexcept;
    void turn();
    void obey(const Order& order);
    void pump();
    void pump_commit();
    void pump_keep();
    void pass_on_notes();
    void check_deadline();
    bool drained() noexcept;
    bool idle() const noexcept;
    void fail(ExitCode code, const std::string& message);
    void fail(const std::optional<StoreError>& error);

    DriverLoopParts parts_;
    std::vector<Order> orders_;
    WeightLane* running_ = nullptr;
    Progress progress_;
    Commit commit_;
    const ClientState* commit_wanted_ = nullptr;
    bool commit_under_way_ = false;
    std::size_t notes_passed_ = 0;
    std::optional<DriverFailure> failure_;
    bool stopping_ = false;
    std::chrono::steady_clock::time_point next_check_;
    std::atomic<bool> stuck_{false};
    std::thread thread_;  // started last
};

}  // namespace penstock
