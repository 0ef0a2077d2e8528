#include "tests/core/driver_rig.h"

#include "pinned_pool/region.h"
#include "swap/blocking.h"
#include "zero_infinity/unit_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::testing {
namespace {

constexpr std::uint64_t tile_numel = 4096;

std::vector<UnitLayout> make_units() {
    std::vector<UnitLayout> units;
    const std::vector<UnitSpec> specs = {
        {"first", {{"table", {5000}}}},
        {"second", {{"a", {70, 100}}, {"fixed", {300}, Training::frozen}}},
        {"third", {{"fixed", {9000}, Training::frozen}}},  // nothing to train
        {"empty", {}},
        {"fourth", {{"a", {12345}}, {"b", {1}}}},
        {"last", {{"a", {64}}}},
    };
    for (const UnitSpec& spec : specs) units.emplace_back(spec, Partition{}, tile_numel);
    return units;
}

// The last unit is tied to the first.
Visit visit_of(std::uint32_t unit, std::uint32_t count) {
    return unit + 1 == count ? Visit{{unit, 0}} : Visit{{unit}};
}

void write_initial(Io& io, TensorStore& store, const std::vector<UnitLayout>& units, const StateFormat& format) {
    const std::vector<UnitObjects> objects = find_objects(store, units, format);
    Region memory(1 << 20, 1, Registration::none);
    std::byte* states = memory.data() + (1 << 18);
    for (std::uint32_t unit = 0; unit < units.size(); ++unit) {
        const UnitLayout& layout = units[unit];
        std::vector<float> values(tile_numel);
        for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile) {
            for (std::uint64_t index = 0; index < layout.tile_numel(tile); ++index)
                values[index] = DriverRig::expected(unit, tile * tile_numel + index, 0);
            encode_initial(format, values.data(), {memory.data(), states, layout.tile_numel(tile)});
            for (const auto& [object, data] :
                 {std::pair{objects[unit].weights, memory.data()}, {objects[unit].states, states}})
                write_blocking(io, store, {*object, tile}, {data, store.extent_bytes({*object, tile})});
        }
        for (std::uint32_t tile = 0; tile < layout.frozen_tile_count(); ++tile) {
            for (std::uint64_t index = 0; index < tile_numel; ++index)
                values[index] = DriverRig::expected(unit, tile * tile_numel + index, 0);
            format.codec->encode_master(values.data(), memory.data(), states, tile_numel);
            write_blocking(io, store, {*objects[unit].frozen, tile},
                           {memory.data(), store.extent_bytes({*objects[unit].frozen, tile})});
        }
    }
    if (store.kind() != StoreKind::scratch) commit_blocking(io, store, {{"step", "0"}});
}

}  // namespace

bool TroubledBackend::submit(Attempt& attempt) {
    if (trouble_->stuck.load()) {
        held_.push_back(&attempt);
        ++trouble_->held;
        return true;
    }
    if (attempt.kind == IoKind::flush && trouble_->fails_flush.load()) {
        attempt.result = -EIO;
        attempt.next = std::exchange(failed_, &attempt);
        return true;
    }
    return inner_->submit(attempt);
}

Attempt* TroubledBackend::reap(std::chrono::nanoseconds timeout) {
    if (!trouble_->stuck.load()) {
        for (Attempt* attempt : held_) inner_->submit(*attempt);
        held_.clear();
    }
    if (failed_ != nullptr) return std::exchange(failed_, nullptr);
    return inner_->reap(timeout);
}

// What is held never reached the kernel.
Attempt* TroubledBackend::abandon() noexcept {
    Attempt* list = inner_->abandon();
    for (Attempt* attempt : std::exchange(held_, {})) {
        attempt->result = -ECANCELED;
        attempt->next = std::exchange(list, attempt);
    }
    return list;
}

void CountingOptimizer::update(const UpdateSpan& span, const StepValues&) const noexcept {
    for (std::size_t index = 0; index < span.count; ++index) {
        span.master[index] += 1;
        span.moments[0][index] += 1;
    }
}

float DriverRig::expected(std::uint32_t unit, std::uint64_t element, std::uint64_t updates) {
    return static_cast<float>((unit * 31 + element * 7) % 97) + static_cast<float>(updates);
}

