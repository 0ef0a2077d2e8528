#include "zero_infinity/session/session_parts.h"

#include "aio/words/error.h"
#include "aio/words/host_name.h"
#include "swap/directory/store_look.h"
#include "zero_infinity/plan/ranks/node_disks.h"
#include "zero_infinity/ranks/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace penstock::zero {
namespace {

store::OpenStore lock_directories(const CoreOptions& options, const std::vector<std::string>& directories) {
    if (directories.empty()) throw Error(ExitCode::usage, "no swap directory is given");
    if (options.purpose == Purpose::training || !store::has_commits(directories.front()))
        return {directories, options.job, options.remedies};
    return store::OpenStore::find(directories, store::Sharing::shared, options.remedies);
}

void start_io(store::OpenStore& open, const CoreOptions& options, const SessionSeams& seams) {
    const store::StoreIoOptions io{
        .caching = options.caching, .backend = options.backend, .limits = options.io, .hashing = options.hashing};
    seams.backend ? open.start_io(io, seams.backend(open.directory())) : open.start_io(io);
}

// null: nobody records.
TraceRecorder* named(TraceRecorder* trace, const ModelLayout& layout) {
    if (trace == nullptr) return nullptr;
    std::vector<std::string> units, objects;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) units.push_back(layout.unit(unit).spec().name);
    for (const store::ObjectSpec& object : layout.objects()) objects.push_back(object.name);
    trace->set_names(std::move(units), std::move(objects));
    return trace;
}

std::string instead_of_spilling(const CoreOptions& options) {
    if (options.gradient_memory != GradientMemory::nvme || options.names.gradient_memory.empty()) return {};
    return fmt::format("Or keep gradients in host memory ({}).", options.names.gradient_memory);
}

}  // namespace

Machine::Machine(const SessionPlan& plan, const SessionEvents& events, const SessionSeams& seams)
    : directories(plan.options, plan.layout.partition()), open(lock_directories(plan.options, directories.own())) {
    refuse_other_start(plan.options.swap_directories.front(), plan.layout.partition());
    start_io(open, plan.options, seams);
    device = make_device(plan.device());
    if (events.device_opened) events.device_opened(*device);
}

void Machine::open_shared(const SessionPlan& plan, const SessionSeams& seams) {
    { const store::OpenStore before = std::move(open); }  // gives the lock up
    open = store::OpenStore::find(plan.options.swap_directories, store::Sharing::shared, plan.options.remedies);
    start_io(open, plan.options, seams);
}

void agree_on_plan(Communicator& communicator, const SessionPlan& plan) {
    const CoreOptions& options = plan.options;
    const SettingNames& names = options.names;
    agree(communicator,
          {.host = aio::host_name(),
           .values = {{"the model, its units, types, optimizers or codec", plan.fingerprint.substr(0, 16)},
                      {"a tile's elements", fmt::format("{}", options.tile_numel)},
                      {names.gradient_type, word_of(options.gradient_type)},
                      {names.codec, options.codec},
                      {names.commits, fmt::format("{}", options.durability.commit_steps)},
                      {"device", word_of(options.device.kind)},
                      {"the order of sums", word_of(options.ranks.sum_order)},
                      {"Penstock", PENSTOCK_VERSION},
                      {"memory for pieces of collectives", fmt::format("{}", options.ranks.area_bytes)}}});
}

MachineRoom room_of_rank(Communicator& communicator, const MachineRoom& room) {
    if (communicator.ranks() == 1) return room;
    const auto of_ranks = gathered(communicator, "whose memory it is", RankRoom::read(0, room.host));
    const SharedNode node = node_of(of_ranks, communicator.rank());
    MachineRoom own = room;
    own.host.available_bytes = node.available_bytes;
    own.sharing = node.ranks;
    return own;
}

void check_nodes(Communicator& communicator, const RankRoom& own, std::string_view budget) {
    if (communicator.ranks() == 1) return;
    if (const std::string lacking = lacking_room(gathered(communicator, "memory", own), budget); !lacking.empty())
        throw Error(ExitCode::does_not_fit, lacking);
}

void check_disks(Communicator& communicator, Machine& machine, const SessionPlan& plan) {
    if (communicator.ranks() == 1) return;
    const std::uint64_t bytes = machine.open.committed() ? 0 : plan.store_bytes();
    const RankDisks own = disks_of_new_store(machine.directories.own(), plan.options.swap_shares, bytes);
    if (const std::string lacking = lacking_disk(gathered(communicator, "room for stores", own)); !lacking.empty())
        throw Error(ExitCode::does_not_fit, lacking);
}

ModelStore open_store(Machine& machine, const SessionPlan& plan, Communicator& communicator, const SessionSeams& seams,
                      const store::ClientState& initial_client, const SessionEvents& events) {
    ModelStore opened = open_model_store({.open = &machine.open,
                                          .layout = &plan.layout,
                                          .fingerprint = plan.fingerprint,
                                          .weights = seams.weights,
                                          .communicator = &communicator},
                                         plan.options, initial_client, events);
    if (plan.options.purpose == Purpose::forwards && !opened.resumed) {
        machine.open_shared(plan, seams);
        opened.store = &machine.open.open({.waiting = events.waiting});
    }
    const std::vector<std::string>& notes = opened.store->notes();  // later ones come through the driver
    opened.notes.insert(opened.notes.begin(), notes.begin(), notes.end());
    return opened;
}

