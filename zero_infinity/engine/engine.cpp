#include "zero_infinity/engine/engine.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/room/out_of_memory.h"
#include "zero_infinity/engine/step_word.h"
#include "zero_infinity/engine/torch/generator.h"
#include "zero_infinity/engine/torch/memory_meter.h"
#include "zero_infinity/engine/torch/tensor_view.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::engine {
namespace {

using Clock = std::chrono::steady_clock;

// The parameters that a unit's backward differentiates: its own trainable ones, then the borrowed ones.
std::vector<const Parameter*> differentiated(const Unit& unit) {
    std::vector<const Parameter*> trainable;
    const auto take = [&](const Parameter& parameter) {
        if (parameter.spec().training == zero::Training::trainable) trainable.push_back(&parameter);
    };
    for (const auto& parameter : unit.parameters()) take(*parameter);
    for (const Borrowed& borrowed : unit.borrowed()) take(*borrowed.parameter);
    return trainable;
}

}  // namespace

Engine::Engine(const EngineDeps& deps, EngineOptions options)
    : deps_(deps),
      options_(options),
      tape_(deps.model->units().size(), options, deps.core->shelf()),
      keeper_(tape_, std::move(options)),
      reached_(*deps.model),
      paths_(deps.model->units().size()) {
    for (std::uint32_t unit = 0; unit < tape_.unit_count(); ++unit) complete_at_.push_back(unit);
    for (std::uint32_t unit = 0; unit < tape_.unit_count(); ++unit)
        for (const zero::BorrowedSpec& borrowed : deps.core->layout().unit(unit).spec().borrowed)
            complete_at_[borrowed.owner] = std::min(complete_at_[borrowed.owner], unit);
}

// Backward is done with the unit, which is still bound: it is updated, or its gradient may leave host memory. One that
// a unit before it borrows from is left to update().
void Engine::complete(std::uint32_t unit) {
    const bool told = step_begun_ || deps_.core->gradient_memory() == zero::GradientMemory::nvme;
    if (told && complete_at_[unit] == unit) deps_.core->complete(unit);
}

StepReport Engine::train_batch(std::span<const Bundle> micro_batches, const zero::StepValues& values,
                               const ClientStateOf& client) {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    busy_ = true;
    try {
        const StepReport report = step(micro_batches, values, client);
        busy_ = false;
        return report;
    } catch (const c10::Error& error) {
        if (is_out_of_memory(error)) refuse_memory(error);
        throw;
    }
}

void Engine::refuse_memory(const c10::Error& error) const {
    const zero::Device& device = deps_.core->device();
    throw out_of_memory(error,
                        {.unit = deps_.model->units()[bound_]->name(),
                         .pool_table = deps_.core->info().memory_table,
                         .activations_setting = options_.activations_setting,
                         .device_bytes = device.computes_on_caller() ? 0 : device.used_bytes(),
                         .input_bytes = deps_.core->shelf() == nullptr ? tape_.input_bytes() : 0,
                         .graph_bytes = tape_.graph_bytes(),
                         .call_bytes = keeper_.reserve_bytes(),
                         .graphs_stay = options_.activations == Activations::retain},
                        deps_.names);
}

StepReport Engine::step(std::span<const Bundle> micro_batches, const zero::StepValues& values,
                        const ClientStateOf& client) {
    PENSTOCK_CHECK(!micro_batches.empty(), "a step without micro-batches");
    note_narrow_sums(micro_batches.size());
    StepReport report;
    const auto updating = deps_.core->counters().updating;
    const std::string generator_before = generator_state(deps_.device);
    const zero::UpdateRequest request{.values = values, .clip = options_.gradient_clipping};
    step_begun_ = deps_.core->is_worth_beginning(request);
    if (step_begun_) deps_.core->begin_step(request);
    forward_and_backward(micro_batches, values.step, report);
    watch_generators(generator_before);
    const auto norm_start = Clock::now();
    report.gradient_norm = deps_.core->gradient_norm();
    const StepWord all =
        of_all_ranks(deps_.core->ranks(), {.loss = report.loss, .wish = options_.wish ? options_.wish() : 0});
    report.loss = all.loss;
    report.wish = all.wish;
    report.backward += Clock::now() - norm_start;
    const zero::UpdateReport updated = deps_.core->update(request, [&](double) {
        store::ClientState given = client(report);
        if (!generator_.empty()) given[generator_key] = generator_;
        return given;
    });
    report.committed = updated.committed;
    report.committed_before = updated.committed_before;
    report.updated_again = updated.updated_again;
    report.update = deps_.core->counters().updating - updating;
    report.commit = updated.commit;
    return report;
}

