// The driver's thread: takes orders, moves weights, tiles and snapshots on, commits, and notices when a device does not
// answer.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/driver/mailbox.h"
#include "zero_infinity/driver/snapshot_copier.h"
#include "zero_infinity/driver/spill_lane.h"
#include "zero_infinity/driver/update_pipeline.h"
#include "zero_infinity/driver/weight_streamer.h"
#include "zero_infinity/trace/trace_recorder.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

namespace penstock::zero {

struct DriverLoopDeps {
    aio::Io* io = nullptr;
    store::TensorStore* store = nullptr;
    Device* device = nullptr;
    Bringing* bringing = nullptr;
    const ModelLayout* layout = nullptr;
    const DriverMemory* memory = nullptr;
    bool in_memory = false;                                   // all tiles are resident, and the store has none
    store::Spill* spill = nullptr;                            // null: nothing is spilled
    std::vector<std::optional<store::SpillBlock>> gradients;  // DriverOptions'
    Mailbox* mailbox = nullptr;
    TraceRecorder* trace = nullptr;
    std::chrono::seconds deadline = aio::default_deadline;  // for one device copy
};

// Runs from construction to destruction. Its thread owns the Io and the store meanwhile, and what moves bytes: the
// streamers, the pipeline and the copier; nobody else sees them. Destruction waits for what is under
// way, because its memory is still in use, unless a device is stuck: then it returns at once and stuck() says so.
class DriverLoop {
   public:
    DriverLoop(const DriverLoopDeps& deps, SnapshotCopierDeps snapshots);
    ~DriverLoop();

    void stop();  // ends the thread
    bool stuck() const noexcept { return stuck_.load(); }

   private:
    struct Commit final : store::CommitOperation {
        void committed() noexcept override {}
    };

    struct Transfer final : store::TileOperation {
        void tile_done() noexcept override {}
    };

    struct ForCompute final : SpillListener {
        void spill_ended(store::SpillBlock block) noexcept override { mailbox->spill_ended(block); }
        Mailbox* mailbox = nullptr;
    };

    void run() noexcept;
    void turn();
    void obey_orders();
    bool may_obey() const;  // the next order
    void obey(const Order& order);
    void pump();
    void pump_commit();
    void read_tile(const orders::ReadAlone& order);
    void write_tile(const orders::WriteAlone& order);
    void pump_transfer();
    void send_spill(const orders::SendSpill& order);
    void pump_snapshot();
    void pass_on_notes();
    void advance(std::chrono::nanoseconds timeout);
    void check_copies();
    bool drained() noexcept;
    bool idle() const noexcept;
    void fail(ExitCode code, const std::string& message);
    void fail(const std::optional<store::StoreError>& error);

    // Constant after construction.
    DriverLoopDeps deps_;

    // The driver's thread's, from when it starts until it was joined. What moves bytes, in the order in which it may
    // go: the pipeline uses the lane and the streamer.
    SpillLane spills_;
    WeightStreamer weights_;
    UpdatePipeline update_;
    SnapshotCopier snapshots_;
    ForCompute for_compute_;

    std::vector<Order> orders_;             // as they were taken; kept for its memory
    std::deque<Order> to_obey_;             // the first may have to wait for what is under way
    Progress progress_;                     // published after each turn
    std::optional<DriverFailure> failure_;  // the first one; likewise
    bool stopping_ = false;
    std::vector<std::uint32_t> shutting_;  // units that a fetch may still be under way of

    Commit commit_;
    std::shared_ptr<const store::ClientState> commit_wanted_;  // which writes back, too
    bool write_back_wanted_ = false;
    bool commit_under_way_ = false;
    TraceStart commit_started_;

    Transfer transfer_;  // of one tile by itself
    bool transfer_under_way_ = false;

    std::size_t notes_passed_ = 0;
    std::size_t spill_notes_passed_ = 0;
    std::chrono::steady_clock::time_point next_check_;

    // Any thread's.
    std::atomic<bool> stuck_{false};

    // The owner's.
    std::thread thread_;  // started last: it uses all above
};

}  // namespace penstock::zero