DriverRig::DriverRig(const std::string& path, const RigOptions& options)
    : format_{&split_codec(), 1}, units_(make_units()), zero_gradient_(tile_numel * 4) {
    const auto count = static_cast<std::uint32_t>(units_.size());
    for (std::uint32_t unit = 0; unit < count; ++unit) inference_.push_back(visit_of(unit, count));
    training_.assign(inference_.begin(), inference_.end() - 1);
    for (std::uint32_t unit = count; unit-- > 0;) training_.push_back(visit_of(unit, count));

    directory_ = std::make_unique<StoreDirectory>(path, "rig");
    io_ = std::make_unique<Io>(
        std::make_unique<TroubledBackend>(open_backend(directory_->lock_fd(), {}).backend, trouble),
        IoLimits{.deadline = options.deadline});
    if (directory_->content() == DirectoryContent::committed) {
        store_ = TensorStore::open(*io_, {directory_.get()});
    } else {
        std::vector<ObjectSpec> objects;
        for (const UnitLayout& unit : units_)
            for (const ObjectSpec& object : unit.objects(format_)) objects.push_back(object);
        store_ = TensorStore::create(*io_, {directory_.get()}, {.objects = objects, .kind = options.kind});
        write_initial(*io_, *store_, units_, format_);
    }
    device_ = make_device({.kind = options.device, .budget_bytes = 4 << 20, .copy_delay = options.copy_delay});
    MemoryPlan plan = plan_memory({.units = &units_,
                                   .format = format_,
                                   .residency = options.residency,
                                   .training = training_,
                                   .inference = inference_,
                                   .prefetch_depth = options.depth,
                                   .staging_tiles = 3,
                                   .keeping = options.keeping,
                                   .host_budget_bytes = options.host_budget_bytes,
                                   .device_has_memory = options.device != DeviceKind::cpu,
                                   .device_budget_bytes = 4 << 20},
                                  {});
    pool_ = std::make_unique<PinnedPool>(plan.budget, MachineMemory::read(), PoolOptions{});
    driver_ = std::make_unique<Driver>(
        DriverParts{
            .io = io_.get(), .store = store_.get(), .pool = pool_.get(), .device = device_.get(), .units = &units_},
        DriverOptions{.format = format_,
                      .residency = options.residency,
                      .staging_tiles = 3,
                      .deadline = options.deadline,
                      .keeping = options.keeping,
                      .job = "rig"},
        std::move(plan.training), std::move(plan.inference));
}

DriverRig::~DriverRig() {
    trouble.stuck = false;
}

std::uint64_t DriverRig::wrong_in(std::uint32_t unit, const UnitMemory& memory, std::uint64_t updates) const {
    std::uint64_t wrong = 0;
    const auto value = [](const std::byte* plane, std::uint64_t index) {
        std::uint16_t hi = 0;
        std::memcpy(&hi, plane + 2 * index, 2);
        return join_master({hi, 0});
    };
    const UnitLayout& layout = units_[unit];
    for (std::uint64_t index = 0; index < layout.trainable_numel(); ++index)
        wrong += value(memory.weights, index) != expected(unit, index, updates) ? 1 : 0;
    for (std::uint64_t index = 0; index < layout.frozen_numel(); ++index)
        wrong += value(memory.frozen, index) != expected(unit, index, 0) ? 1 : 0;
    return wrong;
}

std::uint64_t DriverRig::wrong_weights(Pass pass, std::uint64_t updates) {
    const std::vector<Visit>& visits = pass == Pass::training ? training_ : inference_;
    std::uint64_t wrong = 0;
    driver_->begin(pass);
    for (std::uint32_t visit = 0; visit < visits.size(); ++visit) {
        driver_->enter(visit);
        for (const std::uint32_t unit : visits[visit].groups)
            wrong +=
                group_bytes(units_[unit], format_) == 0 ? 0 : wrong_in(unit, driver_->memory(visit, unit), updates);
        driver_->leave(visit);
    }
    return wrong;
}

std::uint64_t DriverRig::wrong_in_snapshot(const std::string& path, std::uint64_t updates) {
    StoreDirectory directory = StoreDirectory::find(path, Sharing::shared);
    const auto snapshot = TensorStore::open(*io_, {&directory}, {.verify = VerifyScope::all});
    const bool same = snapshot->kind() == StoreKind::kept && snapshot->client().at("step") == std::to_string(updates);
    return wrong_in(*snapshot, updates) + (same ? 0 : 1);
}

std::uint64_t DriverRig::wrong_in(TensorStore& store, std::uint64_t updates) {
    const std::vector<UnitObjects> objects = find_objects(store, units_, format_);
    Region memory(1 << 20, 1, Registration::none);
    std::byte* states = memory.data() + (1 << 18);
    std::vector<float> masters(tile_numel), moments(tile_numel);
    std::uint64_t wrong = 0;
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit) {
        for (std::uint32_t tile = 0; tile < units_[unit].tile_count(); ++tile) {
            for (const auto& [object, data] :
                 {std::pair{objects[unit].weights, memory.data()}, {objects[unit].states, states}})
                read_blocking(*io_, store, {*object, tile}, {data, store.extent_bytes({*object, tile})});
            const TileView view{memory.data(), states, units_[unit].tile_numel(tile)};
            decode_masters(format_, view, masters.data());
            decode_moment(format_, view, 0, moments.data());
            const std::uint64_t first = tile * tile_numel;
            for (std::uint64_t index = 0; index < view.numel && first + index < units_[unit].trainable_numel(); ++index)
                wrong += masters[index] != expected(unit, first + index, updates) ||
                                 moments[index] != static_cast<float>(updates)
                             ? 1
                             : 0;
        }
    }
    return wrong;
}

void DriverRig::update(std::uint64_t step, ResidentParts residents) {
    const TileUpdate update{.format = &format_, .optimizer = &optimizer_, .values = {.step = step}};
    driver_->begin_update(residents);
    while (const auto staged = driver_->next_tile()) {
        update_tile(update, staged->view, {zero_gradient_.data(), PlaneType::fp32, staged->view.numel}, workers_);
        driver_->put_back(*staged);
    }
}

}  // namespace penstock::testing
