#include "trainer/run/training_run.h"

#include "aio/words/error.h"
#include "trainer/ckpt/find_snapshot.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/step_record.h"
#include "trainer/config/io_settings.h"
#include "trainer/config/resume_rule.h"
#include "trainer/config/swap_directories.h"
#include "trainer/models/gpt.h"
#include "trainer/run/sample.h"
#include "zero_infinity/threads/usable_cores.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace penstock::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

double millions(std::uint64_t count) {
    return static_cast<double>(count) / 1e6;
}

// torch's thread count changes bits: it is decided here and recorded with the run.
unsigned start_threads(unsigned wanted) {
    const unsigned threads = wanted > 0 ? wanted : zero::UsableCores::read().count;
    at::set_num_threads(static_cast<int>(threads));
    return threads;
}

at::Device compute_device(const zero::DeviceOptions& options) {
    if (options.kind != zero::DeviceKind::cuda) return at::Device(at::kCPU);
    return {at::kCUDA, static_cast<at::DeviceIndex>(options.index)};
}

BatchShape batch_shape(const TrainConfig& config) {
    return {.rows = config.micro_batch_rows, .micro_batches = config.micro_batches, .context = config.model.context};
}

TokenFile open_data(const std::string& path) {
    std::error_code unknown;  // e.g. no permission to look: then opening says so
    const auto status = std::filesystem::status(path, unknown);
    if (status.type() == std::filesystem::file_type::not_found) {
        throw Error(
            ExitCode::usage,
            fmt::format("data.train: there is no {}; `penstock prepare --out {} TEXT...` makes it", path, path));
    }
    if (!unknown && !std::filesystem::is_regular_file(status)) {
        throw Error(ExitCode::usage,
                    fmt::format("data.train: {} is no regular file, and tokens are read in any order; give a file of "
                                "`penstock prepare`",
                                path));
    }
    return TokenFile(path);
}

void check_vocabulary(const TokenFile& data, const TrainConfig& config) {
    if (data.info().vocabulary <= static_cast<std::uint64_t>(config.model.vocabulary)) return;
    throw Error(ExitCode::usage,
                fmt::format("data.train {} has a vocabulary of {}; model.vocabulary {} is too small: set "
                            "it to at least the data's",
                            data.path(), data.info().vocabulary, config.model.vocabulary));
}

std::string snapshot_to_resume_from(const std::string& name, const TrainConfig& config) {
    const auto refuse = [&](const std::string& problem) {
        throw Error(ExitCode::usage, fmt::format("--resume-from {}: {}", name, problem));
    };
    std::string path;
    try {
        path = find_snapshot(config.keep.folder, name);
    } catch (const Error& error) {
        refuse(error.what());
    }
    for (const SettingDirectory& own : config.swap_directories) {
        std::error_code missing;
        if (std::filesystem::equivalent(path, own.path, missing) && !missing)
            refuse("it is the run's own store; without --resume-from the run goes on from the newest commit there");
    }
    return path;
}

}  // namespace

TrainingRun::TrainingRun(Settings settings, Console& console, RunRequest request)
    : console_(console),
      request_(std::move(request)),
      config_(make_config(std::move(settings))),
      data_(open_data(config_.train_file)),
      batches_(data_, batch_shape(config_), config_.session.seed, compute_device(config_.session.device)),
      threads_(start_threads(config_.session.worker_threads)),
      directory_(config_.run_directory, config_.swap_directory()),
      session_(open_session()),
      snapshot_(config_snapshot(config_.settings, threads_)),
      state_(read_state(session_->info().client)),
      committed_(session_->info().resumed || durable() ? std::optional(state_.step) : std::nullopt),
      keeping_(config_.keep, *session_, console_) {
    open_log();
    say_start();
    counters_ = session_->counters();
}

std::unique_ptr<engine::Session> TrainingRun::open_session() {
    check_vocabulary(data_, config_);
    store::ClientState initial = config_snapshot(config_.settings, threads_);
    write_state({.step = 0, .rows = 0, .data_hash = data_.info().hash, .first_loss = {}, .last_loss = {}}, initial);
    std::optional<ProgressLine> line;
    std::string told;
    const engine::SessionEvents events{
        .recovered = [this](const store::ClientState& stored) { accept(stored); },
        .progress =
            [&](const char* what, std::uint64_t done, std::uint64_t total) {
                if (told != what) line.emplace(console_, told = what);
                line->show(done, total);
            },
    };
    const IoSettings io = io_settings(config_);
    if (!io.note.empty()) console_.info(io.note);
    engine::SessionOptions options = config_.session;
    options.worker_threads = threads_;
    options.io = io.limits;
    if (!request_.resume_from.empty()) {
        options.resume_from = snapshot_to_resume_from(request_.resume_from, config_);
        origin_ = see_store(options.resume_from).origin;
    } else if (!see_store(config_.swap_directory()).committed) {
        console_.info(fmt::format("a new run: nothing is committed in {}", config_.swap_directory()));
    }
    const SwapShares shares = swap_shares(config_.swap_directories);
    if (!shares.note.empty()) console_.info(shares.note);
    options.swap_shares = shares.shares;
    return std::make_unique<engine::Session>(make_gpt(config_.model), make_optimizers(config_.optimizer),
                                             std::move(options), initial, events);
}

