// A training run's configuration, typed and checked as a whole. Needs no torch.
#pragma once

#include "aio/words/enum_words.h"
#include "trainer/config/compute_options.h"
#include "trainer/config/optimizer_config.h"
#include "trainer/config/schedule.h"
#include "trainer/config/settings.h"
#include "trainer/config/snapshot_options.h"
#include "trainer/models/gpt_options.h"
#include "zero_infinity/engine/session_options.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// What memory.codec chooses between; which codec that is follows from bf16.enabled too.
enum class CodecChoice : std::uint8_t { exact, compact };
constexpr auto words_of(CodecChoice) noexcept {
    return std::array{Word{CodecChoice::exact, "exact"}, Word{CodecChoice::compact, "compact"}};
}

using zero::scratch_text;

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
    std::int64_t micro_batches = 1;  // of each rank
    std::int64_t ranks = 1;          // that train together
    OptimizerConfig optimizer;
    ScheduleOptions schedule;

    // Whole but for what is known when the session is opened: `io` (trainer/config/io_settings.h), swap_shares,
    // resume_from, and worker_threads where it is 0: not decided.
    engine::SessionOptions session;
    ComputeOptions compute;
    std::vector<SettingDirectory> swap_directories;  // one at least; the session's, with their bandwidths
    std::optional<std::uint32_t> io_block_bytes;     // none: the device's profile says
    std::optional<std::uint32_t> io_queue_depth;

    std::string run_directory;
    std::int64_t steps = 0;
    SampleOptions sample;
    SnapshotOptions snapshots;

    Settings settings;  // that all this was made of, with what follows from others

    const std::string& swap_directory() const { return swap_directories.front().path; }  // the one with the manifests
    // Of all ranks.
    std::int64_t tokens_per_step() const noexcept { return ranks * micro_batch_rows * micro_batches * model.context; }
    bool durable() const noexcept { return session.durability != zero::Durability::scratch; }
};

// Fills in what follows from other keys, and checks what several keys say together, for a run of so many ranks. Throws
// Error (usage).
TrainConfig make_config(Settings settings, std::int64_t ranks = 1);

}  // namespace penstock::trainer
