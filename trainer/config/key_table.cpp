#include "trainer/config/key_table.h"

#include <algorithm>
#include <array>

namespace penstock::trainer {
namespace {

using enum KeyType;
using enum AtResume;

constexpr double kibi = 1024;
constexpr double tebi = kibi * kibi * kibi * kibi;
constexpr double million = 1e6;
constexpr double trillion = 1e12;

// A key is one line or two here, not seven.
// clang-format off
constexpr std::array key_list = {
    // The model. A GPT-style decoder; each number changes the parameters.
    KeySpec{"model.type", choice, "\"gpt\"", {}, "gpt", fixed, "architecture"},
    KeySpec{"model.vocabulary", integer, "256", {2, 16 * million}, "", fixed, "tokens the model knows; bytes need 256"},
    KeySpec{"model.hidden", integer, "512", {1, million}, "", fixed, "width; a multiple of heads"},
    KeySpec{"model.layers", integer, "8", {1, 10000}, "", fixed, "blocks"},
    KeySpec{"model.heads", integer, "8", {1, 10000}, "", fixed, "attention heads"},
    KeySpec{"model.feed_forward", integer, "2048", {1, 16 * million}, "", fixed, "width inside the MLP"},
    KeySpec{"model.context", integer, "256", {1, 16 * million}, "", fixed, "tokens of one row"},
    KeySpec{"model.norm", choice, "\"rms\"", {}, "rms|layer", fixed, "RMSNorm or LayerNorm"},
    KeySpec{"model.positions", choice, "\"rotary\"", {}, "rotary|learned", fixed,
            "rotary needs an even hidden / heads"},
    KeySpec{"model.tied_head", boolean, "false", {}, "", fixed, "the head reads the embedding's weights"},
    KeySpec{"model.frozen", names, "[]", {}, "", fixed,
            "units (\"embedding\") and parameters (\"blocks.0.qkv\") that are not trained"},

    KeySpec{"data.train", text, "", {}, "", contents, "token file made by `penstock prepare`"},

    // DeepSpeed's names and meaning.
    KeySpec{"train_batch_size", integer, "(micro-batch × accumulation)", {1, million}, "", fixed,
            "rows of one step; the identity of the three is checked"},
    KeySpec{"train_micro_batch_size_per_gpu", integer, "(train_batch_size ÷ accumulation, or 1)",
            {1, million}, "", fixed, "rows that are computed at once"},
    KeySpec{"gradient_accumulation_steps", integer, "(train_batch_size ÷ micro-batch, or 1)", {1, million}, "", fixed,
            "micro-batches of one step"},
    KeySpec{"gradient_clipping", number, "1.0", {0, million}, "", fixed, "limit of the global gradient norm; 0: none"},
    KeySpec{"optimizer.type", choice, "\"AdamW\"", {}, "AdamW|Adam|SGD|Lion|Adagrad", fixed, "optimizer"},
    KeySpec{"optimizer.params.lr", number, "0.001", {0, 1000}, "", fixed, "learning rate"},
    KeySpec{"optimizer.params.betas", pair, "([0.9, 0.999]; Lion: [0.9, 0.99])", {0, 0.99999999}, "", fixed,
            "AdamW, Adam: decay of the two moments; Lion: of the direction and of the moment"},
    KeySpec{"optimizer.params.eps", number, "(1e-8; Adagrad: 1e-10)", {1e-30, 1}, "", fixed,
            "AdamW, Adam, Adagrad: added to the root of the second moment"},
    KeySpec{"optimizer.params.weight_decay", number, "0", {0, 1000}, "", fixed,
            "AdamW, Adam, Lion: decoupled weight decay; SGD, Adagrad: an L2 penalty"},
    KeySpec{"optimizer.params.adam_w_mode", boolean, "(true)", {}, "", fixed,
            "Adam: true: the same as AdamW; false: an L2 penalty in place of decoupled weight decay"},
    KeySpec{"optimizer.params.momentum", number, "(0)", {0, 1000}, "", fixed, "SGD: 0: no moment is kept"},
    KeySpec{"optimizer.params.dampening", number, "(0)", {-1000, 1000}, "", fixed, "SGD: of the momentum"},
    KeySpec{"optimizer.params.nesterov", boolean, "(false)", {}, "", fixed, "SGD: needs momentum, and no dampening"},
    KeySpec{"optimizer.params.lr_decay", number, "(0)", {0, 1000}, "", fixed,
            "Adagrad: step t has lr / (1 + (t - 1) × lr_decay)"},
    KeySpec{"optimizer.params.initial_accumulator_value", number, "(0)", {0, million}, "", fixed,
            "Adagrad: where the sum of squares begins"},
    KeySpec{"optimizer.groups", groups, "(none)", {}, "optimizer.params", fixed,
            "parameters with optimizer.params of their own, by a pattern of UNIT.PARAMETER; the first match counts"},
    KeySpec{"scheduler.type", choice, "\"none\"", {}, "none|WarmupLR|WarmupDecayLR|WarmupCosineLR", fixed,
            "course of the learning rate; none: constant"},
    KeySpec{"scheduler.params.warmup_min_lr", number, "0", {0, 1000}, "", fixed, "WarmupLR, WarmupDecayLR: first rate"},
    KeySpec{"scheduler.params.warmup_max_lr", number, "(optimizer.params.lr)", {0, 1000}, "", fixed,
            "WarmupLR, WarmupDecayLR: rate after the warm-up"},
    KeySpec{"scheduler.params.warmup_num_steps", integer, "1000", {1, trillion}, "", fixed,
            "steps of the warm-up; fewer than 2 count as 2"},
    KeySpec{"scheduler.params.warmup_type", choice, "\"log\"", {}, "log|linear", fixed, "course of the warm-up"},
    KeySpec{"scheduler.params.total_num_steps", integer, "(run.steps)", {1, trillion}, "", derived,
            "WarmupDecayLR, WarmupCosineLR: end of the decay"},
    KeySpec{"scheduler.params.warmup_min_ratio", number, "0", {0, 1}, "", fixed, "WarmupCosineLR: first rate ÷ lr"},
    KeySpec{"scheduler.params.cos_min_ratio", number, "0.0001", {0, 1}, "", fixed, "WarmupCosineLR: last rate ÷ lr"},
    KeySpec{"bf16.enabled", boolean, "false", {}, "", fixed,
            "compute in bf16 with an exact fp32 master (codec `split`); else all in fp32 (codec `plain_fp32`)"},
    KeySpec{"data_types.grad_accum_dtype", choice, "(bf16 with bf16.enabled, else fp32)", {}, "bf16|fp32", fixed,
            "type of the gradients in host memory"},
    KeySpec{"zero_optimization.stage", integer, "3", {3, 3}, "", free, "stage 3 is the only one so far"},
    KeySpec{"zero_optimization.offload_param.device", choice, "\"cpu\"", {}, "cpu|nvme", free,
            "where weights are between uses: in the host budget as well, or on NVMe only"},
    KeySpec{"zero_optimization.offload_param.nvme_path", text, "(none)", {}, "", free,
            "directory of the checkpoint store"},
    KeySpec{"zero_optimization.offload_optimizer.device", choice, "\"cpu\"", {}, "cpu|nvme", free,
            "the same for the optimizer's states"},
    KeySpec{"zero_optimization.offload_optimizer.nvme_path", text, "(none)", {}, "", free,
            "the same directory; one of the two is enough"},
    KeySpec{"aio.block_size", bytes_or_auto, "\"auto\"", {4 * kibi, kibi * kibi * kibi}, "", free,
            "longest single read or write, a power of two; auto: of the device's profile, else 1 MiB"},
    KeySpec{"aio.queue_depth", integer_or_word, "\"auto\"", {1, 4096}, "auto", free,
            "blocks in flight at once in each direction; auto: of the device's profile, else 8 MiB in flight"},

    // Memory: how, not what, is computed.
    KeySpec{"memory.host_budget", bytes, "", {kibi * kibi, 64 * tebi}, "", free,
            "hard limit of the pool: weights, staging, gradients, resident objects"},
    KeySpec{"memory.prefetch_depth", integer, "2", {0, 64}, "", free, "units read ahead, as far as the budget allows"},
    KeySpec{"memory.staging_tiles", integer, "4", {2, 1024}, "", free, "tiles in memory during the update"},
    KeySpec{"memory.tile_elements", integer, "1048576", {4096, 1 << 28}, "", fixed,
            "elements of a tile, a multiple of 4096; part of the store's layout and of the order of sums"},
    KeySpec{"memory.codec", choice, "\"exact\"", {}, "exact|compact", fixed,
            "how masters and moments are stored; exact: `split` or `plain_fp32`; compact: LOSSY, 24 bits of the master "
            "and 8 of each moment, 5.125 bytes instead of 12, with bf16.enabled only and not for Adagrad; "
            "zero_infinity/kernels/compact.h says what its rounding can do to moments"},
    KeySpec{"memory.activations", choice, "\"recompute\"", {}, "recompute|keep", free,
            "run each unit's forward again in backward, or keep what it computed"},
    KeySpec{"memory.device", choice, "\"cpu\"", {}, "cpu|emulated|cuda", free, "where compute reads weights"},
    KeySpec{"memory.device_budget", bytes, "0", {0, 64 * tebi}, "", free, "memory of an emulated or cuda device"},
    KeySpec{"memory.emulated_copy_delay_us", integer, "0", {0, 10 * million}, "", free,
            "emulated device: microseconds before each copy"},

    KeySpec{"keep.every", integer, "0", {0, trillion}, "", free,
            "steps from one kept snapshot to the next; 0: only when SIGUSR1 asks and keep.folder is given"},
    KeySpec{"keep.last", integer, "0", {0, million}, "", free,
            "how many step-N snapshots stay, the older ones go when a new one is complete; 0: all"},
    KeySpec{"keep.folder", text, "(\"kept\" in the first swap directory)", {}, "", free,
            "where snapshots go; may be on another file system"},

    KeySpec{"run.directory", text, "", {}, "", free, "where log and summary go; made when missing"},
    KeySpec{"run.swap_directory", directories, "(nvme_path)", {}, "", free,
            "directory of the checkpoint store when no nvme_path is given; of several, one per device, each gets "
            "a share of the tiles, equal or by bandwidth, and the first has the manifests; a store keeps shares and "
            "order"},
    KeySpec{"run.name", text, "\"penstock\"", {}, "", free, "owner of the store; another owner's is refused"},
    KeySpec{"run.steps", integer, "", {1, trillion}, "", free, "steps in all; may grow"},
    KeySpec{"run.commit_every", integer_or_word, "1", {1, trillion}, "scratch", free,
            "steps from one commit to the next: a crash loses what came after the last one, 1: the running step; "
            "scratch: no step is ever committed, a crash or the end loses the run"},
    KeySpec{"run.verify", choice, "\"all\"", {}, "all|sample|none", free,
            "how much of the checkpoint is read and checked before a resumed run writes; damage found then is survived "
            "by going back a commit"},
    KeySpec{"run.seed", integer, "1", {0, 9007199254740992.0}, "", fixed, "of initial weights and data order"},
    KeySpec{"run.threads", integer, "0", {0, 4096}, "", recorded,
            "of compute, changes bits; 0: as many as this process may use (affinity, cgroup) at the first start"},
    KeySpec{"run.io_backend", choice, "\"auto\"", {}, "auto|io_uring|libaio|threads", free,
            "auto: the fastest that works"},
    KeySpec{"run.sample.prompt", text, "\"The \"", {}, "", free, "text that the sample at the end continues"},
    KeySpec{"run.sample.tokens", integer, "200", {0, million}, "", free, "length of the sample; 0: none"},
    KeySpec{"run.sample.temperature", number, "0.8", {0, 100}, "", free, "0: always the likeliest token"},
};
// clang-format on

}  // namespace

std::span<const KeySpec> keys() noexcept {
    return key_list;
}

std::vector<std::string_view> words_of_section(std::string_view path) {
    std::vector<std::string_view> words;
    for (const KeySpec& key : key_list)
        if (key.path.rfind('.') == path.size() && key.path.starts_with(path))
            words.push_back(key.path.substr(path.size() + 1));
    return words;
}

const KeySpec* find_key(std::string_view path) noexcept {
    const auto* found =
        std::find_if(key_list.begin(), key_list.end(), [&](const KeySpec& key) { return key.path == path; });
    return found == key_list.end() ? nullptr : &*found;
}

bool is_section(std::string_view path) noexcept {
    return std::any_of(key_list.begin(), key_list.end(), [&](const KeySpec& key) {
        return key.path.size() > path.size() && key.path.starts_with(path) && key.path[path.size()] == '.';
    });
}

}  // namespace penstock::trainer
