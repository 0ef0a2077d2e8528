#include "zero_infinity/engine/session.h"

#include "aio/words/error.h"
#include "zero_infinity/engine/drawn_weights.h"
#include "zero_infinity/engine/room/compute_room.h"
#include "zero_infinity/engine/torch/tensor_view.h"
#include "zero_infinity/engine/torch/torch_kernels.h"

#include <fmt/format.h>

#include <utility>

namespace penstock::engine {
namespace {

std::unique_ptr<zero::CoreSession> open_core(const Model& model, zero::ParameterGroups optimizers,
                                             const SessionOptions& options, const store::ClientState& initial_client,
                                             SessionEvents events, SessionSeams seams) {
    if (options.codec == "plain_fp16")
        throw Error(ExitCode::usage, "codec plain_fp16 needs a loss scale, which the engine does not have yet");
    DrawnWeights drawn(model, options.seed, options.worker_threads);
    if (seams.weights == nullptr) seams.weights = &drawn;
    events.device_opened = [kind = options.device.kind](const zero::Device&) { load_torch_kernels(kind); };
    return std::make_unique<zero::CoreSession>(
        zero::ModelSpec{.units = model.specs(), .optimizers = std::move(optimizers)}, core_options(options),
        zero::MachineRoom::read(options.device), initial_client, events, seams);
}

void materialise(const Model& model, zero::CoreSession& core) {
    for (const auto& unit : model.units())
        for (const auto& parameter : unit->parameters())
            parameter->materialise(scalar_type(core.layout().format().codec->weights), torch_device(core.device()));
}

}  // namespace

struct Session::State {
    std::unique_ptr<Model> model;
    std::unique_ptr<zero::CoreSession> core;
    std::unique_ptr<Engine> engine;
};

Session::Session(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
                 const store::ClientState& initial_client, const SessionEvents& events, const SessionSeams& seams)
    : state_(std::make_unique<State>()) {
    State& s = *state_;
    s.model = std::move(model);
    s.core = open_core(*s.model, std::move(optimizers), options, initial_client, events, seams);
    materialise(*s.model, *s.core);
    if (!options.engine.room) options.engine.room = machine_room(torch_device(s.core->device()));
    s.engine = std::make_unique<Engine>(EngineDeps{.model = s.model.get(),
                                                   .core = s.core.get(),
                                                   .names = options.names,
                                                   .device = torch_device(s.core->device())},
                                        options.engine);
    s.engine->restore(s.core->info().client);
}

Session::~Session() = default;

Engine& Session::engine() noexcept {
    return *state_->engine;
}

const Model& Session::model() const noexcept {
    return *state_->model;
}

const SessionInfo& Session::info() const noexcept {
    return state_->core->info();
}

SessionCounters Session::counters() const {
    SessionCounters counters = state_->core->counters();
    counters.activation_peak_bytes = state_->engine->activation_peak_bytes();
    return counters;
}

void Session::read_out(const zero::ReadOut& what, zero::WeightSink& sink) {
    state_->core->read_out(what, sink);
}

void Session::begin_snapshot(const std::string& path) {
    state_->core->begin_snapshot(path);
}

zero::SnapshotProgress Session::snapshot_progress() const {
    return state_->core->snapshot_progress();
}

void Session::finish_snapshot(const std::function<bool(const zero::SnapshotProgress&)>& wanted) {
    state_->core->finish_snapshot(wanted);
}

std::vector<zero::EndedSnapshot> Session::take_snapshots() {
    return state_->core->take_snapshots();
}

std::vector<std::string> Session::take_notes() {
    std::vector<std::string> notes = state_->core->take_notes();
    for (std::string& note : state_->engine->take_notes()) notes.push_back(std::move(note));
    return notes;
}

zero::Communicator& Session::ranks() noexcept {
    return state_->core->ranks();
}

}  // namespace penstock::engine
