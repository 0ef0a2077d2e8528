#include "tests/zero_infinity/driver/driver_rig.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "pinned_pool/region.h"
#include "swap/store/blocking.h"
#include "zero_infinity/order/update_sequence.h"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace penstock::testing {
namespace {

constexpr std::uint64_t tile_numel = 4096;

std::vector<zero::UnitSpec> units(bool with_resident) {
    std::vector<zero::UnitSpec> all = {
        {"first", {{"table", {5000}}}},
        {"second", {{"a", {70, 100}}, {"fixed", {300}, zero::Training::frozen}}},
        {"third", {{"fixed", {9000}, zero::Training::frozen}}},  // nothing to train
        {"empty", {}},
        {"fourth", {{"a", {12345}}, {"b", {1}}}},
        {"last", {{"a", {64}}}},
    };
    all[1].resident = with_resident;
    return all;
}

// The last unit is tied to the first.
zero::Visit visit_of(std::uint32_t unit, std::uint32_t count) {
    return unit + 1 == count ? zero::Visit{{unit, 0}} : zero::Visit{{unit}};
}

void write_initial(aio::Io& io, store::TensorStore& store, const zero::ModelLayout& model) {
    pool::Region memory(1 << 20, 1, pool::Registration::none);
    std::byte* states = memory.data() + (1 << 18);
    for (std::uint32_t unit = 0; unit < model.unit_count(); ++unit) {
        const zero::UnitLayout& layout = model.unit(unit);
        const zero::UnitObjects& objects = model.objects(unit);
        std::vector<float> values(tile_numel);
        for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile) {
            for (std::uint64_t index = 0; index < layout.tile_numel(tile); ++index)
                values[index] = DriverRig::expected(unit, layout.shard_first() + tile * tile_numel + index, 0);
            zero::encode_initial(model.format(), values.data(), {memory.data(), states, layout.tile_numel(tile)});
            for (const auto& [object, data] : {std::pair{objects.weights, memory.data()}, {objects.states, states}})
                write_blocking(io, store, {*object, tile}, {data, store.extent_bytes({*object, tile})});
        }
        for (std::uint32_t tile = 0; tile < layout.frozen_tile_count(); ++tile) {
            for (std::uint64_t index = 0; index < tile_numel; ++index)
                values[index] = DriverRig::expected(unit, layout.frozen_shard_first() + tile * tile_numel + index, 0);
            model.format().codec->encode_master(values.data(), memory.data(), states, tile_numel);
            write_blocking(io, store, {*objects.frozen, tile},
                           {memory.data(), store.extent_bytes({*objects.frozen, tile})});
        }
    }
    if (store.kind() != store::StoreKind::scratch) commit_blocking(io, store, {{"step", "0"}});
}

}  // namespace

bool FailingBackend::submit(aio::Attempt& attempt) {
    if (faults_->stuck.load()) {
        held_.push_back(&attempt);
        ++faults_->held;
        return true;
    }
    if (slow_ == nullptr && attempt.kind == aio::IoKind::write && attempt.bytes == faults_->slow_write_bytes.load() &&
        !faults_->slow_write_met.exchange(true)) {
        slow_ = &attempt;
        return true;
    }
    const bool fails = attempt.kind == aio::IoKind::flush ? faults_->fails_flush.load()
                                                          : attempt.bytes == faults_->failing_bytes.load();
    if (fails) {
        attempt.result = -EIO;
        attempt.next = std::exchange(failed_, &attempt);
        return true;
    }
    return inner_->submit(attempt);
}

aio::Attempt* FailingBackend::reap(std::chrono::nanoseconds timeout) {
    if (!faults_->stuck.load()) {
        for (aio::Attempt* attempt : held_) inner_->submit(*attempt);
        held_.clear();
    }
    if (slow_ != nullptr && faults_->slow_write_bytes.load() == 0) inner_->submit(*std::exchange(slow_, nullptr));
    if (failed_ != nullptr) return std::exchange(failed_, nullptr);
    return inner_->reap(timeout);
}

// What is held never reached the kernel.
aio::Attempt* FailingBackend::abandon() noexcept {
    aio::Attempt* list = inner_->abandon();
    for (aio::Attempt* attempt : std::exchange(held_, {})) {
        attempt->result = -ECANCELED;
        attempt->next = std::exchange(list, attempt);
    }
    return list;
}

void CountingOptimizer::update(const zero::UpdateSpan& span, const zero::StepValues&) const noexcept {
    for (std::size_t index = 0; index < span.count; ++index) {
        span.master[index] += 1;
        span.moments[0][index] += 1;
    }
}

float DriverRig::expected(std::uint32_t unit, std::uint64_t element, std::uint64_t updates) {
    return static_cast<float>((unit * 31 + element * 7) % 97) + static_cast<float>(updates);
}

