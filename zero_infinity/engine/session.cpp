#include "zero_infinity/engine/session.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/engine/drawn_weights.h"
#include "zero_infinity/engine/gradients.h"
#include "zero_infinity/engine/model_store.h"
#include "zero_infinity/engine/session_plan.h"
#include "zero_infinity/engine/tensor_view.h"
#include "zero_infinity/engine/torch_kernels.h"
#include "zero_infinity/threads/workers.h"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>

namespace penstock::engine {
namespace {

store::OpenStore lock_directories(const SessionOptions& options) {
    if (options.swap_directories.empty()) throw Error(ExitCode::usage, "no swap directory is given");
    return {options.swap_directories, options.job, options.remedies};
}

std::unique_ptr<zero::Device> open_device(const zero::DeviceOptions& options) {
    auto device = make_device(options);
    load_torch_kernels(options.kind);
    return device;
}

// What the session has of the machine: the directories with the way to them, the device.
struct Machine {
    explicit Machine(const SessionOptions& options) : open(lock_directories(options)) {
        open.start_io({.caching = options.caching, .backend = options.backend, .limits = options.io});
        device = open_device(options.device);
    }

    store::OpenStore open;
    std::unique_ptr<zero::Device> device;
};

ModelStore open_store(Machine& machine, const SessionPlan& plan, zero::Communicator& communicator,
                      zero::WeightSource* given, const store::ClientState& initial_client,
                      const SessionEvents& events) {
    DrawnWeights drawn(*plan.model, plan.options.seed);
    ModelStore opened = open_model_store({.open = &machine.open,
                                          .layout = &plan.layout,
                                          .fingerprint = plan.fingerprint,
                                          .weights = given != nullptr ? given : &drawn,
                                          .communicator = &communicator},
                                         plan.options, initial_client, events);
    const std::vector<std::string>& notes = opened.store->notes();  // later ones come through the driver
    opened.notes.insert(opened.notes.begin(), notes.begin(), notes.end());
    return opened;
}

std::unique_ptr<pool::PinnedPool> make_pool(const SessionPlan& plan) {
    const pool::Registration registration =
        plan.options.device.kind == zero::DeviceKind::cuda ? pool::Registration::device : pool::Registration::none;
    return std::make_unique<pool::PinnedPool>(
        plan.memory.budget, pool::MachineMemory::read(),
        pool::PoolOptions{.touch_threads = plan.options.worker_threads, .registration = registration});
}

// Saves 12 to 19 % of the CPU time of I/O (bench/RESULTS.md). Not offered where the limit on locked memory is too
// small: the kernel would refuse it. All works without. Returns why not, or nothing.
std::string register_with_ring(aio::Io& io, const pool::PinnedPool& pool) {
    if (std::string_view(io.backend_name()) != word_of(aio::BackendKind::io_uring)) return {};
    const std::uint64_t lockable = pool::MachineMemory::read().lockable_bytes;
    if (lockable < pool.arena_bytes())
        return fmt::format(
            "host memory is not registered with the ring, which costs some CPU time: the limit "
            "on locked memory leaves {} KiB for {} (ulimit -l)",
            lockable >> 10, pool.arena_bytes() >> 10);
    return io.register_memory(pool.ring_ranges());
}

void materialise(const SessionPlan& plan, const zero::Device& device) {
    for (const auto& unit : plan.model->units())
        for (const auto& parameter : unit->parameters())
            parameter->materialise(scalar_type(plan.format.codec->weights), torch_device(device));
}

// What computes: over a store that is open and memory that is there.
struct Compute {
    Compute(const SessionPlan& plan, Machine& machine, const ModelStore& opened, pool::PinnedPool& pool,
            zero::Communicator& communicator)
        : workers(plan.options.worker_threads),
          gradients(*plan.model, plan.layout, plan.options.gradient_type, pool, *machine.device,
                    plan.options.io_deadline),
          driver(
              {
                  .io = &machine.open.io(),
                  .store = opened.store,
                  .pool = &pool,
                  .device = machine.device.get(),
                  .layout = &plan.layout,
              },
              {.staging_tiles = plan.options.staging_tiles,
               .deadline = plan.options.io_deadline,
               .snapshots = plan.options.snapshots,
               .caching = plan.options.caching,
               .job = plan.options.job},
              plan.memory.training, plan.memory.inference),
          engine(
              {
                  .model = plan.model.get(),
                  .layout = &plan.layout,
                  .driver = &driver,
                  .gradients = &gradients,
                  .workers = &workers,
                  .communicator = &communicator,
                  .codec_setting = plan.options.names.codec,
                  .gradient_setting = plan.options.names.gradient_type,
                  .fingerprint = plan.fingerprint,
                  .device = torch_device(*machine.device),
              },
              plan.options.engine) {
        engine.restore(opened.client);
    }

