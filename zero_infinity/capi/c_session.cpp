#include "zero_infinity/capi/c_session.h"

#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/capi/c_plan.h"
#include "zero_infinity/capi/first_weights.h"
#include "zero_infinity/capi/parameter_value.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace penstock::zero {
namespace {

using store::number_of;
using store::Refusal;
using store::require;

Pass pass_of(const penstock_pass& pass) {
    const int number = number_of(pass);
    require(number == PENSTOCK_TRAINING || number == PENSTOCK_INFERENCE, "there is no pass {}", number);
    return number == PENSTOCK_TRAINING ? Pass::training : Pass::inference;
}

bool names(const Visit& visit, std::uint32_t unit) {
    return std::find(visit.units.begin(), visit.units.end(), unit) != visit.units.end();
}

}  // namespace

CSession::CSession(const penstock_model* given_model, const penstock_session_options* given_options) {
    ModelSpec model = model_of(given_model);
    const penstock_session_options given = store::taken(given_options, least_options_bytes, "options");
    CoreOptions options = options_of(given);
    const store::ClientState initial = values_of(given.values, given.value_count);
    optimizer_ = given_model->optimizer;
    group_count_ = model.optimizers.count();
    durable_ = options.durability != Durability::scratch;
    snapshots_ = options.snapshots && options.purpose == Purpose::training;
    SessionEvents events;
    if (given.progress != nullptr)
        events.progress = [&given](const char* what, std::uint64_t done, std::uint64_t total) {
            given.progress(what, done, total, given.user);
        };
    if (given.trace != nullptr) {
        const std::uint64_t first = given.trace_first_step == 0 ? 3 : given.trace_first_step;
        std::vector<std::string> stores = options.swap_directories;
        if (!options.resume_from.empty()) stores.push_back(options.resume_from);
        refuse_in_store(given.trace, "options.trace", stores);
        trace_ = std::make_unique<TraceFile>(given.trace, "options.trace");
        trace_->record(first, first - 1 + (given.trace_steps == 0 ? 3 : given.trace_steps));
        options.trace = &trace_->recorder();
    }
    FirstWeights weights(given, model);
    const MachineRoom room = MachineRoom::read(options.device);
    ranks_ = called_ranks(given.ranks);
    const RankWays ways = ranks_ ? RankWays{&ranks_->control(), &ranks_->bulk(), ranks_->board()} : RankWays{};
    try {
        session_.emplace(model, options, room, initial, events, SessionSeams{.weights = &weights, .ranks = ways});
    } catch (const Error& error) {
        throw ranks_ ? error : with_lightest(error, model, options, room);
    }
    shelf_ = CShelf(session_->shelf());
    memory_table_ = session_->info().memory_table;
    for (const auto& [key, value] : session_->info().client) keys_.push_back(key);
    if (trace_) trace_->begin_step(traced_step_);
}

CSession::~CSession() {
    if (is_of_another_process()) return;
    session_.reset();
    try {
        write_trace();
    } catch (const std::exception&) {  // who wants to know ends it before
    }
}

// Once: the session has ended.
void CSession::write_trace() {
    if (const auto trace = std::exchange(trace_, nullptr)) trace->write();
}

void CSession::take_turn() const {
    if (is_of_another_process())
        throw Refusal(PENSTOCK_USAGE,
                      fmt::format("the session belongs to process {}, and this is a child that was forked from it: it "
                                  "has the memory, but nobody who serves it; open a session after the fork",
                                  process_));
    if (calling_.exchange(true))
        throw Refusal(PENSTOCK_BUSY, "another thread is within a call on this session: use it from one at a time");
}

bool CSession::is_of_another_process() const noexcept {
    return ::getpid() != process_;
}

void CSession::end() {
    take_turn();
    session_->end();
    if (failure_.empty()) failure_ = "was ended";
    calling_.store(false);
    write_trace();
}

