#include "zero_infinity/engine/session.h"

#include "aio/file.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/drawn_weights.h"
#include "zero_infinity/engine/model_store.h"
#include "zero_infinity/engine/tensor_view.h"
#include "zero_infinity/engine/torch_kernels.h"
#include "zero_infinity/optimizer/update.h"
#include "zero_infinity/plan/model_layout.h"

#include <xxhash.h>

#include <string_view>
#include <utility>

namespace penstock::engine {
namespace {

zero::ModelLayout layout_of(const Model& model, const zero::StateFormat& format,
                            const zero::ParameterGroups& optimizers, const SessionOptions& options,
                            zero::Partition partition) {
    if (partition.ranks != 1)
        throw Error(ExitCode::usage,
                    fmt::format("{} ranks are asked for, but the engine runs on one so far", partition.ranks));
    if (options.tile_numel == 0 || options.tile_numel % zero::tile_alignment != 0)
        throw Error(ExitCode::usage, fmt::format("a tile of {} elements is not a multiple of {}", options.tile_numel,
                                                 zero::tile_alignment));
    std::vector<zero::UnitSpec> units;
    for (const auto& unit : model.units()) units.push_back(unit->spec());
    return zero::ModelLayout({.units = std::move(units),
                              .format = format,
                              .optimizers = optimizers,
                              .tile_numel = options.tile_numel,
                              .partition = partition,
                              .residency = options.residency});
}

SessionOptions checked(SessionOptions options) {
    const auto refuse = [](const std::string& what) { throw Error(ExitCode::usage, what); };
    if (options.staging_tiles == 0)
        refuse(fmt::format("{} is 0: the update needs at least one", options.names.staging));
    if (options.worker_threads == 0) refuse("worker_threads is 0: at least one thread must do the update");
    if (options.keeping && options.engine.durability == zero::Durability::scratch)
        refuse(fmt::format("{}: a scratch run commits nothing that could be kept", options.names.keep));
    if (options.io_deadline.count() <= 0) refuse("io_deadline must be at least one second");
    if (options.codec == "plain_fp16")
        refuse("codec plain_fp16 needs a loss scale, which the engine does not have yet");
    if (options.gradient_type != zero::PlaneType::fp32 && options.gradient_type != zero::PlaneType::bf16)
        refuse(fmt::format("gradient_type {}: gradients are fp32 or bf16", word_of(options.gradient_type)));
    options.io.deadline = options.io_deadline;
    return options;
}

// Everything that decides what the bytes of the objects mean, and that their names and sizes do not show: options of an
// optimizer are not among it, which optimizer keeps a parameter's moments is.
std::string fingerprint_of(const Model& model, const zero::ParameterGroups& optimizers, const std::string& codec) {
    const std::string optimizer = optimizers.others().name();
    std::string text = fmt::format("{} {} {}\n", codec, optimizer, optimizers.moments());
    for (const auto& unit : model.units()) {
        for (const auto& parameter : unit->parameters()) {
            text += fmt::format("{}/{} {} {}\n", unit->name(), parameter->spec().name,
                                fmt::join(parameter->spec().shape, "x"),
                                parameter->spec().training == zero::Training::frozen ? "frozen" : "trainable");
            const std::string own = optimizers.group_of(unit->name(), parameter->spec().name).optimizer->name();
            if (parameter->spec().training == zero::Training::trainable && own != optimizer)
                text += fmt::format("updated by {}\n", own);
        }
        for (const Borrowed& borrowed : unit->borrowed())
            text += fmt::format("{} borrows {}/{}\n", unit->name(), borrowed.owner->name(),
                                borrowed.parameter->spec().name);
    }
    return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

zero::StateFormat format_of(const std::string& codec, const zero::Optimizer& optimizer) {
    const zero::Codec* found = zero::find_codec(codec);
    if (found == nullptr)
        throw Error(ExitCode::usage,
                    fmt::format("there is no codec '{}'; known are: {}", codec, fmt::join(zero::codec_names(), ", ")));
    for (std::uint32_t moment = 0; moment < optimizer.moments() && !found->exact; ++moment)
        if (optimizer.moment_kind(moment) == zero::MomentKind::growing_sum)
            throw Error(ExitCode::usage,
                        fmt::format("optimizer {} keeps a sum that never forgets, and under the lossy codec '{}' it "
                                    "would stop growing; use an exact codec",
                                    optimizer.name(), codec));
    return state_format(*found, optimizer);
}

zero::MemoryRequest memory_request(const Model& model, const zero::ModelLayout& layout, const SessionOptions& options) {
    return {.layout = &layout,
            .training = training_visits(model),
            .inference = inference_visits(model),
            .prefetch_depth = options.prefetch_depth,
            .staging_tiles = options.staging_tiles,
            .gradient_bytes = gradient_bytes(model, layout, options.gradient_type),
            .keeping = options.keeping,
            .host_budget_bytes = options.host_budget_bytes,
            .device_has_memory = options.device.kind != zero::DeviceKind::cpu,
            .device_budget_bytes = options.device.budget_bytes,
            .device_gradient_bytes = gradient_window_bytes(model, layout, options.gradient_type)};
}

std::vector<store::StoreDirectory> lock_directories(const SessionOptions& options) {
    if (options.swap_directories.empty()) throw Error(ExitCode::usage, "no swap directory is given");
    std::vector<store::StoreDirectory> directories;
    for (const std::string& path : options.swap_directories) directories.emplace_back(path, options.job);
    return directories;
}

std::vector<store::StoreDirectory*> pointers(std::vector<store::StoreDirectory>& directories) {
    std::vector<store::StoreDirectory*> pointers;
    for (store::StoreDirectory& directory : directories) pointers.push_back(&directory);
    return pointers;
}

// Tried on a file that is opened as the store's are: libaio is for direct ones only.
aio::ChosenBackend choose_backend(const store::StoreDirectory& directory, const SessionOptions& options) {
    const aio::File probe(directory.fd(), store::StoreDirectory::lock_name, directory.path() + "/lock",
                          {.mode = aio::FileMode::read_only, .caching = options.caching});
    return open_backend(probe.fd(), {}, options.backend);
}

}  // namespace

// Members are built in this order and destroyed in reverse.
struct Session::State {
    State(std::unique_ptr<Model> given_model, zero::ParameterGroups given_optimizers, SessionOptions given_options,
          const SessionSeams& seams);