    zero::Workers workers;
    Gradients gradients;
    zero::Driver driver;
    Engine engine;
};

SessionInfo info_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened) {
    return {.resumed = opened.resumed,
            .client = opened.client,
            .store = opened.store->uuid(),
            .io = fmt::format("{}, {}", machine.open.io().backend_name(),
                              plan.options.caching == aio::Caching::direct ? "direct" : "page cache"),
            .prefetch_depth = plan.memory.training.host.depth(),
            .pool_budget_bytes = plan.memory.budget.limit_bytes(),
            .memory_table = plan.memory.budget.table(),
            .step_bytes = plan.step_bytes,
            .planned_bytes = plan.step_bytes.mean(plan.options.engine.durability),
            .nominal_traffic = plan.nominal_traffic()};
}

// What there is to say at the start.
std::vector<std::string> notes_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened,
                                  const pool::PinnedPool& pool, const std::string& unregistered) {
    std::vector<std::string> notes = opened.notes;
    if (!unregistered.empty()) notes.push_back(unregistered);
    if (!machine.open.backend_note().empty()) notes.push_back(machine.open.backend_note());
    for (const std::string& note : pool.notes()) notes.push_back(note);
    const SessionOptions& options = plan.options;
    const std::uint32_t depth = plan.memory.training.host.depth();
    if (depth < options.prefetch_depth)
        notes.push_back(fmt::format("{} is {}, but the host budget {} has room for {}", options.names.prefetch_depth,
                                    options.prefetch_depth, options.names.host_budget, depth));
    return notes;
}

}  // namespace

// The stages that were reached, each whole. They are given back in reverse; but kept for ever when something is under
// way that does not come back: until the process ends the device may write into them.
struct Session::State {
    ~State();
    bool stuck();

    zero::LocalCommunicator alone;
    std::unique_ptr<SessionPlan> plan;
    std::unique_ptr<pool::PinnedPool> pool;  // before what may be at its memory until its own end
    std::unique_ptr<Machine> machine;
    ModelStore opened;
    std::unique_ptr<Compute> compute;
    SessionInfo info;
    std::vector<std::string> notes;
};

bool Session::State::stuck() {
    if (compute) {
        compute->driver.stop();  // what hangs may only now become too old
        return compute->driver.stuck();
    }
    return machine && machine->open.io().finish_all().has_value();
}

Session::State::~State() {
    if (!stuck()) return;
    static_cast<void>(compute.release());
    static_cast<void>(machine.release());
    static_cast<void>(pool.release());
    static_cast<void>(plan.release());
}

Session::Session(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
                 const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams)
    : state_(std::make_unique<State>()) {
    State& s = *state_;
    zero::Communicator& communicator = seams.communicator != nullptr ? *seams.communicator : s.alone;
    // Plan.
    s.plan = std::make_unique<SessionPlan>(std::move(model), std::move(optimizers), std::move(options),
                                           communicator.partition());
    // Open.
    s.machine = std::make_unique<Machine>(s.plan->options);
    s.opened = open_store(*s.machine, *s.plan, communicator, seams.weights, initial_client, events);
    // Build.
    materialise(*s.plan, *s.machine->device);
    s.pool = make_pool(*s.plan);
    s.machine->device->cut_at_seams_of(*s.pool);
    const std::string unregistered = register_with_ring(s.machine->open.io(), *s.pool);
    s.info = info_of(*s.plan, *s.machine, s.opened);
    s.compute = std::make_unique<Compute>(*s.plan, *s.machine, s.opened, *s.pool, communicator);
    s.notes = notes_of(*s.plan, *s.machine, s.opened, *s.pool, unregistered);
}

Session::~Session() = default;

Engine& Session::engine() noexcept {
    return state_->compute->engine;
}

const Model& Session::model() const noexcept {
    return *state_->plan->model;
}

const SessionInfo& Session::info() const noexcept {
    return state_->info;
}

SessionCounters Session::counters() const {
    const aio::IoStatistics& io = state_->machine->open.io().statistics();
    return {.read_bytes = io.total_read_bytes(),
            .write_bytes = io.total_write_bytes(),
            .waits = state_->compute->driver.waits(),
            .pool_peak_bytes = state_->pool->peak_bytes(),
            .activation_peak_bytes = state_->compute->engine.activation_peak_bytes()};
}

void Session::read_out(const zero::ReadOut& what, zero::WeightSink& sink) {
    engine().settle();
    zero::Driver& driver = state_->compute->driver;
    zero::read_out({.layout = &state_->plan->layout,
                    .read = [&](store::TileId tile, std::span<std::byte> memory) { driver.read(tile, memory); }},
                   what, sink);
}

void Session::begin_snapshot(const std::string& path) {
    engine().settle();
    state_->compute->driver.begin_snapshot(path);
}

zero::SnapshotProgress Session::snapshot_progress() const {
    return state_->compute->driver.snapshot_progress();
}

void Session::finish_snapshot(const std::function<bool(const zero::SnapshotProgress&)>& wanted) {
    state_->compute->driver.finish_snapshot(wanted);
}

std::vector<zero::EndedSnapshot> Session::take_snapshots() {
    return state_->compute->driver.take_snapshots();
}

std::vector<std::string> Session::take_notes() {
    std::vector<std::string> notes = std::exchange(state_->notes, {});
    for (std::string& note : state_->compute->engine.take_notes()) notes.push_back(std::move(note));
    for (std::string& note : state_->compute->driver.take_notes()) notes.push_back(std::move(note));
    return notes;
}

}  // namespace penstock::engine