void Engine::settle() {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    busy_ = true;
    deps_.core->settle();
    busy_ = false;
}

void Engine::restore(const store::ClientState& client) {
    const auto generator = client.find(generator_key);
    if (generator == client.end()) return;
    generator_ = generator->second;
    set_generator_state(deps_.device, generator_);
}

// Once a unit has drawn, who draws between steps counts as well.
void Engine::watch_generators(const std::string& before) {
    std::string now = generator_state(deps_.device);
    if (now != before || !generator_.empty()) generator_ = std::move(now);
}

void Engine::note_narrow_sums(std::size_t micro_batches) {
    if (narrow_sums_noted_ || deps_.core->gradient_type() != zero::PlaneType::bf16 ||
        micro_batches <= zero::bf16_addends_max)
        return;
    narrow_sums_noted_ = true;
    notes_.push_back(
        fmt::format("gradients of {} micro-batches are summed in bf16 ({}), which keeps 8 bits: a sum loses up to "
                    "1/512 of itself with each, and stops growing at 256 equal ones; fp32 does not, for twice the "
                    "memory",
                    micro_batches, deps_.names.gradient_type));
}

std::vector<std::string> Engine::take_notes() {
    return std::exchange(notes_, {});
}

// Of a step that has updated nothing yet.
void Engine::refuse_loss(double loss, std::uint64_t step) {
    release(tape_.unit_count() - 1);
    deps_.core->end_pass();
    throw Error(ExitCode::non_finite,
                fmt::format("the loss of step {} is {}, {}; the last committed step is untouched: look at the data, or "
                            "start a new run with a lower learning rate",
                            step, loss, first_non_finite_weight().value_or("although all weights are finite")));
}

// REQUIRES: no pass is under way. Reads all weights once more.
std::optional<std::string> Engine::first_non_finite_weight() {
    const at::AutoGradMode no_graph(false);
    std::optional<std::string> found;
    visit_units([&](std::uint32_t unit) {
        const Unit& module = *deps_.model->units()[unit];
        for (const auto& parameter : module.parameters()) {
            if (found || at::isfinite(parameter->tensor()).all().item<bool>()) continue;
            found = fmt::format("and unit '{}', parameter '{}' holds infinity or NaN", module.name(),
                                parameter->spec().name);
        }
    });
    return found;
}

void Engine::forward_and_backward(std::span<const Bundle> micro_batches, std::uint64_t step, StepReport& report) {
    const std::uint32_t count = tape_.unit_count();
    const auto forward_start = Clock::now();
    const auto updating = deps_.core->counters().updating;
    std::vector<Bundle> inputs;
    for (const Bundle& micro_batch : micro_batches) inputs.push_back(cut(micro_batch, {}));
    tape_.begin(std::move(inputs));
    upstream_.assign(micro_batches.size(), {});
    reached_.begin_step();
    const GraphKeeper::Step counted(keeper_);

    deps_.core->begin_pass(zero::Pass::training);
    for (std::uint32_t unit = 0; unit + 1 < count; ++unit) forward(unit, micro_batches.size());
    report.activation_bytes = tape_.input_bytes();
    report.graph_bytes = tape_.graph_bytes();
    report.away_bytes = tape_.away_bytes();
    activation_peak_bytes_ = std::max(activation_peak_bytes_, report.activation_bytes + report.graph_bytes);
    const auto backward_start = Clock::now();
    const auto updated_in_forward = deps_.core->counters().updating;
    report.loss = backward(count - 1, micro_batches.size());
    if (!std::isfinite(report.loss)) refuse_loss(report.loss, step);
    complete(count - 1);
    release(count - 1);
    for (std::uint32_t unit = count - 1; unit-- > 0;) {
        backward(unit, micro_batches.size());
        complete(unit);
        release(unit);
    }
    deps_.core->end_pass();
    report.given_up = tape_.given_up();
    if (std::string note = keeper_.take_note(micro_batches.size()); !note.empty()) notes_.push_back(std::move(note));
    report.forward = backward_start - forward_start - (updated_in_forward - updating);
    report.backward = Clock::now() - backward_start - (deps_.core->counters().updating - updated_in_forward);
}

