#include "trainer/config/key_table.h"

#include "trainer/config/config.h"
#include "trainer/config/program_place.h"
#include "zero_infinity/keys/session_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace penstock::trainer {
namespace {

using enum KeyType;
using enum AtResume;

using Text = std::array<std::string_view, 1>;
using Gpt = GptOptions;
using Optimizer = OptimizerParams;
using Schedule = ScheduleOptions;
using Session = engine::SessionOptions;
using Config = TrainConfig;

constexpr double kibi = 1024;
constexpr double tebi = kibi * kibi * kibi * kibi;
constexpr double million = 1e6;
constexpr double trillion = 1e12;

constexpr Text gpt_alone{"gpt"};
constexpr Text auto_alone{auto_text};
constexpr Text optimizer_params{"optimizer.params"};
constexpr PackageRule known_alone{.effect = Effect::obeyed, .automatic = "what the caller knows", .needed = true};
constexpr std::string_view own_io =
    "the package moves 1 MiB at a time, with up to 8 MiB in flight each way on each drive; DeepSpeed's values are for "
    "its own I/O";
constexpr std::array<std::string_view, 6> package_schedules{"none",           "WarmupLR", "WarmupDecayLR",
                                                            "WarmupCosineLR", "OneCycle", "LRRangeTest"};
// DeepSpeed's classes for one algorithm.
constexpr std::array optimizer_aliases{Alias{"FusedAdam", "Adam"},        Alias{"DeepSpeedCPUAdam", "Adam"},
                                       Alias{"CPUAdam", "Adam"},          Alias{"FusedLion", "Lion"},
                                       Alias{"DeepSpeedCPULion", "Lion"}, Alias{"DeepSpeedCPUAdagrad", "Adagrad"}};

// Where values go, and with _default also come from when nobody says them.
template <auto Member>
constexpr KeyPlace model_default = place_with_default<&Config::model, Member>;
template <auto Member>
constexpr KeyPlace optimizer = place_with_default<&Config::optimizer, &OptimizerConfig::others, Member>;
template <auto Member>
constexpr KeyPlace schedule = place<&Config::schedule, Member>;
template <auto Member>
constexpr KeyPlace schedule_default = place_with_default<&Config::schedule, Member>;
template <auto... Path>
constexpr KeyPlace session = place<&Config::session, Path...>;
template <auto... Path>
constexpr KeyPlace session_default = place_with_default<&Config::session, Path...>;
template <auto Member>
constexpr KeyPlace snapshots = place<&Config::snapshots, Member>;
template <auto Member>
constexpr KeyPlace snapshots_default = place_with_default<&Config::snapshots, Member>;
template <auto Member>
constexpr KeyPlace sample = place<&Config::sample, Member>;
template <auto Member>
constexpr KeyPlace compute = place<&Config::compute, Member>;

// A key is two or three lines here, not eight.
// clang-format off
constexpr std::array key_list = {
    // The model. A GPT-style decoder; each number changes the parameters.
    KeySpec{"model.type", choice, "\"gpt\"", {}, gpt_alone, layout, "architecture"},
    KeySpec{"model.vocabulary", integer, "", {2, 16 * million}, {}, layout, "tokens the model knows; bytes need 256",
            model_default<&Gpt::vocabulary>},
    KeySpec{"model.hidden", integer, "", {1, million}, {}, layout, "width; a multiple of heads",
            model_default<&Gpt::hidden>},
    KeySpec{"model.layers", integer, "", {1, 10000}, {}, layout, "blocks",
            model_default<&Gpt::layers>},
    KeySpec{"model.heads", integer, "", {1, 10000}, {}, layout, "attention heads",
            model_default<&Gpt::heads>},
    KeySpec{"model.feed_forward", integer, "", {1, 16 * million}, {}, layout, "width inside the MLP",
            model_default<&Gpt::feed_forward>},
    KeySpec{"model.context", integer, "", {1, 16 * million}, {}, fixed, "tokens of one row",
            model_default<&Gpt::context>},
    KeySpec{"model.norm", choice, "", {}, all_words<NormKind>, layout, "RMSNorm or LayerNorm",
            model_default<&Gpt::norm>},
    KeySpec{"model.positions", choice, "", {}, all_words<PositionKind>, layout,
            "rotary needs an even hidden / heads",
            model_default<&Gpt::positions>},
    KeySpec{"model.tied_head", boolean, "", {}, {}, layout, "the head reads the embedding's weights",
            model_default<&Gpt::head>},
    KeySpec{"model.frozen", names, "", {}, {}, layout,
            "units (\"embedding\") and parameters (\"blocks.0.qkv\") that are not trained",
            model_default<&Gpt::frozen>},
    KeySpec{"model.loss_tokens", integer, "(as many as have logits of 256 MiB)", {1, 16 * million}, {}, fixed,
            "tokens whose logits are in memory at once; a part of the order of sums",
            place<&Config::model, &Gpt::loss_tokens>},

    KeySpec{"data.train", text, "", {}, {}, contents, "token file made by `penstock prepare`",
            place<&Config::train_file>},

    // DeepSpeed's names and meaning.
    KeySpec{"train_batch_size", integer, "(micro-batch × accumulation)", {1, million}, {}, fixed,
            "rows of one step; the identity of the three is checked"}
            .shared({.effect = Effect::obeyed, .automatic = "micro-batch × accumulation", .needed = true}),
    KeySpec{"train_micro_batch_size_per_gpu", integer, "(train_batch_size ÷ accumulation, or 1)",
            {1, million}, {}, fixed, "rows that are computed at once",
            place<&Config::micro_batch_rows>}
            .shared({.effect = Effect::obeyed, .automatic = "train_batch_size ÷ accumulation", .needed = true}),
    KeySpec{"gradient_accumulation_steps", integer, "(train_batch_size ÷ micro-batch, or 1)", {1, million}, {}, fixed,
            "micro-batches of one step",
            place<&Config::micro_batches>}
            .shared({.effect = Effect::obeyed, .automatic = "train_batch_size ÷ micro-batch", .needed = true}),
    KeySpec{"gradient_clipping", number, "1.0", {0, million}, {}, fixed, "limit of the global gradient norm; 0: none",
            session<&Session::engine, &engine::EngineOptions::gradient_clipping>}
            .shared({.effect = Effect::obeyed, .automatic = "1, as where it is not said"}),
    KeySpec{"optimizer.type", choice, "", {}, zero::optimizer_words, layout, "optimizer",
            place_with_default<&Config::optimizer, &OptimizerConfig::kind>}
            .shared({.effect = Effect::obeyed, .aliases = optimizer_aliases}),
    KeySpec{"optimizer.params.lr", number, "", {0, 1000}, {}, fixed, "learning rate",
            optimizer<&Optimizer::learning_rate>}
            .shared(known_alone),
    KeySpec{"optimizer.params.betas", pair, "([0.9, 0.999]; Lion: [0.9, 0.99])", {0, 0.99999999}, {}, fixed,
            "AdamW, Adam: decay of the two moments; Lion: of the direction and of the moment",
            optimizer<&Optimizer::betas>}
            .shared(known_alone),
    KeySpec{"optimizer.params.eps", number, "(1e-8; Adagrad: 1e-10)", {1e-30, 1}, {}, fixed,
            "AdamW, Adam, Adagrad: added to the root of the second moment",
            optimizer<&Optimizer::epsilon>}
            .shared({.effect = Effect::obeyed, .automatic = "the optimizer's default"}),
    KeySpec{"optimizer.params.weight_decay", number, "", {0, 1000}, {}, fixed,
            "AdamW, Adam, Lion: decoupled weight decay; SGD, Adagrad: an L2 penalty",
            optimizer<&Optimizer::weight_decay>}
            .shared(known_alone),
    KeySpec{"optimizer.params.adam_w_mode", boolean, "(true)", {}, {}, fixed,
            "Adam: true: the same as AdamW; false: an L2 penalty in place of decoupled weight decay",
            optimizer<&Optimizer::adam_w_mode>}
            .shared({.effect = Effect::obeyed, .automatic = "true"}),
    KeySpec{"optimizer.params.momentum", number, "(0)", {0, 1000}, {}, fixed, "SGD: 0: no moment is kept",
            optimizer<&Optimizer::momentum>}
            .shared(known_alone),
    KeySpec{"optimizer.params.dampening", number, "(0)", {-1000, 1000}, {}, fixed, "SGD: of the momentum",
            optimizer<&Optimizer::dampening>}
            .shared({.effect = Effect::obeyed, .automatic = "the optimizer's default"}),
    KeySpec{"optimizer.params.nesterov", boolean, "(false)", {}, {}, fixed, "SGD: needs momentum, and no dampening",
            optimizer<&Optimizer::nesterov>}
            .shared({.effect = Effect::obeyed, .automatic = "the optimizer's default"}),
    KeySpec{"optimizer.params.lr_decay", number, "(0)", {0, 1000}, {}, fixed,
            "Adagrad: step t has lr / (1 + (t - 1) × lr_decay)",
            optimizer<&Optimizer::lr_decay>}
            .shared({.effect = Effect::obeyed, .automatic = "the optimizer's default"}),
    KeySpec{"optimizer.params.initial_accumulator_value", number, "(0)", {0, million}, {}, fixed,
            "Adagrad: where the sum of squares begins",
            optimizer<&Optimizer::initial_accumulator>}
            .shared({.effect = Effect::obeyed, .automatic = "the optimizer's default"}),
    KeySpec{"optimizer.groups", groups, "(none)", {}, optimizer_params, fixed,
            "parameters with optimizer.params of their own, by a pattern of UNIT.PARAMETER; the first match counts"},
    KeySpec{"scheduler.type", choice, "", {}, all_words<ScheduleKind>, fixed,
            "course of the learning rate; none: constant",
            schedule_default<&Schedule::kind>}
            .shared({.effect = Effect::obeyed, .choices = package_schedules}),
    KeySpec{"scheduler.params.warmup_min_lr", number, "", {0, 1000}, {}, fixed, "WarmupLR, WarmupDecayLR: first rate",
            schedule_default<&Schedule::warmup_min_lr>}
            .shared(known_alone),
    KeySpec{"scheduler.params.warmup_max_lr", number, "(optimizer.params.lr)", {0, 1000}, {}, fixed,
            "WarmupLR, WarmupDecayLR: rate after the warm-up",
            schedule<&Schedule::warmup_max_lr>}
            .shared({.effect = Effect::obeyed, .automatic = "optimizer.params.lr"}),
    KeySpec{"scheduler.params.warmup_num_steps", integer, "", {1, trillion}, {}, fixed,
            "steps of the warm-up; fewer than 2 count as 2",
            schedule_default<&Schedule::warmup_num_steps>}
            .shared({.effect = Effect::obeyed, .automatic = "what the caller knows", .needed = true,
                     .range = {0, trillion}}),
    KeySpec{"scheduler.params.warmup_type", choice, "", {}, all_words<WarmupCourse>, fixed, "course of the warm-up",
            schedule_default<&Schedule::warmup_type>}
            .shared(known_alone),
    KeySpec{"scheduler.params.total_num_steps", integer, "(run.steps)", {1, trillion}, {}, derived,
            "WarmupDecayLR, WarmupCosineLR: end of the decay",
            schedule<&Schedule::total_num_steps>}
            .shared({.effect = Effect::obeyed, .automatic = "nothing: it must be known where the scheduler needs it",
                     .fallback = "(required where the rate decays)"}),
    KeySpec{"scheduler.params.warmup_min_ratio", number, "", {0, 1}, {}, fixed, "WarmupCosineLR: first rate ÷ lr",
            schedule_default<&Schedule::warmup_min_ratio>}
            .shared(known_alone),
    KeySpec{"scheduler.params.cos_min_ratio", number, "", {0, 1}, {}, fixed, "WarmupCosineLR: last rate ÷ lr",
            schedule_default<&Schedule::cos_min_ratio>}
            .shared({.effect = Effect::obeyed, .automatic = "0.0001"}),
    KeySpec{"bf16.enabled", boolean, "false", {}, {}, layout,
            "compute in bf16 with an exact fp32 master (codec `split`); else all in fp32 (codec `plain_fp32`)"}
            .shared({.effect = Effect::obeyed, .automatic = "false"}),
    KeySpec{"zero_optimization.stage", integer, "3", {0, 3}, {}, free,
            "weights and states are where the offload sections say, at any stage. Of several processes each has all "
            "weights in host memory so far, and 1/N of the states; with 0 and 1 it has its own gradients of all units "
            "besides, with 2 and 3 of two"}
            .shared({.effect = Effect::translated,
                     .why = "any stage is as the offload sections say; of several processes as stage 2",
                     .fallback = "0", .range = {0, 3}}),
    KeySpec{"zero_optimization.offload_param.nvme_path", text, "(none)", {}, {}, free,
            "directory of the checkpoint store"}
            .shared({.effect = Effect::obeyed, .fallback = "(penstock.initialize(store=...))"}),
    KeySpec{"zero_optimization.offload_optimizer.nvme_path", text, "(none)", {}, {}, free,
            "the same directory; one of the two is enough"}
            .shared({.effect = Effect::obeyed, .fallback = "(penstock.initialize(store=...))"}),
    KeySpec{"aio.block_size", bytes_or_auto, "\"auto\"", {4 * kibi, kibi * kibi * kibi}, {}, free,
            "longest single read or write, a power of two; auto: of the device's profile, else 1 MiB",
            place<&Config::io_block_bytes>}
            .shared({.effect = Effect::without, .why = own_io}),
    KeySpec{"aio.queue_depth", integer_or_word, "\"auto\"", {1, 4096}, auto_alone, free,
            "blocks in flight at once in each direction; auto: of the device's profile, else 8 MiB in flight",
            place<&Config::io_queue_depth>}
            .shared({.effect = Effect::without, .why = own_io}),


    // Memory. Keys marked `fixed` decide bits.
    KeySpec{"memory.gradients", choice, "", {}, all_words<zero::GradientTier>, free,
            "where gradients are between backward and their update, to the same bits; nvme: host memory has those of "
            "two units, at 2 or 4 bytes per parameter and step written, and read if the update comes later; auto: "
            "there where host memory has no room for all of them, else in host memory; what is updated within backward "
            "for good takes one unit's anyway",
            session_default<&Session::gradients>}
            .shared({.effect = Effect::obeyed, .fallback = "\"cpu\""}),
    KeySpec{"memory.codec", choice, "\"exact\"", {}, all_words<CodecChoice>, layout,
            "how masters and moments are stored; exact: `split` or `plain_fp32`; compact: LOSSY, 24 bits of the master "
            "and 8 of each moment, 5.125 bytes instead of 12, with bf16.enabled only and not for Adagrad; "
            "zero_infinity/kernels/compact.h says what its rounding can do to moments"}
            .shared(obeyed),
    KeySpec{"memory.activations", choice, "", {}, all_words<engine::Activations>, free,
            "auto: what each unit computed is kept for backward, and where memory runs short the oldest is given up "
            "and run again; recompute: every unit is run again; keep: all is kept; the bits are the same",
            session_default<&Session::engine, &engine::EngineOptions::activations>}
            .shared(obeyed),
    KeySpec{"memory.graph_budget", bytes, "(none)", {0, 64 * tebi}, {}, free,
            "memory outside of the pool that what is kept may take, of memory.activations \"auto\" instead of what is "
            "free; as many units as fit keep it, those nearest to the loss, and the others are run again",
            session<&Session::engine, &engine::EngineOptions::graph_budget_bytes>}
            .shared(obeyed),

    KeySpec{"keep.every", integer, "", {0, trillion}, {}, free,
            "steps from one kept snapshot to the next; 0: only when SIGUSR1 asks and keep.folder is given",
            snapshots_default<&SnapshotOptions::every>},
    KeySpec{"keep.last", integer, "", {0, million}, {}, free,
            "how many step-N snapshots stay, the older ones go when a new one is complete; 0: all",
            snapshots_default<&SnapshotOptions::last>},
    KeySpec{"keep.folder", text, "(\"kept\" in the first swap directory)", {}, {}, free,
            "where snapshots go; may be on another file system",
            snapshots<&SnapshotOptions::folder>},

    KeySpec{"run.directory", text, "", {}, {}, free, "where log and summary go; made when missing",
            place<&Config::run_directory>},
    KeySpec{"run.swap_directory", directories, "(nvme_path)", {}, {}, free,
            "directory of the checkpoint store when no nvme_path is given; of several, one per device, each gets "
            "a share of the tiles, equal or by bandwidth, and the first has the manifests; a store keeps shares and "
            "order",
            place<&Config::swap_directories>}
            .shared(obeyed),
    KeySpec{"run.steps", integer, "", {1, trillion}, {}, free, "steps in all; may grow",
            place<&Config::steps>},
    KeySpec{"run.seed", integer, "", {0, 9007199254740992.0}, {}, fixed, "of initial weights and data order",
            session_default<&Session::seed>},
    KeySpec{"run.deterministic", boolean, "(false)", {}, {}, fixed,
            "on a GPU: the same steps have the same bits whenever they are computed; what adds up in any order there "
            "is slower so, attention over few long rows most; a CPU always has them",
            compute<&ComputeOptions::deterministic>},
    KeySpec{"run.matmul", choice, "(highest)", {}, all_words<MatmulPrecision>, fixed,
            "products of fp32 on a GPU, as torch.set_float32_matmul_precision() has it; high: by TF32, whose factors "
            "have 11 bits for 24, and several times as fast",
            compute<&ComputeOptions::matmul>},
    KeySpec{"run.sample.prompt", text, "\"The \"", {}, {}, free, "text that the sample at the end continues",
            sample<&SampleOptions::prompt>},
    KeySpec{"run.sample.tokens", integer, "(200, or run.steps where that is less)", {0, million}, {}, free,
            "length of the sample, a pass over all weights each; 0: none",
            sample<&SampleOptions::tokens>},
    KeySpec{"run.sample.temperature", number, "0.8", {0, 100}, {}, free, "0: always the likeliest token",
            sample<&SampleOptions::temperature>},
};
// clang-format on

std::string_view section_of(std::string_view path) {
    return path.substr(0, path.find('.'));
}

}  // namespace

