// A training run's configuration, typed and checked as a whole.
#pragma once

#include "swap/store/tensor_store.h"
#include "trainer/config/keep_options.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/schedule.h"
#include "trainer/config/settings.h"
#include "trainer/config/swap_directories.h"
#include "trainer/models/gpt_options.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/plan/traffic.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

enum class IoChoice : std::uint8_t { automatic, io_uring, libaio, threads };
enum class ActivationChoice : std::uint8_t { recompute, keep };
enum class ComputeType : std::uint8_t { bf16, fp32 };
enum class CodecChoice : std::uint8_t { exact, compact };

struct SampleOptions {
    std::string prompt;
    std::int64_t tokens = 0;  // 0: no sample
    double temperature = 0;   // 0: always the likeliest
};

// Each field is a key of the table; its unit and meaning are there.
struct TrainConfig {
    GptOptions model;
    std::string train_file;

    std::int64_t micro_batch_rows = 1;
    std::int64_t micro_batches = 1;
    double gradient_clipping = 1;
    OptimizerConfig optimizer;
    ScheduleOptions schedule;
    ComputeType compute_type = ComputeType::fp32;
    zero::PlaneType gradient_type = zero::PlaneType::fp32;
    CodecChoice codec = CodecChoice::exact;

    zero::Residency residency;
    std::vector<SettingDirectory> swap_directories;  // one at least
    std::optional<std::uint32_t> io_block_bytes;     // none: the device's profile says (trainer/config/io_settings.h)
    std::optional<std::uint32_t> io_queue_depth;

    std::uint64_t host_budget_bytes = 0;
    std::uint32_t prefetch_depth = 2;
    std::uint32_t staging_tiles = 4;
    std::uint64_t tile_numel = 1U << 20;
    ActivationChoice activations = ActivationChoice::recompute;
    zero::DeviceOptions device;

    std::string run_directory;
    std::string name;
    std::int64_t steps = 0;
    zero::Durability durability;
    store::VerifyScope verify = store::VerifyScope::all;
    std::uint64_t seed = 1;
    unsigned threads = 0;  // 0: not decided
    IoChoice io = IoChoice::automatic;
    SampleOptions sample;
    KeepOptions keep;

    const std::string& swap_directory() const { return swap_directories.front().path; }  // the one with the manifests
    std::int64_t tokens_per_step() const noexcept { return micro_batch_rows * micro_batches * model.context; }
};

// Checks what several keys say together, fills what follows from others (in `settings` too). Throws Error (usage).
TrainConfig make_config(Settings& settings);

}  // namespace penstock::trainer