DriverRig::DriverRig(const std::string& path, const RigOptions& options)
    : layout_({.units = units(options.with_resident),
               .format = {&zero::split_codec(), 1},
               .optimizers = zero::ParameterGroups(std::make_unique<CountingOptimizer>()),
               .tile_numel = tile_numel,
               .partition = options.partition,
               .residency = options.residency}),
      zero_gradient_(tile_numel * 4) {
    const std::uint32_t count = layout_.unit_count();
    for (std::uint32_t unit = 0; unit < count; ++unit) inference_.push_back(visit_of(unit, count));
    training_.assign(inference_.begin(), inference_.end() - 1);
    for (std::uint32_t unit = count; unit-- > 0;) training_.push_back(visit_of(unit, count));

    directory_ = std::make_unique<store::StoreDirectory>(path, "rig");
    io_ = std::make_unique<aio::Io>(
        std::make_unique<FailingBackend>(aio::open_backend(directory_->lock_fd(), {}).backend, faults),
        aio::IoLimits{.deadline = options.deadline});
    if (RigHashing::threads > 0)
        crew_ =
            std::make_unique<store::HashCrew>(*io_, store::Hashing{.threads = RigHashing::threads, .least_bytes = 1});
    if (directory_->content() == store::DirectoryContent::committed) {
        store_ = store::TensorStore::open(*io_, {directory_.get()}, {.hashers = crew_.get()});
    } else {
        const auto objects = layout_.objects();
        store_ = store::TensorStore::create(
            *io_, {directory_.get()},
            {.objects = {objects.begin(), objects.end()}, .kind = options.kind, .hashers = crew_.get()});
        write_initial(*io_, *store_, layout_);
    }
    spill_ = std::make_unique<store::Spill>(*io_, std::vector<store::StoreDirectory*>{directory_.get()},
                                            store::SpillOptions{});
    device_ = zero::make_device({.kind = options.device, .budget_bytes = 4 << 20, .copy_delay = options.copy_delay});
    if (options.copies_out_hang) device_ = std::make_unique<HangingOut>(std::move(device_));
    if (options.partition.ranks == 1) {
        bringing_ = zero::make_bringing(layout_, *device_);
    } else {
        gather_ = std::make_unique<RigGather>(layout_, *device_);
        for (auto& updates : gather_->updates) updates = std::stoull(store_->client().at("step"));
    }
    zero::MemoryRequest request{.layout = &layout_,
                                .training = training_,
                                .inference = inference_,
                                .prefetch_depth = options.depth,
                                .staging_tiles = 3,
                                .snapshots = options.snapshots,
                                .host_budget_bytes = options.host_budget_bytes,
                                .device_has_memory = options.device != zero::DeviceKind::cpu,
                                .device_budget_bytes = 4 << 20};
    if (options.host_budget_bytes == RigOptions::passage_of_one_unit) {
        request.prefetch_depth = 0;
        request.host_budget_bytes = zero::planned_host_budget;
        request.host_budget_bytes = zero::plan_memory(request, {}).budget.used_bytes();
        request.prefetch_depth = options.depth;
    }
    const zero::MemoryPlan plan = zero::plan_memory(request, {});
    pool_ = std::make_unique<pool::PinnedPool>(plan.budget, pool::MachineMemory::read(), pool::PoolOptions{});
    driver_ = std::make_unique<zero::Driver>(zero::DriverDeps{.io = io_.get(),
                                                              .store = store_.get(),
                                                              .pool = pool_.get(),
                                                              .device = device_.get(),
                                                              .bringing = bringing_ ? bringing_.get() : gather_.get(),
                                                              .layout = &layout_,
                                                              .spill = spill_.get(),
                                                              .trace = options.trace},
                                             zero::DriverOptions{.window = plan.window,
                                                                 .passage_bytes = plan.passage_bytes,
                                                                 .staging_tiles = 3,
                                                                 .deadline = options.deadline,
                                                                 .snapshots = options.snapshots,
                                                                 .job = "rig"});
}

DriverRig::~DriverRig() {
    faults.stuck = false;
}

std::uint64_t DriverRig::wrong_in(std::uint32_t unit, const zero::UnitMemory& memory, std::uint64_t updates) const {
    std::uint64_t wrong = 0;
    const auto value = [](const std::byte* plane, std::uint64_t index) {
        std::uint16_t hi = 0;
        std::memcpy(&hi, plane + 2 * index, 2);
        return zero::join_master({hi, 0});
    };
    const zero::UnitLayout& layout = layout_.unit(unit);
    for (std::uint64_t index = 0; index < layout.trainable_numel(); ++index)
        wrong += value(memory.weights, index) != expected(unit, index, updates) ? 1 : 0;
    for (std::uint64_t index = 0; index < layout.frozen_numel(); ++index)
        wrong += value(memory.frozen, index) != expected(unit, index, 0) ? 1 : 0;
    return wrong;
}