// The session's, each behind the last one of its section.
std::span<const KeySpec> keys() noexcept {
    static const std::vector<KeySpec> all = [] {
        std::vector<KeySpec> rows(key_list.begin(), key_list.end());
        for (const KeySpec& key : zero::session_keys()) {
            const auto last = std::find_if(rows.rbegin(), rows.rend(), [&](const KeySpec& other) {
                return section_of(other.path) == section_of(key.path);
            });
            rows.insert(last == rows.rend() ? rows.end() : last.base(), key);
        }
        return rows;
    }();
    return all;
}

std::string default_text(const KeySpec& key) {
    if (!key.fallback.empty() || key.place.read == nullptr) return std::string(key.fallback);
    const TrainConfig config;
    const SettingValue value = read(key, config);
    return std::holds_alternative<std::string>(value) ? fmt::format("\"{}\"", std::get<std::string>(value))
                                                      : spelled(value);
}

std::vector<const KeySpec*> keys_of(Client client) {
    std::vector<const KeySpec*> found;
    for (const auto part : {keys(), package_keys()})
        for (const KeySpec& key : part)
            if (key.of(client)) found.push_back(&key);
    return found;
}

std::vector<std::string_view> words_of_section(std::string_view path, Client client) {
    std::vector<std::string_view> words;
    for (const KeySpec* key : keys_of(client))
        if (key->path.rfind('.') == path.size() && key->path.starts_with(path))
            words.push_back(key->path.substr(path.size() + 1));
    return words;
}

const KeySpec* find_key(std::string_view path, Client client) noexcept {
    for (const auto part : {keys(), package_keys()})
        for (const KeySpec& key : part)
            if (key.path == path) return key.of(client) ? &key : nullptr;
    return nullptr;
}

bool is_key(std::string_view path) noexcept {
    return find_key(path, Client::program) != nullptr || find_key(path, Client::package) != nullptr;
}

bool is_section(std::string_view path, Client client) noexcept {
    const auto within = [&](const KeySpec& key) {
        return key.of(client) && key.path.size() > path.size() && key.path.starts_with(path) &&
               key.path[path.size()] == '.';
    };
    return std::ranges::any_of(keys(), within) || std::ranges::any_of(package_keys(), within);
}

}  // namespace penstock::trainer
