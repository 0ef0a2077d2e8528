#include "trainer/config/config.h"

#include "aio/words/error.h"
#include "swap/directory/kept_list.h"
#include "zero_infinity/plan/unit.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <initializer_list>
#include <string_view>

namespace penstock::trainer {
namespace {

[[noreturn]] void refuse(const Settings& settings, const std::string& problem) {
    throw Error(ExitCode::usage, settings.file() + ": " + problem);
}

GptOptions model_options(const Settings& settings) {
    GptOptions model;
    model.vocabulary = settings.integer("model.vocabulary");
    model.hidden = settings.integer("model.hidden");
    model.layers = settings.integer("model.layers");
    model.heads = settings.integer("model.heads");
    model.feed_forward = settings.integer("model.feed_forward");
    model.context = settings.integer("model.context");
    model.norm = settings.text("model.norm") == "rms" ? NormKind::rms : NormKind::layer;
    model.positions = settings.text("model.positions") == "rotary" ? PositionKind::rotary : PositionKind::learned;
    model.head = settings.boolean("model.tied_head") ? HeadKind::tied : HeadKind::own;
    model.frozen = settings.names("model.frozen");
    if (model.hidden % model.heads != 0) {
        refuse(settings, fmt::format("model.hidden {} is not a multiple of model.heads {}", model.hidden, model.heads));
    }
    if (model.positions == PositionKind::rotary && model.hidden / model.heads % 2 != 0) {
        refuse(settings, fmt::format("model.positions \"rotary\" needs an even model.hidden / model.heads; it is {}",
                                     model.hidden / model.heads));
    }
    return model;
}

// DeepSpeed's identity on one rank: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps;
// what is not given follows from the others, or is 1.
void derive_batch_sizes(Settings& settings) {
    constexpr auto total = "train_batch_size";
    constexpr auto micro = "train_micro_batch_size_per_gpu";
    constexpr auto accumulation = "gradient_accumulation_steps";
    const auto quotient = [&](const char* divisor) {
        if (settings.integer(total) % settings.integer(divisor) != 0) {
            refuse(settings, fmt::format("{} {} is not a multiple of {} {}", total, settings.integer(total), divisor,
                                         settings.integer(divisor)));
        }
        return settings.integer(total) / settings.integer(divisor);
    };
    if (!settings.has(accumulation)) {
        const bool follows = settings.has(total) && settings.has(micro);
        settings.derive(accumulation, follows ? quotient(micro) : std::int64_t{1});
    }
    if (!settings.has(micro)) settings.derive(micro, settings.has(total) ? quotient(accumulation) : std::int64_t{1});
    const std::int64_t product = settings.integer(micro) * settings.integer(accumulation);
    if (!settings.has(total)) settings.derive(total, product);
    if (settings.integer(total) != product) {
        refuse(settings,
               fmt::format("{} {} is not {} {} times {} {}; leave one of the three out", total, settings.integer(total),
                           micro, settings.integer(micro), accumulation, settings.integer(accumulation)));
    }
}

struct ScheduleKeys {
    std::string_view name;
    ScheduleKind kind;
    std::initializer_list<std::string_view> params;  // besides the warm-up's length and course
};

const std::array<ScheduleKeys, 4>& schedule_keys() {
    static const std::array<ScheduleKeys, 4> known = {{
        {"none", ScheduleKind::constant, {}},
        {"WarmupLR", ScheduleKind::warmup, {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr"}},
        {"WarmupDecayLR",
         ScheduleKind::warmup_decay,
         {"warmup_num_steps", "warmup_type", "warmup_min_lr", "warmup_max_lr", "total_num_steps"}},
        {"WarmupCosineLR",
         ScheduleKind::warmup_cosine,
         {"warmup_num_steps", "warmup_type", "warmup_min_ratio", "cos_min_ratio", "total_num_steps"}},
    }};
    return known;
}

// A parameter that the chosen scheduler does not have would be without effect: refused.
ScheduleKind schedule_kind(const Settings& settings) {
    constexpr std::array params = {"warmup_num_steps", "warmup_type",      "warmup_min_lr", "warmup_max_lr",
                                   "total_num_steps",  "warmup_min_ratio", "cos_min_ratio"};
    const std::string& type = settings.text("scheduler.type");
    const auto has = [](const ScheduleKeys& schedule, std::string_view param) {
        for (const std::string_view own : schedule.params) {
            if (own == param) return true;
        }
        return false;
    };
    for (const ScheduleKeys& schedule : schedule_keys()) {
        if (schedule.name != type) continue;
        for (const char* param : params) {
            if (has(schedule, param) || !settings.given(std::string("scheduler.params.") + param)) continue;
            refuse(settings, fmt::format("scheduler.params.{} has no effect with scheduler.type \"{}\"; leave it out",
                                         param, type));
        }
        return schedule.kind;
    }
    refuse(settings, "scheduler.type " + type + " is not implemented");
}

ScheduleOptions schedule_options(Settings& settings) {
    ScheduleOptions schedule;
    schedule.kind = schedule_kind(settings);
    schedule.learning_rate = settings.number("optimizer.params.lr");
    // DeepSpeed's WarmupDecayLR does not look at lr: its own default is 0.001.
    if (schedule.kind == ScheduleKind::warmup_decay && !settings.given("scheduler.params.warmup_max_lr") &&
        schedule.learning_rate != 1e-3) {
        refuse(settings,
               fmt::format("scheduler.params.warmup_max_lr is missing: in DeepSpeed it would be 0.001 although "
                           "optimizer.params.lr is {}; say which",
                           schedule.learning_rate));
    }
    if (!settings.has("scheduler.params.warmup_max_lr")) {
        settings.derive("scheduler.params.warmup_max_lr", schedule.learning_rate);
    }
    if (!settings.has("scheduler.params.total_num_steps")) {
        settings.derive("scheduler.params.total_num_steps", settings.integer("run.steps"));
    }
    schedule.warmup_min_lr = settings.number("scheduler.params.warmup_min_lr");
    schedule.warmup_max_lr = settings.number("scheduler.params.warmup_max_lr");
    schedule.warmup_num_steps = settings.integer("scheduler.params.warmup_num_steps");
    schedule.warmup_type =
        settings.text("scheduler.params.warmup_type") == "log" ? WarmupCourse::logarithmic : WarmupCourse::linear;
    schedule.total_num_steps = settings.integer("scheduler.params.total_num_steps");
    schedule.warmup_min_ratio = settings.number("scheduler.params.warmup_min_ratio");
    schedule.cos_min_ratio = settings.number("scheduler.params.cos_min_ratio");
    return schedule;
}

CodecChoice codec_choice(const Settings& settings) {
    if (settings.text("memory.codec") == "exact") return CodecChoice::exact;
    if (!settings.boolean("bf16.enabled"))
        refuse(settings, "memory.codec \"compact\" needs bf16.enabled; compute is in fp32");
    if (settings.text("optimizer.type") == "Adagrad")
        refuse(settings,
               "memory.codec \"compact\" with optimizer.type \"Adagrad\": its sum of squares never forgets, "
               "and rounded to 8 bits it would stop growing; use \"exact\"");
    return CodecChoice::compact;
}

zero::PlaneType gradient_type(Settings& settings) {
    constexpr auto key = "data_types.grad_accum_dtype";
    const bool bf16 = settings.boolean("bf16.enabled");
    if (!settings.has(key)) settings.derive(key, std::string(bf16 ? "bf16" : "fp32"));
    if (settings.text(key) == "fp32") return zero::PlaneType::fp32;
    if (!bf16) refuse(settings, fmt::format("{} \"bf16\" needs bf16.enabled; compute is in fp32", key));
    return zero::PlaneType::bf16;
}

zero::DeviceOptions device_options(const Settings& settings) {
    const std::string& kind = settings.text("memory.device");
    zero::DeviceOptions device;
    device.kind = kind == "cpu"        ? zero::DeviceKind::cpu
                  : kind == "emulated" ? zero::DeviceKind::emulated
                                       : zero::DeviceKind::cuda;
    device.budget_bytes = settings.bytes("memory.device_budget");
    device.copy_delay = std::chrono::microseconds(settings.integer("memory.emulated_copy_delay_us"));
    if (device.kind != zero::DeviceKind::cpu && device.budget_bytes == 0) {
        refuse(settings, fmt::format("memory.device \"{}\" needs memory.device_budget", kind));
    }
    return device;
}

// Planned where either key says that snapshots are wanted.
KeepOptions keep_options(const Settings& settings, const TrainConfig& config) {
    const bool folder = settings.given("keep.folder");
    KeepOptions keep{
        .planned = folder || settings.integer("keep.every") > 0,
        .every = settings.integer("keep.every"),
        .last = static_cast<std::uint64_t>(settings.integer("keep.last")),
        .folder = folder ? settings.text("keep.folder") : config.swap_directory() + "/" + store::kept_folder_name};
    if (!keep.planned && keep.last > 0)
        refuse(settings, "keep.last has no effect without keep.every or keep.folder; leave it out");
    if (keep.planned && config.durability == zero::Durability::scratch)
        refuse(settings,
               "keep.every and keep.folder need commits, and run.commit_every is \"scratch\"; leave them out");
    return keep;
}

zero::Tier tier(const Settings& settings, const char* key) {
    return settings.text(key) == "nvme" ? zero::Tier::nvme : zero::Tier::host;
}

void set_memory(const Settings& settings, TrainConfig& config) {
    config.host_budget_bytes = settings.bytes("memory.host_budget");
    config.prefetch_depth = static_cast<std::uint32_t>(settings.integer("memory.prefetch_depth"));
    config.staging_tiles = static_cast<std::uint32_t>(settings.integer("memory.staging_tiles"));
    config.tile_numel = static_cast<std::uint64_t>(settings.integer("memory.tile_elements"));
    if (config.tile_numel % zero::tile_alignment != 0) {
        refuse(settings,
               fmt::format("memory.tile_elements {} is not a multiple of {}", config.tile_numel, zero::tile_alignment));
    }
    config.activations =
        settings.text("memory.activations") == "recompute" ? ActivationChoice::recompute : ActivationChoice::keep;
    config.device = device_options(settings);
}

void set_io(const Settings& settings, TrainConfig& config) {
    if (!settings.is_auto("aio.block_size")) {
        const std::uint64_t bytes = settings.bytes("aio.block_size");
        if (!std::has_single_bit(bytes))
            refuse(settings, fmt::format("aio.block_size {} is not a power of two", bytes));
        config.io_block_bytes = static_cast<std::uint32_t>(bytes);
    }
    if (!settings.is_auto("aio.queue_depth"))
        config.io_queue_depth = static_cast<std::uint32_t>(settings.integer("aio.queue_depth"));
}

zero::Durability durability(const Settings& settings) {
    constexpr auto key = "run.commit_every";
    if (settings.is_word(key, "scratch")) return zero::Durability::scratch;
    return {static_cast<std::uint64_t>(settings.integer(key))};
}

store::VerifyScope verify_scope(const std::string& word) {
    if (word == "none") return store::VerifyScope::none;
    return word == "sample" ? store::VerifyScope::sample : store::VerifyScope::all;
}

IoChoice io_choice(const std::string& word) {
    if (word == "io_uring") return IoChoice::io_uring;
    if (word == "libaio") return IoChoice::libaio;
    return word == "threads" ? IoChoice::threads : IoChoice::automatic;
}

void set_run(const Settings& settings, TrainConfig& config) {
    config.run_directory = settings.text("run.directory");
    config.name = settings.text("run.name");
    config.steps = settings.integer("run.steps");
    config.durability = durability(settings);
    config.verify = verify_scope(settings.text("run.verify"));
    config.seed = static_cast<std::uint64_t>(settings.integer("run.seed"));
    config.threads = static_cast<unsigned>(settings.integer("run.threads"));
    config.io = io_choice(settings.text("run.io_backend"));
    config.sample = {.prompt = settings.text("run.sample.prompt"),
                     .tokens = settings.integer("run.sample.tokens"),
                     .temperature = settings.number("run.sample.temperature")};
}

}  // namespace

TrainConfig make_config(Settings& settings) {
    TrainConfig config;
    config.model = model_options(settings);
    config.train_file = settings.text("data.train");
    derive_batch_sizes(settings);
    config.micro_batch_rows = settings.integer("train_micro_batch_size_per_gpu");
    config.micro_batches = settings.integer("gradient_accumulation_steps");
    config.gradient_clipping = settings.number("gradient_clipping");
    config.optimizer = optimizer_config(settings);
    make_optimizers(config.optimizer);  // to refuse what makes no sense before anything is opened
    config.schedule = schedule_options(settings);
    config.compute_type = settings.boolean("bf16.enabled") ? ComputeType::bf16 : ComputeType::fp32;
    config.gradient_type = gradient_type(settings);
    config.codec = codec_choice(settings);
    config.residency = {.weights = tier(settings, "zero_optimization.offload_param.device"),
                        .states = tier(settings, "zero_optimization.offload_optimizer.device")};
    config.swap_directories = swap_directories(settings);
    set_io(settings, config);
    set_memory(settings, config);
    set_run(settings, config);
    config.keep = keep_options(settings, config);
    return config;
}

}  // namespace penstock::trainer
