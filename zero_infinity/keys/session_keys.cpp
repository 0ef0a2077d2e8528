#include "zero_infinity/keys/session_keys.h"

#include "aio/words/error.h"
#include "zero_infinity/keys/key_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace penstock::zero {
namespace {

using enum KeyType;
using enum AtResume;

using Text = std::array<std::string_view, 1>;
using Device = DeviceOptions;

constexpr double kibi = 1024;
constexpr double tebi = kibi * kibi * kibi * kibi;
constexpr double million = 1e6;
constexpr double trillion = 1e12;

constexpr Text scratch_alone{scratch_text};
constexpr std::array<std::string_view, 2> gradient_types{word_of(PlaneType::bf16), word_of(PlaneType::fp32)};
constexpr std::array older_orders{Alias{"in_backward", "within"}, Alias{"speculative", "within"},
                                  Alias{balanced_text, "within"}};
constexpr std::array device_aliases{Alias{"none", "cpu"}};
constexpr auto backends = words_after<aio::BackendKind>(auto_text);

template <auto... Path>
constexpr KeyPlace core = place_in<CoreOptions, Path...>;
template <auto... Path>
constexpr KeyPlace core_default = place_with_default_in<CoreOptions, Path...>;

// A key is two or three lines here, not eight.
// clang-format off
constexpr std::array key_list = {
    KeySpec{"data_types.grad_accum_dtype", choice, "(bf16 with bf16.enabled and up to 8 micro-batches, else fp32)", {},
            gradient_types, fixed,
            "type of the gradients in host memory, in which those of micro-batches are summed; bf16 keeps 8 bits",
            core<&CoreOptions::gradient_type>}
            .shared({.effect = Effect::obeyed, .automatic = "the store's choice", .fallback = "(the store's choice)"}),
    KeySpec{"zero_optimization.offload_param.device", choice, "\"cpu\"", {}, all_words<Tier>, free,
            "where weights are between uses: in the host budget as well, or on NVMe only",
            core<&CoreOptions::residency, &Residency::weights>}
            .shared({.effect = Effect::obeyed, .automatic = "cpu", .aliases = device_aliases}),
    KeySpec{"zero_optimization.offload_optimizer.device", choice, "\"cpu\"", {}, all_words<Tier>, free,
            "the same for the optimizer's states",
            core<&CoreOptions::residency, &Residency::states>}
            .shared({.effect = Effect::obeyed, .automatic = "cpu", .aliases = device_aliases}),
    KeySpec{"aio.deadline", integer, "", {1, 86400}, {}, free,
            "seconds until a device that does not answer is stuck; a flush may take longer while the device writes",
            core_default<&CoreOptions::io_deadline>}
            .shared(obeyed),
    KeySpec{"memory.host_budget", bytes, "", {kibi * kibi, 64 * tebi}, {}, free,
            "hard limit of the pool: weights, staging, gradients, resident objects; the ranks of a machine divide it",
            core<&CoreOptions::host_budget_bytes>}
            .shared({.effect = Effect::obeyed, .fallback = "0", .range = {0, 64 * tebi}}),
    KeySpec{"memory.fill_host_budget", boolean, "", {}, {}, free,
            "what the budget leaves, as far as the machine has it, keeps units' weights in host memory, then tiles "
            "of their states: each saves its reads; not with run.update_order \"within\" and gradient_clipping",
            core_default<&CoreOptions::fill_host_budget>}
            .shared(obeyed),
    KeySpec{"memory.prefetch_depth", integer, "", {0, 64}, {}, free, "units read ahead, as far as the budget allows",
            core_default<&CoreOptions::prefetch_depth>}
            .shared(obeyed),
    KeySpec{"memory.staging_tiles", integer, "", {2, 1024}, {}, free, "tiles whose states are in memory at once",
            core_default<&CoreOptions::staging_tiles>}
            .shared(obeyed),
    KeySpec{"memory.tile_elements", integer, "", {4096, 1 << 28}, {}, layout,
            "elements of a tile, a multiple of 4096; part of the store's layout and of the order of sums",
            core_default<&CoreOptions::tile_numel>}
            .shared(obeyed),
    KeySpec{"memory.activation_budget", bytes, "(none)", {4 * kibi, 64 * tebi}, {}, free,
            "of memory.host_budget, for what goes between the units and is kept for backward: what has no room there "
            "goes to NVMe and comes back; without it all of it stays in memory outside of the pool",
            core<&CoreOptions::activation_bytes>}
            .shared({.effect = Effect::obeyed, .range = {0, 64 * tebi}}),
    KeySpec{"memory.device", choice, "", {}, all_words<DeviceKind>, free, "where compute reads weights",
            core_default<&CoreOptions::device, &Device::kind>}
            .shared({.effect = Effect::obeyed, .type = text}),
    KeySpec{"memory.device_budget", bytes, "", {0, 64 * tebi}, {}, free,
            "memory of an emulated or cuda device; 0: half of what the GPU has free",
            core_default<&CoreOptions::device, &Device::budget_bytes>}
            .shared(obeyed),
    KeySpec{"memory.emulated_copy_delay_us", integer, "", {0, 10 * million}, {}, free,
            "emulated device: microseconds before each copy",
            core_default<&CoreOptions::device, &Device::copy_delay>},
    KeySpec{"run.name", text, "\"penstock\"", {}, {}, free, "owner of the store; another owner's is refused",
            core<&CoreOptions::job>}
            .shared(obeyed),
    KeySpec{"run.commit_every", integer_or_word, "", {1, trillion}, scratch_alone, free,
            "steps from one commit to the next: a crash loses what came after the last one, 1: the running step; "
            "scratch: no step is ever committed, a crash or the end loses the run",
            core_default<&CoreOptions::durability>}
            .shared(obeyed),
    KeySpec{"run.update_order", choice, "(within where nothing is clipped, else after_backward)", {},
            all_words<UpdateOrder>, free,
            "when units are updated, to the same bits: all at the end of their step, each as the next step first needs "
            "it, or each within backward; docs/settings.md has what each wants and costs",
            core<&CoreOptions::update_order>}
            .taking(older_orders)
            .shared({.effect = Effect::obeyed, .fallback = "\"after_backward\""}),
    KeySpec{"run.deferred_share", number_or_auto, "", {0, 1}, {}, free,
            "with \"within\": of what updates move, the share of whole units that every step leaves to the next one; "
            "auto: so much that forward and backward each move as much as they compute; `penstock plan` says which one "
            "it forecasts to be the fastest here",
            core_default<&CoreOptions::deferred_share>}
            .shared(obeyed),
    KeySpec{"run.sum_order", choice, "(ranks_first from zero_optimization.stage 2 on, else passes_first)", {},
            all_words<SumOrder>, free,
            "of several processes: each adds up its micro-batches, and its own sums of all units stay in memory until "
            "the step; or each micro-batch is added over the processes while its backward runs, and memory has a "
            "process's own sums of two units. With several backwards a step the second rounds otherwise, and takes as "
            "many times the bytes over the wire",
            core<&CoreOptions::ranks, &RankOptions::sum_order>}
            .shared({.effect = Effect::obeyed, .fallback = "(ranks_first from stage 2 on, else passes_first)"}),
    KeySpec{"run.verify", choice, "", {}, all_words<store::VerifyScope>, free,
            "how much of the checkpoint is read and checked before a resumed run writes; damage found then is survived "
            "by going back a commit",
            core_default<&CoreOptions::verify>}
            .shared(obeyed),
    KeySpec{"run.threads", integer, "0", {0, 4096}, {}, recorded,
            "of compute, changes bits; 0: as many as this process may use (affinity, cgroup) at the first start",
            core<&CoreOptions::worker_threads>}
            .shared(obeyed),
    KeySpec{"run.io_backend", choice, "", {}, backends, free,
            "auto: the fastest that works",
            core_default<&CoreOptions::backend>},
};
// clang-format on

const KeySpec& key_of(const std::string& path) {
    const auto* found = std::ranges::find(key_list, path, &KeySpec::path);
    if (found != key_list.end()) return *found;
    std::vector<std::string_view> known;
    for (const KeySpec& key : key_list) known.push_back(key.path);
    throw Error(ExitCode::usage,
                fmt::format("key '{}' is none of a session's, which are {}", path, fmt::join(known, ", ")));
}

}  // namespace

std::span<const KeySpec> session_keys() noexcept {
    return key_list;
}

void take_settings(std::string_view json, CoreOptions& options) {
    const nlohmann::json settings = parse_config(json, "settings");
    if (!settings.is_object())
        throw Error(ExitCode::usage, fmt::format("settings are {}; expected keys and their values", kind_of(settings)));
    for (const auto& [path, value] : settings.items()) {
        const KeySpec key = as_package(key_of(path));
        const auto converted = convert(key, value);
        if (!converted)
            throw Error(ExitCode::usage,
                        fmt::format("key '{}' is {}; expected {}", path, found_text(value), expectation(key)));
        key.place.fill(*converted, &options);
        if (older_word(key, value) == balanced_text && !settings.contains("run.deferred_share"))
            options.deferred_share.reset();
    }
}

}  // namespace penstock::zero