    void start(const store::ClientState& initial_client, const SessionEvents& events);
    void open_store(const store::ClientState& initial_client, const SessionEvents& events);
    void build_engine();
    void register_pool();
    void measure_step();
    void note_start();
    bool stuck();

    SessionOptions options;
    std::unique_ptr<Model> model;
    DrawnWeights drawn;
    zero::WeightSource* source;
    zero::LocalCommunicator alone;
    zero::Communicator* communicator;
    zero::ParameterGroups optimizers;
    zero::StateFormat format;
    std::string fingerprint;
    zero::ModelLayout layout;
    zero::MemoryPlan plan;
    std::uint32_t prefetch_depth = 0;
    StepBytes step_bytes;
    std::vector<store::StoreDirectory> directories;
    aio::ChosenBackend chosen;
    std::unique_ptr<pool::PinnedPool> pool;  // before what may be at its memory until its own end
    aio::Io io;
    bool resumed = false;
    std::unique_ptr<store::TensorStore> store;
    store::ClientState client;
    std::unique_ptr<zero::Device> device;
    zero::Workers workers;
    std::unique_ptr<Gradients> gradients;
    std::unique_ptr<zero::Driver> driver;
    std::unique_ptr<Engine> engine;
    std::vector<std::string> notes;
};

// Touches nothing but the locks: a budget that does not fit is refused before a directory is made.
Session::State::State(std::unique_ptr<Model> given_model, zero::ParameterGroups given_optimizers,
                      SessionOptions given_options, const SessionSeams& seams)
    : options(checked(std::move(given_options))),
      model(std::move(given_model)),
      drawn(*model, options.seed),
      source(seams.weights != nullptr ? seams.weights : &drawn),
      communicator(seams.communicator != nullptr ? seams.communicator : &alone),
      optimizers(std::move(given_optimizers)),
      format(format_of(options.codec, optimizers.others())),
      fingerprint(fingerprint_of(*model, optimizers, options.codec)),
      layout(layout_of(*model, format, optimizers, options, communicator->partition())),
      plan(plan_memory(memory_request(*model, layout, options), options.names)),
      directories((plan.budget.check(pool::MachineMemory::read()), lock_directories(options))),
      chosen(choose_backend(directories.front(), options)),
      io(std::move(chosen.backend), options.io),
      workers(options.worker_threads) {}

void Session::State::start(const store::ClientState& initial_client, const SessionEvents& events) {
    device = make_device(options.device);
    load_torch_kernels(options.device.kind);
    open_store(initial_client, events);
    measure_step();
    build_engine();
    note_start();
}

void Session::State::build_engine() {
    for (const auto& unit : model->units())
        for (const auto& parameter : unit->parameters())
            parameter->materialise(scalar_type(format.codec->weights), torch_device(*device));
    const pool::Registration registration =
        options.device.kind == zero::DeviceKind::cuda ? pool::Registration::device : pool::Registration::none;
    pool = std::make_unique<pool::PinnedPool>(
        plan.budget, pool::MachineMemory::read(),
        pool::PoolOptions{.touch_threads = options.worker_threads, .registration = registration});
    device->cut_at_seams_of(*pool);
    register_pool();
    gradients = std::make_unique<Gradients>(*model, layout, options.gradient_type, *pool, *device);
    prefetch_depth = plan.training.host.depth();
    driver = std::make_unique<zero::Driver>(
        zero::DriverDeps{
            .io = &io, .store = store.get(), .pool = pool.get(), .device = device.get(), .layout = &layout},
        zero::DriverOptions{.staging_tiles = options.staging_tiles,
                            .deadline = options.io_deadline,
                            .keeping = options.keeping,
                            .caching = options.caching,
                            .job = options.job},
        std::move(plan.training), std::move(plan.inference));
    engine = std::make_unique<Engine>(EngineDeps{.model = model.get(),
                                                 .layout = &layout,
                                                 .driver = driver.get(),
                                                 .gradients = gradients.get(),
                                                 .workers = &workers,
                                                 .communicator = communicator,
                                                 .fingerprint = fingerprint,
                                                 .device = torch_device(*device)},
                                      options.engine);
    engine->restore(client);
}

// Saves 12 to 19 % of the CPU time of I/O (bench/RESULTS.md). Not offered where the limit on locked memory is too
// small: the kernel would refuse it. All works without.
void Session::State::register_pool() {
    if (std::string_view(io.backend_name()) != word_of(aio::BackendKind::io_uring)) return;
    const std::uint64_t lockable = pool::MachineMemory::read().lockable_bytes;
    if (lockable < pool->arena_bytes()) {
        notes.push_back(
            fmt::format("host memory is not registered with the ring, which costs some CPU time: the limit "
                        "on locked memory leaves {} KiB for {} (ulimit -l)",
                        lockable >> 10, pool->arena_bytes() >> 10));
        return;
    }
    std::string refusal = io.register_memory(pool->ring_ranges());
    if (!refusal.empty()) notes.push_back(std::move(refusal));
}

// True when something is still under way that does not come back.
bool Session::State::stuck() {
    if (driver) {
        driver->stop();  // what hangs may only now become too old
        return driver->stuck();
    }
    return io.finish_all().has_value();
}

void Session::State::open_store(const store::ClientState& initial_client, const SessionEvents& events) {
    ModelStore opened = open_model_store({.io = &io,
                                          .directories = pointers(directories),
                                          .layout = &layout,
                                          .fingerprint = fingerprint,
                                          .weights = source,
                                          .communicator = communicator},
                                         options, initial_client, events);
    store = std::move(opened.store);
    client = std::move(opened.client);
    resumed = opened.resumed;
    notes = store->notes();  // later ones come through the driver, whose thread owns the store from now on
    for (std::string& note : opened.notes) notes.push_back(std::move(note));
}

void Session::State::measure_step() {
    step_bytes.read = plan.training.host.fetched_bytes();
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t weights = layout.memory_bytes(layout.objects(unit).weights);
        const std::uint64_t states = layout.memory_bytes(layout.objects(unit).states);
        (options.residency.weights == zero::Tier::nvme ? step_bytes.write : step_bytes.resident_write) += weights;
        (options.residency.states == zero::Tier::nvme ? step_bytes.write : step_bytes.resident_write) += states;
        if (options.residency.weights == zero::Tier::nvme && format.codec->master_needs_weights)
            step_bytes.read += weights;
        if (options.residency.states == zero::Tier::nvme) step_bytes.read += states;
    }
}

void Session::State::note_start() {
    if (!chosen.note.empty()) notes.push_back(chosen.note);
    for (const std::string& note : pool->notes()) notes.push_back(note);
    if (prefetch_depth < options.prefetch_depth)
        notes.push_back(fmt::format("{} is {}, but the host budget {} has room for {}", options.names.prefetch_depth,
                                    options.prefetch_depth, options.names.host_budget, prefetch_depth));
}

Session::Session(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
                 const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams)
    : state_(std::make_unique<State>(std::move(model), std::move(optimizers), std::move(options), seams)) {
    try {
        state_->start(initial_client, events);
    } catch (...) {
        if (state_->stuck()) static_cast<void>(state_.release());
        throw;
    }
}

Session::~Session() {
    if (state_->stuck()) static_cast<void>(state_.release());
}

Engine& Session::engine() noexcept {
    return *state_->engine;
}
const Model& Session::model() const noexcept {
    return *state_->model;
}
bool Session::resumed() const noexcept {
    return state_->resumed;
}
const store::ClientState& Session::client() const noexcept {
    return state_->client;
}
const aio::IoStatistics& Session::io_statistics() const noexcept {
    return state_->io.statistics();
}
const zero::WaitTimes& Session::waits() const noexcept {
    return state_->driver->waits();
}
const pool::PinnedPool& Session::pool() const noexcept {
    return *state_->pool;
}
const pool::Budget& Session::budget() const noexcept {
    return state_->plan.budget;
}
std::string Session::memory_table() const {
    return state_->plan.budget.table();
}
std::string Session::io_name() const {
    return fmt::format("{}, {}", state_->io.backend_name(),
                       state_->options.caching == aio::Caching::direct ? "direct" : "page cache");
}
std::uint32_t Session::prefetch_depth() const noexcept {
    return state_->prefetch_depth;
}
Session::StepBytes Session::step_bytes() const noexcept {
    return state_->step_bytes;
}
double Session::StepBytes::mean(zero::Durability durability) const noexcept {
    const auto steps = static_cast<double>(durability.commit_steps);
    return static_cast<double>(read + write) + (steps == 0 ? 0 : static_cast<double>(resident_write) / steps);
}
double Session::planned_bytes() const noexcept {
    return state_->step_bytes.mean(state_->options.engine.durability);
}
zero::Traffic Session::nominal_traffic() const {
    return traffic(state_->format, state_->options.engine.durability, state_->options.residency);
}
void Session::read_out(const zero::ReadOut& what, zero::WeightSink& sink) {
    state_->engine->settle();
    zero::read_out(
        {.layout = &state_->layout,
         .read = [this](store::TileId tile, std::span<std::byte> memory) { state_->driver->read(tile, memory); }},
        what, sink);
}
void Session::keep(const std::string& path) {
    state_->engine->settle();
    state_->driver->begin_snapshot(path);
}
const store::StoreUuid& Session::store_uuid() const noexcept {
    return state_->store->uuid();
}
zero::SnapshotProgress Session::keep_progress() const {
    return state_->driver->snapshot_progress();
}
void Session::finish_keep(const std::function<bool(const zero::SnapshotProgress&)>& wanted) {
    state_->driver->finish_snapshot(wanted);
}
std::vector<zero::EndedSnapshot> Session::take_kept() {
    return state_->driver->take_snapshots();
}
store::ClientState& Session::user_state() noexcept {
    return state_->engine->user_state();
}
std::vector<std::string> Session::take_notes() {
    std::vector<std::string> notes = std::exchange(state_->notes, {});
    for (std::string& note : state_->driver->take_notes()) notes.push_back(std::move(note));
    return notes;
}

}  // namespace penstock::engine