void Engine::forward(std::uint32_t unit, std::size_t count) {
    bind(unit);
    for (std::size_t index = 0; index < count; ++index) {
        SavedActivations& saved = tape_.at(unit, index);
        keeper_.before({unit, index}, Half::forward);
        std::string generator = generator_state(deps_.device);
        tape_.set_input(unit + 1, index, first_run({unit, index}), saved.input);
        if (generator != generator_state(deps_.device)) saved.generator = std::move(generator);
        tape_.lay_aside(unit, index);
        keeper_.after({unit, index}, Half::forward);
    }
    release(unit);
}

// What the next unit begins with. Which outputs require a gradient only a graph tells: where none is kept, the first
// run over inputs of this form makes one, and drops it; what it takes is measured then.
Bundle Engine::first_run(const Call& call) {
    const Bundle& input = tape_.at(call.unit, call.micro_batch).input;
    const bool keep = tape_.keeps_graph(call.unit);
    const bool unknown = !paths_.knows(call.unit, input);
    const at::AutoGradMode graph(keep || unknown);
    std::optional<MemoryMeter> own;
    const MemoryMeter* meter = keeper_.meter();
    if (meter == nullptr && unknown) meter = &own.emplace();
    Bundle output = deps_.model->units()[call.unit]->run(input);
    if (meter != nullptr)
        tape_.measured(call.unit, meter->held_bytes() - std::min(meter->held_bytes(), own_bytes(output, input)));
    if (keep || unknown) paths_.learn(call.unit, input, output);
    Bundle next = cut(output, paths_.of(call.unit, input));
    if (keep) tape_.keep_graph(call, std::move(output));
    return next;
}

// With the draws of the first time.
Bundle Engine::run_again(std::uint32_t unit, const SavedActivations& saved) const {
    const Unit& module = *deps_.model->units()[unit];
    const std::string now = saved.generator.empty() ? std::string() : generator_state(deps_.device);
    if (!now.empty()) set_generator_state(deps_.device, saved.generator);
    Bundle output = module.run(saved.input);
    if (!now.empty()) set_generator_state(deps_.device, now);
    if (unit + 1 == tape_.unit_count()) return output;
    const std::set<std::string>& path = paths_.of(unit, saved.input);
    for (const std::string& name : requiring_gradient(output))
        if (!path.contains(name))
            throw Error(ExitCode::internal,
                        fmt::format("unit '{}' returns '{}' with a gradient for some inputs and without for others "
                                    "of the same form, and the gradient would be lost: return it with one always, or "
                                    "keep activations",
                                    module.name(), name));
    return output;
}

// Returns the sum of the micro-batches' losses over their number, for the last unit; 0 for the others. The unit stays
// bound.
double Engine::backward(std::uint32_t unit, std::size_t count) {
    const at::AutoGradMode graph(true);
    std::vector<at::Tensor> losses;
    std::set<std::string> wanted;  // inputs that a gradient is wanted of
    bind(unit);
    for (std::size_t index = 0; index < count; ++index) {
        keeper_.before({unit, index}, Half::backward);
        tape_.bring_back(unit, index);
        SavedActivations& saved = tape_.at(unit, index);
        wanted.merge(requiring_gradient(saved.input));
        add_gradients(unit, differentiate(unit, saved, upstream_[index], count, losses));
        tape_.forget(unit, index);
        keeper_.after({unit, index}, Half::backward);
    }
    reached_.check(unit, wanted, std::ranges::any_of(upstream_, [](const Bundle& each) { return each.size() > 0; }));
    double loss = 0;
    for (const at::Tensor& each : losses) loss += each.item<double>();  // a GPU is waited for once, by the first
    return loss / static_cast<double>(count);
}