std::uint64_t DriverRig::wrong_weights(zero::Pass pass, std::uint64_t updates) {
    const std::vector<zero::Visit>& visits = pass == zero::Pass::training ? training_ : inference_;
    std::uint64_t wrong = 0;
    std::span<const zero::Visit> ahead = visits;
    driver_->visit({}, ahead);
    for (const zero::Visit& visit : visits) {
        ahead = ahead.subspan(1);
        wrong += wrong_weights(visit, ahead, updates);
    }
    driver_->end_pass();
    return wrong;
}

std::uint64_t DriverRig::wrong_weights(const zero::Visit& visit, std::span<const zero::Visit> ahead,
                                       std::uint64_t updates) {
    std::uint64_t wrong = 0;
    driver_->visit(visit, ahead);
    for (const std::uint32_t unit : visit.units)
        wrong += layout_.gathered(unit).bytes == 0 ? 0 : wrong_in(unit, driver_->memory(unit), updates);
    return wrong;
}

std::uint64_t DriverRig::wrong_in_snapshot(const std::string& path, std::uint64_t updates) {
    store::StoreDirectory directory = store::StoreDirectory::find(path, store::Sharing::shared);
    const auto snapshot = store::TensorStore::open(*io_, {&directory}, {.verify = store::VerifyScope::all});
    const bool same =
        snapshot->kind() == store::StoreKind::snapshot && snapshot->client().at("step") == std::to_string(updates);
    return wrong_in(*snapshot, updates) + (same ? 0 : 1);
}

std::uint64_t DriverRig::wrong_in(store::TensorStore& store, std::uint64_t updates) {
    pool::Region memory(1 << 20, 1, pool::Registration::none);
    std::byte* states = memory.data() + (1 << 18);
    std::vector<float> masters(tile_numel), moments(tile_numel);
    std::uint64_t wrong = 0;
    for (std::uint32_t unit = 0; unit < layout_.unit_count(); ++unit) {
        const zero::UnitObjects& objects = layout_.objects(unit);
        for (std::uint32_t tile = 0; tile < layout_.unit(unit).tile_count(); ++tile) {
            for (const auto& [object, data] : {std::pair{objects.weights, memory.data()}, {objects.states, states}})
                read_blocking(*io_, store, {*object, tile}, {data, store.extent_bytes({*object, tile})});
            const zero::TileView view{memory.data(), states, layout_.unit(unit).tile_numel(tile)};
            zero::decode_masters(layout_.format(), view, masters.data());
            zero::decode_moment(layout_.format(), view, 0, moments.data());
            const std::uint64_t first = layout_.unit(unit).shard_first() + tile * tile_numel;
            for (std::uint64_t index = 0; index < view.numel && first + index < layout_.unit(unit).trainable_numel();
                 ++index)
                wrong += masters[index] != expected(unit, first + index, updates) ||
                                 moments[index] != static_cast<float>(updates)
                             ? 1
                             : 0;
        }
    }
    return wrong;
}

void DriverRig::begin_update(zero::ResidentTiles residents) {
    driver_->begin_update(zero::in_order_of_visits(layout_, {}), residents);
}

void DriverRig::update(std::uint64_t step, zero::ResidentTiles residents) {
    begin_update(residents);
    while (const auto unit = driver_->next_awaiting()) update_unit(*unit, step);
    driver_->renew_residents();
}

void DriverRig::update_unit(std::uint32_t unit, std::uint64_t step) {
    if (gather_) gather_->updates[unit] = step;
    zero::UnitInHand& hand = driver_->take(unit);
    for (auto staged = hand.next(); !staged.empty(); staged = hand.next()) {
        update_tiles(staged, step);
        hand.put_back();
    }
    driver_->end_unit();
}

void DriverRig::update_tiles(std::span<const zero::StagedTile> tiles, std::uint64_t step) {
    const zero::TileUpdate update{.format = &layout_.format(), .optimizer = &optimizer_, .values = {.step = step}};
    for (const zero::StagedTile& each : tiles)
        zero::update_tile(update, each.view, {zero_gradient_.data(), zero::PlaneType::fp32, each.view.numel}, workers_);
}

void exit_with_error(DriverRig& rig, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        std::fprintf(stderr, "code %d: %s\n", static_cast<int>(error.code()), error.what());
    }
    rig.end_driver();
    std::fflush(stderr);
    ::_exit(7);
}

}  // namespace penstock::testing