CSession::Calling::Calling(const CSession& session) : session_(session) {
    session.take_turn();
    if (session.session_->stage() != CoreSession::Stage::failed && !session.shelf_.failed()) return;
    session.calling_.store(false);
    throw Refusal(PENSTOCK_POISONED,
                  fmt::format("the session {}; what was committed is in the store: close this session and open it "
                              "again",
                              session.failure_));
}

void CSession::note_failure(const std::string& why) const {
    if ((session_->stage() == CoreSession::Stage::failed || shelf_.failed()) && failure_.empty())
        failure_ = fmt::format("has ended with an error: {}", why);
}

// ---------------------------------------------------------------- what it is

std::size_t CSession::unit_count() const noexcept {
    return session_->layout().unit_count();
}

penstock_session_info CSession::info() const {
    const SessionInfo& info = session_->info();
    const SessionCounters counters = session_->counters();
    return {.struct_bytes = sizeof(penstock_session_info),
            .resumed = info.resumed ? 1 : 0,
            .prefetch_depth = info.prefetch_depth,
            .pool_bytes = info.pool_budget_bytes,
            .memory_table = memory_table_.c_str(),
            .io = info.io.c_str(),
            .planned_bytes = info.planned_bytes,
            .read_bytes = counters.read_bytes,
            .write_bytes = counters.write_bytes,
            .pool_peak_bytes = counters.pool_peak_bytes,
            .waited_ns = static_cast<std::uint64_t>(counters.waits.total().count()),
            .visits = counters.visits.visits,
            .expected_visits = counters.visits.expected,
            .device_bytes = info.device_bytes,
            .laid_bytes = shelf_.figures().bytes,
            .laid_away_bytes = shelf_.figures().away_bytes,
            .gathered_bytes = counters.ranks.gathered_bytes,
            .exchanged_bytes = counters.ranks.exchanged_bytes,
            .waited_for_ranks_ns = static_cast<std::uint64_t>(counters.waits.ranks.count())};
}

const char* CSession::note(std::size_t index) {
    for (std::string& note : session_->take_notes()) notes_.push_back(std::move(note));
    return index < notes_.size() ? notes_[index].c_str() : nullptr;
}

penstock_value CSession::value_at(std::size_t index) const {
    if (index >= keys_.size()) throw Refusal(PENSTOCK_NOT_FOUND, fmt::format("there are {} values", keys_.size()));
    const std::string& value = session_->info().client.at(keys_[index]);
    return {.key = keys_[index].c_str(), .data = value.data(), .bytes = value.size()};
}

const UnitSpec& CSession::unit(std::uint32_t index) const {
    return unit_of(session_->layout(), index);
}

const ParameterSpec& CSession::trainable(ParameterId parameter) const {
    const UnitSpec& of = unit(parameter.unit);
    require_training("a gradient");
    if (parameter.index >= of.parameters.size()) {
        const std::size_t borrowed = parameter.index - of.parameters.size();
        require(borrowed < of.borrowed.size(), "unit '{}' has no parameter {}", of.name, parameter.index);
        parameter = {of.borrowed[borrowed].owner, of.borrowed[borrowed].parameter};
    }
    const ParameterSpec& spec = own_parameter(session_->layout(), parameter);
    require(spec.training == Training::trainable, "parameter '{}' of unit '{}' is frozen and has no gradient",
            spec.name, unit(parameter.unit).name);
    return spec;
}

penstock_place CSession::place(ParameterId parameter) const {
    return place_of(session_->layout(), parameter);
}

penstock_unit_memory CSession::memory(std::uint32_t index) const {
    const UnitSpec& spec = unit(index);
    const UnitLayout& layout = session_->layout().unit(index);
    const bool stays = spec.resident && session_->stage() != CoreSession::Stage::failed;
    require(names(visited_, index) || stays, "unit '{}' is neither visited nor resident", spec.name);
    const UnitMemory memory = session_->memory(index);
    return {.trainable = layout.shard_numel() > 0 ? memory.weights : nullptr,
            .frozen = layout.frozen_shard_numel() > 0 ? memory.frozen : nullptr};
}

// ---------------------------------------------------------------- passes