std::unique_ptr<pool::PinnedPool> make_pool(const SessionPlan& plan) {
    const pool::Registration registration =
        plan.options.device.kind == DeviceKind::cuda ? pool::Registration::device : pool::Registration::none;
    return std::make_unique<pool::PinnedPool>(
        plan.memory.budget, pool::MachineMemory::read(),
        pool::PoolOptions{.touch_threads = plan.options.worker_threads, .registration = registration});
}

// Saves CPU time of I/O (bench/results/2026-11-21-beside-fio.md). Not offered where the limit on locked memory is too
// small: the kernel would refuse it. All works without. Returns why not, or nothing.
std::string register_with_ring(aio::Io& io, const pool::PinnedPool& pool, std::uint64_t lockable) {
    if (std::string_view(io.backend_name()) != word_of(aio::BackendKind::io_uring)) return {};
    if (lockable < pool.arena_bytes())
        return fmt::format(
            "host memory is not registered with the ring, which costs some CPU time: the limit "
            "on locked memory leaves {} KiB for {} (ulimit -l)",
            lockable >> 10, pool.arena_bytes() >> 10);
    return io.register_memory(pool.ring_ranges());
}

// Of gradients that the plan has no room for.
MoreMemoryLimit more_memory(const SessionPlan& plan) {
    const pool::Budget& budget = plan.memory.budget;
    const bool planned = plan.options.host_budget_bytes == planned_host_budget;
    return {planned ? planned_host_budget : budget.limit_bytes() - budget.used_bytes(), plan.options.names.host_budget};
}

bool goes_beside(const SessionPlan& plan, const Bringing& bringing) {
    return bringing.apart() && plan.layout.partition().ranks == 1 &&
           plan.options.gradient_memory == GradientMemory::all_units && plan.options.purpose == Purpose::training;
}

SessionWork::SessionWork(const SessionPlan& plan, Machine& machine, const ModelStore& opened, pool::PinnedPool& pool,
                         Lane* lane)
    : workers(plan.options.worker_threads),
      bringing(make_bringing(plan.layout, *machine.device)),
      beside(goes_beside(plan, *bringing)
                 ? std::make_unique<JobThread>([this](const Error& error) { driver.fail(error); })
                 : nullptr),
      spill(machine.open.io(), machine.open.directories(),
            {.caching = plan.options.caching,
             .shares = plan.options.swap_shares,
             .instead = instead_of_spilling(plan.options)}),
      gradients(plan.layout,
                {.type = plan.options.gradient_type,
                 .memory = plan.options.gradient_memory,
                 .device_bytes = plan.memory.device_gradient_bytes,
                 .deadline = plan.options.io_deadline,
                 .spill = &spill,
                 .driver = &driver,
                 .workers = &workers,
                 .beside = beside.get(),
                 .lends_again = !updates_at_once(plan.options),
                 .more = more_memory(plan),
                 .lane = lane},
                pool, *machine.device),
      driver({.io = &machine.open.io(),
              .store = opened.store,
              .pool = &pool,
              .device = machine.device.get(),
              .bringing = bringing.get(),
              .layout = &plan.layout,
              .fill = opened.fill,
              .spill = &spill,
              .lane = lane,
              .trace = named(plan.options.trace, plan.layout)},
             {.window = plan.memory.window,
              .passage_bytes = plan.memory.passage_bytes,
              .staging_tiles = plan.memory.staging_tiles,
              .gradients = gradients.blocks(),
              .gradient_tile_bytes = plan.memory.gradient_tile_bytes,
              .deadline = plan.options.io_deadline,
              .snapshots = plan.options.snapshots,
              .caching = plan.options.caching,
              .job = plan.options.job}),
      mover(driver) {
    if (plan.options.activation_bytes > 0)
        shelf.emplace(pool, pool.use(activations_use), mover, plan.options.names.activations);
}

SessionInfo info_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened) {
    return {.resumed = opened.resumed,
            .client = opened.client,
            .store = opened.store->uuid(),
            .io = fmt::format("{}, {}", machine.open.io().backend_name(),
                              plan.options.caching == aio::Caching::direct ? "direct" : "page cache"),
            .prefetch_depth = plan.memory.window.depth,
            .pool_budget_bytes = plan.memory.budget.limit_bytes(),
            .device_bytes = plan.memory.device_bytes,
            .memory_table = plan.memory.budget.table(),
            .step_bytes = plan.step_bytes,
            .planned_bytes = plan.step_bytes.mean(plan.options.durability),
            .nominal_traffic = plan.nominal_traffic()};
}

std::vector<std::string> notes_of(const SessionPlan& plan, const Machine& machine, const ModelStore& opened,
                                  const pool::PinnedPool& pool, const std::string& unregistered) {
    std::vector<std::string> notes = opened.notes;
    if (!unregistered.empty()) notes.push_back(unregistered);
    if (!machine.open.backend_note().empty()) notes.push_back(machine.open.backend_note());
    for (const std::string& note : pool.notes()) notes.push_back(note);
    const CoreOptions& options = plan.options;
    if (plan.memory.window.depth < std::min<std::size_t>(options.prefetch_depth, plan.model.training.size()))
        notes.push_back(
            fmt::format("{} is {}, but the {} has room for {}", options.names.prefetch_depth, options.prefetch_depth,
                        options.device.kind == DeviceKind::cpu ? "host budget " + options.names.host_budget
                                                               : "device budget " + options.names.device_budget,
                        plan.memory.window.depth));
    if (options.gradients_may_leave && options.gradient_memory == GradientMemory::nvme)
        notes.push_back(
            fmt::format("gradients of two units at a time are in host memory, which has no room for all of "
                        "them ({}): the others leave for NVMe",
                        options.names.gradient_memory));
    return notes;
}

}  // namespace penstock::zero