void TrainingRun::accept(const store::ClientState& stored) {
    const RunState state = read_state(stored);
    for (const std::string& note : check_resume(config_.settings, stored, config_.swap_directory()))
        console_.info(note);
    if (state.data_hash != data_.info().hash) {
        throw Error(
            ExitCode::usage,
            fmt::format("data.train {} has contents {} but the run in {} was started with {}; give the same tokens, or "
                        "start a new run with another store directory",
                        data_.path(), data_.info().hash, config_.swap_directory(), state.data_hash));
    }
    threads_ = start_threads(recorded_threads(stored));
}

void TrainingRun::open_log() {
    const auto start = session_->info().resumed ? RunDirectory::Start::resumed : RunDirectory::Start::begun;
    for (const std::string& line : directory_.adopt(session_->info().store, start, origin_)) console_.warn(line);
    log_ = std::make_unique<RunLog>(directory_.log(), state_.step);
    summary_.store = store::to_string(session_->info().store);
    summary_.resumed_from_step = state_.step;
}

void TrainingRun::say_start() {
    for (const std::string& note : session_->take_notes()) console_.info(note);
    const engine::Model& model = session_->model();
    console_.info(fmt::format("model: {:.2f} M parameters, {:.2f} M of them trainable, in {} units",
                              millions(model.parameter_numel()), millions(model.trainable_numel()),
                              model.units().size()));
    console_.info(
        fmt::format("data: {}, {} tokens, {} per step", data_.path(), data_.info().count, config_.tokens_per_step()));
    console_.info(fmt::format("store: {} ({}), prefetch depth {}, {} threads", config_.swap_directory(),
                              session_->info().io, session_->info().prefetch_depth, threads_));
    console_.info("memory:\n" + session_->info().memory_table);
    if (session_->info().resumed) console_.info(fmt::format("resumed at step {} of {}", state_.step, config_.steps));
}

void TrainingRun::next_step() {
    const auto start = Clock::now();
    RunState next = state_;
    next.step += 1;
    next.rows += config_.micro_batch_rows * config_.micro_batches;
    const zero::StepValues values{.step = static_cast<std::uint64_t>(next.step),
                                  .learning_rate = learning_rate(config_.schedule, next.step)};
    std::optional<LiveClock> clock(std::in_place, console_,
                                   live_.empty() ? fmt::format("{}/{} first step", next.step, config_.steps) : live_);
    const engine::StepReport report =
        session_->engine().train_batch(batches_.of_step(next.step), values, [&](const engine::StepReport& known) {
            next.last_loss = known.loss;
            if (next.step == 1) next.first_loss = known.loss;
            store::ClientState client = snapshot_;
            write_state(next, client);
            return client;
        });

    clock.reset();
    state_ = std::move(next);
    if (report.committed) committed_ = state_.step;
    for (const std::string& note : session_->take_notes()) console_.warn(note);
    const StepRecord record = measure(report, seconds_of(Clock::now() - start));
    append_to_log(record);
    show(record);
}

// A terminal keeps the line of every tenth of the run, and one every ten minutes: how the loss went stays to be seen.
void TrainingRun::show(const StepRecord& record) {
    if (!console_.is_terminal()) return console_.info(line_of(record));
    live_ = live_line_of(record, console_.columns());
    console_.live(live_);
    const auto now = Clock::now();
    const bool tenth = record.step * 10 / record.steps != (record.step - 1) * 10 / record.steps;
    if (!tenth && now - left_standing_ < std::chrono::minutes(10)) return;
    left_standing_ = now;
    console_.settle();
}

void TrainingRun::append_to_log(const StepRecord& record) {
    try {
        log_->append(record);
    } catch (const Error& error) {
        throw Error(error.code(), with_committed(error.what()));
    }
}

void TrainingRun::settle() {
    if (!durable()) {
        console_.info(fmt::format("scratch: steps {} to {} are not kept", summary_.resumed_from_step + 1, state_.step));
    } else if (committed_ != state_.step) {
        session_->engine().settle();
        committed_ = state_.step;
    }
}

void TrainingRun::keep_snapshot(bool asked) {
    const auto word = asked ? Asked::yes : Asked::no;
    if (keeping_.step_ended(state_.step, word)) committed_ = state_.step;
}

void TrainingRun::finish_snapshot(const std::function<bool()>& wanted) {
    using End = SnapshotKeeping::RunEnd;
    keeping_.finish(state_.step, finished() ? End::finished : End::stopped, wanted);
}