void CSession::expect(const penstock_pass& pass, const penstock_visit* visits, std::size_t count) {
    session_->expect(pass_of(pass), visits_of(visits, count, unit_count()));
}

void CSession::begin_pass(const penstock_pass& pass) {
    const Pass kind = pass_of(pass);
    require_nothing_completed("another pass");
    visited_ = {};
    session_->begin_pass(kind);
    pass_ = kind;
}

void CSession::visit(const Visit& visit, const Visit& held) {
    require(session_->stage() == CoreSession::Stage::in_pass, "a visit, but no pass has begun");
    for (const std::uint32_t each : held.units)
        require(names(visited_, each) && names(visit, each), "unit '{}' is to be held, but is not of {} visit",
                unit(each).name, names(visited_, each) ? "this" : "the last");
    session_->visit(visit, held.units);
    visited_ = visit;
}

void CSession::end_pass() {
    visited_ = {};
    session_->end_pass();
}

void CSession::require_between_passes(const char* what) const {
    require(session_->stage() == CoreSession::Stage::ready, "{} within a pass: end it before", what);
}

void CSession::require_durable(const char* what) const {
    require(durable_, "{}: a scratch session commits nothing", what);
}

void CSession::require_no_step_begun(const char* what) const {
    require(!begun_, "{} within step {}, which was begun: update it first", what, begun_ ? begun_->number : 0);
}

void CSession::require_nothing_completed(const char* what) const {
    require(!begun_ || begun_->completed.empty(), "{} within step {}, of which units are updated: update it first",
            what, begun_ ? begun_->number : 0);
}

void CSession::require_training(const char* what) const {
    require(session_->purpose() == Purpose::training,
            "{}: the session was opened for forwards alone (options.forwards), and its store is only read", what);
}

// ---------------------------------------------------------------- gradients

const ParameterSpec& CSession::open_to_gradients(ParameterId parameter) const {
    const ParameterSpec& spec = trainable(parameter);
    const auto owing = session_->owes_update(parameter);
    require(session_->stage() == CoreSession::Stage::ready || !owing,
            "a gradient for parameter '{}', but the last update of unit '{}' is deferred to a visit that this pass has "
            "not made",
            spec.name, unit(owing.value_or(parameter.unit)).name);
    if (!begun_) return spec;
    const UnitSpec& of = unit(parameter.unit);
    const std::uint32_t owner = parameter.index < of.parameters.size()
                                    ? parameter.unit
                                    : of.borrowed[parameter.index - of.parameters.size()].owner;
    for (const std::uint32_t unit : {parameter.unit, owner})
        require(!names({begun_->completed}, unit),
                "a gradient for parameter '{}', but unit '{}' was said to have all of this step and is updated",
                spec.name, this->unit(unit).name);
    return spec;
}

penstock_gradient CSession::open_gradient(ParameterId parameter) {
    static_cast<void>(open_to_gradients(parameter));
    const GradientSums::Open open = session_->open_gradient(parameter);
    return {.struct_bytes = sizeof(penstock_gradient),
            .data = open.data,
            .numel = open.numel,
            .type = type_of(session_->gradient_type()),
            .fresh = open.fresh ? 1 : 0};
}

penstock_gradient CSession::gradient(ParameterId parameter, NoGradient none) {
    const ParameterSpec& spec = trainable(parameter);
    const auto sum = none == NoGradient::made ? session_->make_gradient(parameter) : session_->gradient(parameter);
    if (!sum) throw Refusal(PENSTOCK_NOT_FOUND, fmt::format("no gradient has come to parameter '{}'", spec.name));
    return {sizeof(penstock_gradient), sum->data, sum->numel, type_of(sum->type), 0};
}

void CSession::clear_gradient(ParameterId parameter) {
    static_cast<void>(trainable(parameter));
    require_nothing_completed("clearing a gradient");
    session_->clear_gradient(parameter);
}

void CSession::clear_gradients() {
    require_nothing_completed("clearing gradients");
    session_->clear_gradients();
}