// One unit and micro-batch: gradients of its parameters; `upstream` goes from its outputs' gradients to its inputs'.
std::vector<at::Tensor> Engine::differentiate(std::uint32_t unit, SavedActivations& saved, Bundle& upstream,
                                              std::size_t count, std::vector<at::Tensor>& losses) {
    const std::vector<const Parameter*> parameters = differentiated(*deps_.model->units()[unit]);
    const bool last = unit + 1 == tape_.unit_count();
    if (!last && upstream.size() == 0) return std::vector<at::Tensor>(parameters.size());
    const bool kept = saved.output.size() > 0;
    const Bundle output = kept ? saved.output : run_again(unit, saved);
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> output_gradients;
    if (last) {
        const at::Tensor& mean = output.at("loss");
        losses.push_back(mean.detach());
        if (mean.requires_grad()) {
            outputs.push_back(mean);
            output_gradients.push_back(at::full_like(mean, 1.0 / static_cast<double>(count)));
        }
    } else {
        for (const auto& [name, tensor] : output) {
            if (!tensor.requires_grad() || !upstream.has(name)) continue;
            outputs.push_back(tensor);
            output_gradients.push_back(upstream.at(name));
        }
    }

    std::vector<at::Tensor> inputs;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : saved.input) {
        if (!tensor.requires_grad()) continue;
        inputs.push_back(tensor);
        names.push_back(name);
    }
    for (const Parameter* parameter : parameters) inputs.push_back(parameter->tensor());
    upstream = {};
    if (inputs.empty() || outputs.empty()) return std::vector<at::Tensor>(parameters.size());
    std::vector<at::Tensor> gradients = torch::autograd::grad(outputs, inputs, output_gradients, /*retain_graph=*/false,
                                                              /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t index = 0; index < names.size(); ++index)
        if (gradients[index].defined()) upstream.set(names[index], gradients[index]);
    gradients.erase(gradients.begin(), gradients.begin() + static_cast<std::ptrdiff_t>(names.size()));
    for (std::size_t index = 0; index < parameters.size(); ++index)
        if (gradients[index].defined()) reached_.add(parameters[index]);
    return gradients;
}

// Of one micro-batch, by differentiated(): those of the unit's own trainable parameters, then of its borrowed ones. An
// undefined one adds nothing.
void Engine::add_gradients(std::uint32_t unit, std::span<const at::Tensor> gradients) {
    const zero::UnitSpec& spec = deps_.core->layout().unit(unit).spec();
    const auto own = static_cast<std::uint32_t>(spec.parameters.size());
    std::size_t next = 0;
    const auto add = [&](std::uint32_t index, const zero::ParameterSpec& parameter) {
        if (parameter.training == zero::Training::frozen) return;
        const at::Tensor& gradient = gradients[next++];
        if (!gradient.defined()) return;
        const zero::GradientSums::Open open = deps_.core->open_gradient({unit, index});
        at::Tensor sum = view_of(open.data, parameter.shape, deps_.core->gradient_type(), deps_.core->device());
        open.fresh ? sum.copy_(gradient) : sum.add_(gradient);
    };
    for (std::uint32_t index = 0; index < own; ++index) add(index, spec.parameters[index]);
    for (std::uint32_t index = 0; index < spec.borrowed.size(); ++index) {
        const zero::BorrowedSpec& borrowed = spec.borrowed[index];
        add(own + index, deps_.core->layout().unit(borrowed.owner).spec().parameters[borrowed.parameter]);
    }
}

Bundle Engine::infer(const Bundle& input) {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    busy_ = true;
    const at::AutoGradMode no_graph(false);
    Bundle current = input;
    try {
        visit_units([&](std::uint32_t unit) { current = deps_.model->units()[unit]->run(current); });
    } catch (const c10::Error& error) {
        if (is_out_of_memory(error)) refuse_memory(error);
        throw;
    }
    busy_ = false;
    return current;
}

// Each unit once, in order, with its weights where compute reads them.
void Engine::visit_units(const std::function<void(std::uint32_t unit)>& visit) {
    deps_.core->begin_pass(zero::Pass::inference);
    for (std::uint32_t unit = 0; unit < tape_.unit_count(); ++unit) {
        bind(unit);
        visit(unit);
        release(unit);
    }
    deps_.core->end_pass();
}

// Waits for the unit's weights and points its parameters, own and borrowed, at them.
void Engine::bind(std::uint32_t unit) {
    deps_.core->visit({{unit}});
    bound_ = unit;
    const Unit& module = *deps_.model->units()[unit];
    std::uint32_t index = 0;
    for (const auto& parameter : module.parameters()) parameter->bind(deps_.core->weights({unit, index++}).data);
    for (const Borrowed& borrowed : module.borrowed())
        borrowed.parameter->bind(deps_.core->weights({unit, index++}).data);
}

void Engine::release(std::uint32_t unit) noexcept {
    const Unit& module = *deps_.model->units()[unit];
    for (const auto& parameter : module.parameters()) parameter->release();
    for (const Borrowed& borrowed : module.borrowed()) borrowed.parameter->release();
}

}  // namespace penstock::engine
