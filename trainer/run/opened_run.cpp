#include "trainer/run/opened_run.h"

#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "pinned_pool/budget.h"
#include "swap/directory/snapshot_list.h"
#include "trainer/ckpt/find_snapshot.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
#include "trainer/cli/step_record.h"
#include "trainer/config/derived_settings.h"
#include "trainer/config/io_settings.h"
#include "trainer/config/resume_rule.h"
#include "trainer/config/swap_directories.h"
#include "trainer/models/gpt.h"
#include "trainer/ranks/rank_rules.h"
#include "trainer/run/run_log.h"
#include "trainer/start/bits_beside.h"
#include "trainer/start/compute_threads.h"
#include "trainer/start/room_to_compute.h"
#include "trainer/start/torch_settings.h"
#include "zero_infinity/session/rank_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::trainer {
namespace {

double millions(std::uint64_t count) {
    return static_cast<double>(count) / 1e6;
}

// torch's thread count changes bits: it is decided here and recorded with the run.
unsigned start_threads(unsigned wanted, unsigned cores) {
    const unsigned threads = wanted > 0 ? wanted : cores;
    make_compute_threads(threads);
    return threads;
}

at::Device compute_device(const zero::DeviceOptions& options) {
    if (options.kind != zero::DeviceKind::cuda) return at::Device(at::kCPU);
    return {at::kCUDA, static_cast<at::DeviceIndex>(options.index)};
}

BatchShape batch_shape(const TrainConfig& config, zero::Partition of) {
    return {.rows = config.micro_batch_rows,
            .micro_batches = config.micro_batches,
            .context = config.model.context,
            .of = of};
}

TokenFile open_data(const std::string& path) {
    std::error_code unknown;
    const auto status = std::filesystem::status(path, unknown);
    if (unknown && status.type() == std::filesystem::file_type::none) {
        throw Error(ExitCode::usage, fmt::format("data.train: {} cannot be looked at: {}; correct the path or its "
                                                 "permissions, or make it again: `penstock prepare --out {} TEXT...`",
                                                 path, unknown.message(), path));
    }
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

bool contains(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

std::string snapshot_to_resume_from(const std::string& name, const TrainConfig& config, zero::Partition place) {
    const auto refuse = [&](const std::string& problem) {
        throw Error(ExitCode::usage, fmt::format("--resume-from {}: {}", name, problem));
    };
    std::string path;
    try {
        path = find_snapshot(SnapshotFolder(config.snapshots.folder, place), name);
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

OpenedRun::OpenedRun(TrainConfig config, WhereFrom from, RunRanks& ranks, Console& console)
    : ranks_(ranks),
      config_(std::move(config)),
      store_directory_(zero::rank_directory(config_.swap_directory(), ranks.place())),
      away_(away_bytes(config_, kept_graphs(config_, {}))),
      from_(std::move(from)),
      data_(open_data(config_.train_file)),
      batches_(data_, batch_shape(config_, ranks.place()), config_.session.seed, device()),
      bits_(bits_beside(config_.session.device.kind)) {
    ranks_.telling([&] { open(console); });
}

void OpenedRun::open(Console& console) {
    {
        const std::unique_ptr<zero::Communicator> all = ranks_.communicator();
        agree_on_run(*all, config_, data_.info().hash);
        cores_ = cores_of_rank(*all);
        sharing_ = ranks_of_machine(*all);
    }
    threads_ = start_threads(config_.session.worker_threads, cores_);
    zero::refuse_other_number(config_.swap_directory(), ranks_.place().ranks);
    if (ranks_.speaks()) directory_.emplace(config_.run_directory, store_directory_);
    own_ = see_store(store_directory_);
    tell_torch(config_.compute, config_.session.device.kind);
    session_ = open_session(console);
    start_.state = first_state();
    check_room_for_activations();
    check_room_to_compute(input_bytes_of_step(config_));
    if (session_->info().resumed || config_.durable()) start_.committed = start_.state.step;
    if (directory_) adopt_directory(console);
    say_start(console);
}

void OpenedRun::adopt_directory(Console& console) {
    const engine::SessionInfo& opened = session_->info();
    const auto how = opened.resumed ? RunDirectory::Start::resumed : RunDirectory::Start::begun;
    const LogKin kin = read_log(directory_->log(), start_.state).kin;
    for (const std::string& line : directory_->adopt(opened.store, how, kin, origin_)) console.warn(line);
}

// The store has its own by now.
void OpenedRun::check_room_for_activations() const {
    if (away_.out == 0) return;
    const std::vector<std::uint16_t> shares = swap_shares(config_.swap_directories).shares;
    const double all = shares.empty() ? static_cast<double>(config_.swap_directories.size())
                                      : std::accumulate(shares.begin(), shares.end(), 0.0);
    for (std::size_t i = 0; i < config_.swap_directories.size(); ++i) {
        const double share = (shares.empty() ? 1 : shares[i]) / all;
        const auto needed = static_cast<std::uint64_t>(static_cast<double>(away_.out) * share);
        const std::string& path = config_.swap_directories[i].path;
        std::error_code unknown;
        const std::uintmax_t free = std::filesystem::space(path, unknown).available;
        if (unknown || needed <= free) continue;
        throw Error(
            ExitCode::does_not_fit,
            fmt::format("{}: {} of activations that go to NVMe in each step find no room there, {} are free: "
                        "free some, or raise memory.activation_budget {}",
                        path, bytes_text(needed), bytes_text(free), bytes_text(config_.session.activation_bytes)));
    }
}

at::Device OpenedRun::device() const {
    return compute_device(config_.session.device);
}

std::unique_ptr<engine::Session> OpenedRun::open_session(Console& console) {
    check_vocabulary(data_, config_);
    const store::ClientState initial =
        client_state({.step = 0, .rows = 0, .data_hash = data_.info().hash, .first_loss = {}, .last_loss = {}});
    std::optional<ProgressLine> line;
    std::string told;
    const engine::SessionEvents events{
        .recovered = [&](const store::ClientState& stored, const std::string& place) { accept(stored, place); },
        .progress =
            [&](const char* what, std::uint64_t done, std::uint64_t total) {
                if (told != what) line.emplace(console, told = what);
                line->show(done, total);
            },
        .waiting = told_to(console),
    };
    return std::make_unique<engine::Session>(make_gpt(config_.model), make_optimizers(config_.optimizer),
                                             session_options(console), initial, events,
                                             engine::SessionSeams{.ranks = ranks_.ways()});
}

// The configuration's, and what only the directories and their devices say.
engine::SessionOptions OpenedRun::session_options(Console& console) {
    engine::SessionOptions options = config_.session;
    options.worker_threads = threads_;
    const IoSettings io = io_settings(config_, sharing_);
    for (const std::string& warning : io.warnings) console.warn(warning);
    if (!io.note.empty()) console.info(io.note);
    options.io = io.limits;
    options.hashing.threads = hash_threads_for(io, threads_, cores_);
    if (options.hashing.threads > 0)
        console.info(fmt::format("{} threads hash tiles: the devices move {:.1f} GB/s", options.hashing.threads,
                                 io.bytes_per_second / 1e9));
    if (!from_.resume_from.empty()) {
        options.resume_from = snapshot_to_resume_from(from_.resume_from, config_, ranks_.place());
        options.go_back = from_.go_back;
        origin_ = see_store(zero::find_snapshot(options.resume_from, ranks_.place())).origin;
    } else if (!own_.committed) {
        if (directory_ && !from_.go_back) check_log_of_new_run();
        console.info(fmt::format("a new run: nothing is committed in {}", store_directory_));
    }
    // What of a store is left whose first directory is gone is given up with it, by who says so.
    if (!own_.committed && !ranks_.several() && (from_.go_back || !from_.resume_from.empty()))
        options.lost_store = directory_->store_of_this_place();
    const SwapShares shares = swap_shares(config_.swap_directories);
    if (!shares.note.empty()) console.info(shares.note);
    options.swap_shares = shares.shares;
    return options;
}

// Throws where the run may not go on from what the store or snapshot in `place` holds.
void OpenedRun::accept(const store::ClientState& stored, const std::string& place) {
    const RunState state = read_state(stored);
    notes_.clear();  // of a generation that was given up
    warnings_ = changed_bits(stored, bits_);
    for (const Difference& one : check_settings(stored, state, place))
        notes_.push_back(
            fmt::format("{} was {} and is {} from step {} on", one.key, one.before, one.now, state.step + 1));
    if (std::string note = note_of_steps(config_.settings, stored); !note.empty()) notes_.push_back(std::move(note));
    if (place == store_directory_ && directory_) check_log(state);
    if (threads_ > cores_ && !contains(from_.change, "run.threads"))
        warnings_.push_back(
            fmt::format("the run was started with {} threads, and this process may use {} cores: --change run.threads "
                        "goes on with as many, and with other bits",
                        threads_, cores_));
}

// Returns what is changed on purpose.
std::vector<Difference> OpenedRun::check_settings(const store::ClientState& stored, const RunState& state,
                                                  const std::string& place) {
    const unsigned recorded = recorded_threads(stored);
    const unsigned wanted = config_.session.worker_threads;
    const bool own_threads = wanted > 0 || contains(from_.change, "run.threads");
    threads_ = start_threads(own_threads ? wanted : recorded, cores_);
    std::vector<Difference> found = differences(config_.settings, stored, threads_);
    if (state.data_hash != data_.info().hash)
        found.push_back({.key = "data.train",
                         .before = "contents " + value_text(state.data_hash),
                         .now = fmt::format("{} with contents {}", data_.path(), data_.info().hash)});
    check_differences(found, from_.change, place);
    return found;
}

// Of other data nothing was seen yet.
RunState OpenedRun::first_state() const {
    RunState state = read_state(session_->info().client);
    if (state.data_hash != data_.info().hash) {
        state.data_hash = data_.info().hash;
        state.rows = 0;
    }
    return state;
}

// A place where nothing is committed, though log or store.json know of a store: the manifests were emptied, the disk is
// not mounted, or what was begun in its place has committed nothing yet. (Where the log's store is still in another
// place, the run's directory has refused.) What holds files of others, the store's directory refuses.
void OpenedRun::check_log_of_new_run() const {
    if (!own_.empty && !own_.uuid) return;
    const LogAccount log = read_log(directory_->log(), {.step = std::numeric_limits<std::int64_t>::max()});
    const std::optional<store::StoreUuid> named = directory_->store_of_this_place();
    const bool emptied = !own_.empty && directory_->is_of(*own_.uuid);
    // A scratch run has a log that reports nothing, or ended before its first line.
    const bool named_alone = named && !emptied && !log.last_step;
    if (log.committed.value_or(0) == 0 && !named_alone) return;
    const std::string& store = store_directory_;
    const std::string problem =
        emptied ? fmt::format(
                      "nothing is committed in {} any more: its manifests were emptied or replaced. Nothing "
                      "was changed: put them back from where they are whole",
                      store)
                : fmt::format(
                      "there is no store in {}{}: it is not mounted, or was moved or removed. Nothing was "
                      "changed: mount it, or put the directory back",
                      store, own_.empty ? "" : ", but one that was begun and never committed");
    const std::string known =
        named_alone
            ? fmt::format("run.directory {} is that of store {}", config_.run_directory, store::to_string(*named))
            : fmt::format("{} reports step {} as committed", directory_->log(), *log.committed);
    throw Error(ExitCode::storage, fmt::format("{}, and {}. {}", known, problem, what_else_helps()));
}

// Instead of what is lost.
std::string OpenedRun::what_else_helps() const {
    const std::string& folder = config_.snapshots.folder;
    bool kept = false;
    try {
        kept = !SnapshotFolder(folder, ranks_.place()).list().empty();
    } catch (const Error&) {  // a folder that cannot be read helps nobody now
    }
    const bool unknown = !directory_->store_of_this_place();
    return fmt::format(
        "--resume-from goes back to a kept snapshot{}, --go-back begins anew{}",
        kept ? fmt::format(" ('penstock ckpt ls {}' lists them)", folder) : " where one was put elsewhere",
        unknown ? ". If the log is another run's, give this run another run.directory" : "");
}

// The log's line of a step is written after its commit: a step that it reports was there. One commit can be lost with a
// damaged tile or manifest, and is computed again with the same result; a store that was put back loses more.
void OpenedRun::check_log(const RunState& state) {
    const LogAccount account = read_log(directory_->log(), state);
    if (!own_.uuid || !directory_->may_be_of(*own_.uuid, account.kin)) return;  // it will be put aside
    if (account.committed.value_or(0) <= state.step) return;
    const std::string found = fmt::format("{} reports step {} as committed, and the newest in {} is step {}",
                                          directory_->log(), *account.committed, store_directory_, state.step);
    if (from_.go_back || account.one_before.value_or(0) <= state.step) {
        warnings_.push_back(fmt::format("{}: the steps after it are computed again", found));
        return;
    }
    throw Error(ExitCode::storage,
                fmt::format("{}: commits were lost, or an older copy of the directory was put back. Nothing was "
                            "changed: put the newer one back, or give the later steps up with --go-back.{}",
                            found,
                            directory_->is_of(*own_.uuid) || account.kin == LogKin::same
                                ? ""
                                : " If the log is another run's, give this run another run.directory."));
}

store::ClientState OpenedRun::client_state(const RunState& state) const {
    store::ClientState client = config_snapshot(config_.settings, threads_);
    write_state(state, client);
    client.insert(bits_.begin(), bits_.end());
    return client;
}

void OpenedRun::say_start(Console& console) {
    const engine::SessionInfo& opened = session_->info();
    for (const std::string& warning : warnings_) console.warn(warning);
    for (const std::string& note : older_words(config_.settings)) console.info(note);
    for (const std::string& note : session_->take_notes()) console.info(note);
    for (const std::string& note : notes_) console.info(note);
    for (const std::string& note : notes_of_compute(config_)) console.info(note);
    const engine::Model& model = session_->model();
    console.info(fmt::format("model: {:.2f} M parameters, {:.2f} M of them trainable, in {} units",
                             millions(model.parameter_numel()), millions(model.trainable_numel()),
                             model.units().size()));
    console.info(
        fmt::format("data: {}, {} tokens, {} per step", data_.path(), data_.info().count, config_.tokens_per_step()));
    console.info(fmt::format("store: {} ({}), prefetch depth {}, {} threads", store_directory_, opened.io,
                             opened.prefetch_depth, threads_));
    console.info(fmt::format(
        "plan: a step reads {:.3f} GB and writes {:.3f} GB, {:.2f} bytes per trained parameter; --plan says how long "
        "it "
        "takes",
        static_cast<double>(opened.step_bytes.read) / 1e9, static_cast<double>(opened.step_bytes.write) / 1e9,
        opened.planned_bytes / std::max(1.0, static_cast<double>(model.trainable_numel()))));
    console.info("memory:\n" + opened.memory_table);
    say_activations(console);
    if (opened.resumed) console.info(fmt::format("resumed at step {} of {}", start_.state.step, config_.steps));
}

// They grow with the whole batch, and no budget bounds them, unless one is given.
void OpenedRun::say_activations(Console& console) const {
    const std::int64_t rows = config_.micro_batch_rows * config_.micro_batches;
    const std::uint64_t laid = bytes_of(laid_aside(config_, kept_graphs(config_, {})));
    const std::uint64_t kept = input_bytes_of_step(config_) - laid;
    const engine::Activations activations = config_.session.engine.activations;
    const bool graphs = activations != engine::Activations::recompute;
    if (laid > 0) {
        console.info(fmt::format(
            "within it, {} of activations are kept for backward, of {} rows{}", mebibytes(laid), rows,
            away_.out == 0 ? ""
                           : fmt::format("; {}{} of them go to NVMe", graphs ? "up to " : "", mebibytes(away_.out))));
    }
    console.info(
        fmt::format("besides it, {} of activations are kept for backward, of {} rows{}", mebibytes(kept), rows,
                    graphs ? fmt::format(", and what memory.activations \"{}\" adds", word_of(activations)) : ""));
    const pool::MachineMemory machine = pool::MachineMemory::read();
    if (config_.session.device.kind != zero::DeviceKind::cuda && kept > machine.available_bytes)
        console.warn(
            fmt::format("these activations do not fit: this machine can give {} now ({}). Lower "
                        "train_batch_size or model.context",
                        mebibytes(machine.available_bytes), machine.limited_by));
}

}  // namespace penstock::trainer