double CSession::gradient_norm() {
    require_training("the norm of the gradient");
    require_between_passes("the norm of the gradient");
    return session_->gradient_norm();
}

// ---------------------------------------------------------------- steps

bool CSession::begin_step(const penstock_step& given) {
    require_training("a step");
    require(session_->stage() == CoreSession::Stage::ready || pass_ == Pass::training,
            "a step begins within a pass that is not one of training");
    require_no_step_begun("a step begins");
    const CStep step(given, optimizer_, group_count_);
    if (!session_->is_worth_beginning(step.request())) return false;
    session_->begin_step(step.request());
    begun_ = step.begun();
    return true;
}

void CSession::complete(std::uint32_t index) {
    const UnitSpec& spec = unit(index);
    require(begun_ && session_->stage() == CoreSession::Stage::in_pass && pass_ == Pass::training,
            "unit '{}' is complete, but no step was begun, or no pass of training", spec.name);
    if (spec.resident) return;
    require(names(visited_, index), "unit '{}' is complete, but the last visit does not name it", spec.name);
    session_->complete(index);
    begun_->completed.push_back(index);
}

penstock_step_report CSession::update(const penstock_step& given) {
    require_training("an update");
    require_between_passes("an update");
    const CStep step(given, optimizer_, group_count_);
    require(!begun_ || step.is_of(*begun_),
            "an update of step {} with other values than step {} was begun with, when its units were updated",
            step.request().values.step, begun_ ? begun_->number : 0);
    const UpdateReport report = session_->update(step.request(), [&](double) { return step.values(); });
    begun_.reset();
    if (trace_) trace_->begin_step(++traced_step_);
    return told(report);
}

void CSession::settle() {
    require_between_passes("a commit");
    require_durable("a commit");
    require_no_step_begun("a commit");
    session_->settle();
}

void CSession::gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) {
    session_->ranks().all_gather(what, mine, all);
}

void CSession::read(ParameterId parameter, ParameterValue value, std::span<std::byte> to) {
    require_between_passes("reading");
    require_no_step_begun("reading");
    if (value != ParameterValue::weight) require_training("a master or a moment");
    ToMemory sink(session_->layout(), parameter, value, to);
    session_->read_out(sink.what(), sink);
}

void CSession::write(ParameterId parameter, ParameterValue value, std::span<const float> from) {
    require_training("writing");
    require_between_passes("writing");
    require_no_step_begun("writing");
    const ParameterSpec* wanted = &parameter_with(session_->layout(), parameter, value);
    require(from.size() == wanted->numel(), "{} elements for parameter '{}' of {}", from.size(), wanted->name,
            wanted->numel());
    WeightFunction source([&](const NamedParameter&, std::uint64_t first, std::span<float> values) {
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
    });
    session_->write_in({.value = value, .wanted = [&](const NamedParameter& each) { return &each.spec == wanted; }},
                       source);
}

// ---------------------------------------------------------------- snapshots

void CSession::begin_snapshot(const std::string& path) {
    require_training("a snapshot");
    require_between_passes("a snapshot");
    require_no_step_begun("a snapshot");
    require(snapshots_, "options.snapshots is 0: no memory was planned for them");
    if (session_->snapshot_progress().under_way)
        throw Refusal(PENSTOCK_BUSY, "a snapshot is being copied: finish it before the next one");
    session_->begin_snapshot(path);
}

penstock_snapshot_progress CSession::snapshot_progress() const {
    const SnapshotProgress progress = session_->snapshot_progress();
    return {.struct_bytes = sizeof(penstock_snapshot_progress),
            .under_way = progress.under_way ? 1 : 0,
            .done_bytes = progress.copied_bytes,
            .total_bytes = progress.total_bytes};
}

void CSession::finish_snapshot() {
    session_->finish_snapshot([](const SnapshotProgress&) { return true; });
    for (const EndedSnapshot& ended : session_->take_snapshots())
        if (ended.problem)
            throw Refusal(PENSTOCK_STORAGE, fmt::format("there is no snapshot {}: {}", ended.path, *ended.problem));
}

}  // namespace penstock::zero
