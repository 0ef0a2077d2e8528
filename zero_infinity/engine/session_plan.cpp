#include "zero_infinity/engine/session_plan.h"

#include "aio/words/error.h"
#include "zero_infinity/engine/engine.h"
#include "zero_infinity/engine/gradients.h"
#include "zero_infinity/optimizer/update.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <utility>
#include <vector>

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
    if (options.snapshots && options.engine.durability == zero::Durability::scratch)
        refuse(fmt::format("{}: a scratch run commits nothing that could be kept", options.names.snapshots));
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
            .snapshots = options.snapshots,
            .host_budget_bytes = options.host_budget_bytes,
            .device_has_memory = options.device.kind != zero::DeviceKind::cpu,
            .device_budget_bytes = options.device.budget_bytes,
            .device_gradient_bytes = gradient_window_bytes(model, layout, options.gradient_type)};
}

zero::StepBytes step_bytes_of(const zero::MemoryPlan& memory, const zero::ModelLayout& layout,
                              const zero::StateFormat& format, zero::Residency residency) {
    zero::StepBytes bytes;
    bytes.read = memory.training.host.fetched_bytes();
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t weights = layout.memory_bytes(layout.objects(unit).weights);
        const std::uint64_t states = layout.memory_bytes(layout.objects(unit).states);
        (residency.weights == zero::Tier::nvme ? bytes.write : bytes.resident_write) += weights;
        (residency.states == zero::Tier::nvme ? bytes.write : bytes.resident_write) += states;
        if (residency.weights == zero::Tier::nvme && format.codec->master_needs_weights) bytes.read += weights;
        if (residency.states == zero::Tier::nvme) bytes.read += states;
    }
    return bytes;
}

zero::MemoryPlan fitting(zero::MemoryPlan plan) {
    plan.budget.check(pool::MachineMemory::read());
    return plan;
}

}  // namespace

SessionPlan::SessionPlan(std::unique_ptr<Model> given_model, zero::ParameterGroups given_optimizers,
                         SessionOptions given_options, zero::Partition partition)
    : options(checked(std::move(given_options))),
      model(std::move(given_model)),
      optimizers(std::move(given_optimizers)),
      format(format_of(options.codec, optimizers.others())),
      fingerprint(fingerprint_of(*model, optimizers, options.codec)),
      layout(layout_of(*model, format, optimizers, options, partition)),
      memory(fitting(plan_memory(memory_request(*model, layout, options), options.names))),
      step_bytes(step_bytes_of(memory, layout, format, options.residency)) {}

zero::Traffic SessionPlan::nominal_traffic() const {
    return traffic(format, options.engine.durability, options.residency);
}

}  // namespace penstock::engine