StepRecord TrainingRun::measure(const engine::StepReport& report, double seconds) {
    const engine::SessionCounters now = session_->counters();
    smooth_seconds_ = step_seconds_.empty() ? seconds : 0.8 * smooth_seconds_ + 0.2 * seconds;
    smooth_loss_ = step_seconds_.empty() ? report.loss : 0.9 * smooth_loss_ + 0.1 * report.loss;
    step_seconds_.push_back(seconds);
    const StepRecord record{.step = state_.step,
                            .steps = config_.steps,
                            .time_s = std::time(nullptr),
                            .committed = committed_,
                            .loss = report.loss,
                            .smooth_loss = smooth_loss_,
                            .gradient_norm = report.gradient_norm,
                            .learning_rate = learning_rate(config_.schedule, state_.step),
                            .tokens = config_.tokens_per_step(),
                            .seconds = seconds,
                            .forward_seconds = seconds_of(report.forward),
                            .backward_seconds = seconds_of(report.backward),
                            .update_seconds = seconds_of(report.update),
                            .commit_seconds = seconds_of(report.commit),
                            .wait_weights_seconds = seconds_of(now.waits.weights - counters_.waits.weights),
                            .wait_tiles_seconds = seconds_of(now.waits.tiles - counters_.waits.tiles),
                            .wait_commit_seconds = seconds_of(now.waits.commit - counters_.waits.commit),
                            .read_bytes = now.read_bytes - counters_.read_bytes,
                            .write_bytes = now.write_bytes - counters_.write_bytes,
                            .pool_peak_bytes = session_->counters().pool_peak_bytes,
                            .pool_budget_bytes = session_->info().pool_budget_bytes,
                            .peak_rss_bytes = peak_rss_bytes(),
                            .seconds_left = smooth_seconds_ * static_cast<double>(config_.steps - state_.step)};
    counters_ = now;
    summary_.nvme_read_bytes += record.read_bytes;
    summary_.nvme_write_bytes += record.write_bytes;
    summary_.step_seconds_total += seconds;
    return record;
}

void TrainingRun::write_sample_text() {
    const SampleRequest request{.options = config_.sample,
                                .context = config_.model.context,
                                .seed = config_.session.seed,
                                .device = compute_device(config_.session.device)};
    ProgressLine line(console_, "writing a sample");
    summary_.sample = printable(write_sample(session_->engine(), request, [&](std::int64_t written) {
        line.show(static_cast<std::uint64_t>(written), static_cast<std::uint64_t>(config_.sample.tokens));
    }));
}

// The summary is saved before the sample, which may take minutes and which nobody waits for after a stop.
const Summary& TrainingRun::conclude() {
    console_.settle();
    fill_summary();
    save_summary();
    if (finished() && config_.sample.tokens > 0 && !unsaved_) {
        write_sample_text();
        fill_summary();
        save_summary();
    }
    say_summary();
    if (unsaved_) console_.error(*unsaved_);
    return summary_;
}

void TrainingRun::fill_summary() {
    const engine::Model& model = session_->model();
    const auto trainable = static_cast<double>(model.trainable_numel());
    summary_.steps = state_.step;
    summary_.steps_run = static_cast<std::int64_t>(step_seconds_.size());
    summary_.committed = committed_;
    summary_.params = model.parameter_numel();
    summary_.trainable_params = model.trainable_numel();
    summary_.first_loss = state_.first_loss;
    summary_.final_loss = state_.last_loss;
    summary_.tokens_per_step = config_.tokens_per_step();
    summary_.step_seconds_p50 = median(step_seconds_);
    summary_.planned_bytes_per_param_step = session_->info().planned_bytes / trainable;
    summary_.formula_bytes_per_param_step = session_->info().nominal_traffic.total();
    summary_.pool_peak_bytes = session_->counters().pool_peak_bytes;
    summary_.pool_budget_bytes = session_->info().pool_budget_bytes;
    summary_.peak_rss_bytes = peak_rss_bytes();
    summary_.checkpoint = config_.swap_directory();
    summary_.log = directory_.log();
}

// What the run has computed is committed and will be printed: a file that cannot be written only decides the exit code.
void TrainingRun::save_summary() {
    try {
        save(summary_, directory_.summary());
    } catch (const Error& error) {
        unsaved_ = with_committed(error.what());
    }
}

std::string TrainingRun::with_committed(const std::string& problem) const {
    return fmt::format("{}; {}", problem,
                       committed_ ? fmt::format("step {} is committed in {}", *committed_, config_.swap_directory())
                                  : "nothing of a scratch run is kept");
}

const Summary& TrainingRun::recall() {
    console_.info(fmt::format("finished: the run in {} has its {} steps; raise run.steps to go on",
                              config_.swap_directory(), state_.step));
    const auto saved = load_summary(directory_.summary());
    const bool ours = saved && (saved->store.empty() || saved->store == summary_.store);
    if (!ours || saved->steps != state_.step)
        return conclude();  // it was killed between its last commit and its summary
    fill_summary();
    summary_.sample = saved->sample;
    if (summary_.sample.empty() && config_.sample.tokens > 0) write_sample_text();  // it was stopped or killed before
    say_summary();
    console_.info(fmt::format("{} has the figures of the call that did the steps", directory_.summary()));
    return summary_;
}

void TrainingRun::say_summary() {
    console_.settle();
    if (!summary_.sample.empty()) console_.info("sample:\n" + summary_.sample);
    for (const std::string& line : lines_of(summary_)) console_.info(line);
}

}  // namespace penstock::trainer
