#include "zero_infinity/engine/engine.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/generator.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::engine {
namespace {

using Clock = std::chrono::steady_clock;

zero::Visit visit_of(const Model& model, std::uint32_t index) {
    zero::Visit visit{{index}};
    for (const Borrowed& borrowed : model.units()[index]->borrowed()) {
        const std::uint32_t owner = model.index_of(*borrowed.owner);
        if (std::find(visit.groups.begin(), visit.groups.end(), owner) == visit.groups.end())
            visit.groups.push_back(owner);
    }
    return visit;
}

// Cuts the graph at a boundary: the same memory, new leaves where a gradient is wanted.
Bundle cut(const Bundle& bundle, bool wants_gradient) {
    Bundle leaves;
    for (const auto& [name, tensor] : bundle) {
        at::Tensor leaf = tensor.detach();
        if (wants_gradient && leaf.is_floating_point()) leaf.requires_grad_(true);
        leaves.set(name, std::move(leaf));
    }
    return leaves;
}

// The parameters that a unit's backward differentiates: its own trainable ones, then the borrowed ones.
std::vector<at::Tensor> differentiated(const Unit& unit) {
    std::vector<at::Tensor> tensors;
    for (const auto& parameter : unit.parameters())
        if (parameter->spec().training == zero::Training::trainable) tensors.push_back(parameter->tensor());
    for (const Borrowed& borrowed : unit.borrowed())
        if (borrowed.parameter->spec().training == zero::Training::trainable)
            tensors.push_back(borrowed.parameter->tensor());
    return tensors;
}

std::string parameter_at(const zero::UnitLayout& layout, std::uint64_t element) {
    for (std::size_t index = 0; index < layout.spec().parameters.size(); ++index) {
        const zero::ParameterPlace& place = layout.place(index);
        if (place.training == zero::Training::trainable && element >= place.first &&
            element < place.first + place.numel)
            return layout.spec().parameters[index].name;
    }
    return "padding";
}

// What a value is that an update refuses.
std::string beyond(const zero::Codec& codec, const std::string& setting) {
    return codec.exact ? "infinite or NaN"
                       : fmt::format("infinite, NaN or larger than codec '{}' holds ({})", codec.name, setting);
}

}  // namespace

std::vector<zero::Visit> training_visits(const Model& model) {
    const auto count = static_cast<std::uint32_t>(model.units().size());
    std::vector<zero::Visit> visits;
    for (std::uint32_t unit = 0; unit + 1 < count; ++unit) visits.push_back(visit_of(model, unit));
    for (std::uint32_t unit = count; unit-- > 0;) visits.push_back(visit_of(model, unit));
    return visits;
}

std::vector<zero::Visit> inference_visits(const Model& model) {
    std::vector<zero::Visit> visits;
    for (std::uint32_t unit = 0; unit < model.units().size(); ++unit) visits.push_back(visit_of(model, unit));
    return visits;
}

Engine::Engine(const EngineDeps& deps, EngineOptions options)
    : deps_(deps), options_(options), commit_barrier_(*deps.communicator), saved_(deps.model->units().size()) {}

StepReport Engine::train_batch(std::span<const Bundle> micro_batches, const zero::StepValues& values,
                               const ClientStateOf& client) {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    busy_ = true;
    const StepReport report = step(micro_batches, values, client);
    busy_ = false;
    return report;
}

StepReport Engine::step(std::span<const Bundle> micro_batches, const zero::StepValues& values,
                        const ClientStateOf& client) {
    PENSTOCK_CHECK(!micro_batches.empty(), "a step without micro-batches");
    StepReport report;
    const std::string generator_before = generator_state(deps_.device);
    const FinishedGradients gradients = forward_and_backward(micro_batches, report);
    watch_generator(generator_before);
    if (!std::isfinite(report.loss))
        throw Error(ExitCode::non_finite,
                    fmt::format("the loss of step {} is {}, {}; the last committed step is untouched: look at the "
                                "data, or start a new run with a lower learning rate",
                                values.step, report.loss,
                                first_non_finite_weight().value_or("although all weights are finite")));
    report.gradient_norm = gradients.norm(*deps_.workers, *deps_.communicator);
    commit_barrier_.joined();
    if (!std::isfinite(report.gradient_norm))
        throw Error(ExitCode::non_finite,
                    fmt::format("the gradient of step {} is not finite, first in {}; the last committed step "
                                "is untouched",
                                values.step, gradients.first_non_finite().value_or("their sum")));
    store::ClientState given = client(report);
    report.committed = options_.durability.commits_after(values.step);
    const auto update_start = Clock::now();
    update(values, gradients, report.gradient_norm,
           report.committed ? zero::ResidentTiles::written : zero::ResidentTiles::held_back);
    const auto commit_start = Clock::now();
    if (report.committed)
        commit(std::move(given));
    else
        deps_.driver->end_update();
    uncommitted_ = report.committed ? std::nullopt : std::optional(std::move(given));
    report.update = commit_start - update_start;
    report.commit = Clock::now() - commit_start;
    return report;
}

void Engine::settle() {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    PENSTOCK_CHECK(options_.durability != zero::Durability::scratch, "nothing is committed in scratch");
    if (!uncommitted_) return;
    busy_ = true;
    commit(*std::exchange(uncommitted_, std::nullopt));
    busy_ = false;
}

void Engine::commit(store::ClientState client) {
    for (const auto& [key, value] : user_) {
        if (!key.starts_with(user_prefix))
            throw Error(ExitCode::usage, fmt::format("the user's key '{}' does not begin with '{}'", key, user_prefix));
        client.emplace(key, value);
    }
    client[fingerprint_key] = deps_.fingerprint;
    if (!generator_.empty()) client[generator_key] = generator_;
    commit_barrier_.before_write();  // what was held back in host memory is written now
    deps_.driver->commit(client);
    commit_barrier_.committed();
}

void Engine::restore(const store::ClientState& client) {
    for (const auto& [key, value] : client)
        if (key.starts_with(user_prefix)) user_[key] = value;
    const auto generator = client.find(generator_key);
    if (generator == client.end()) return;
    generator_ = generator->second;
    set_generator_state(deps_.device, generator_);
}

// A unit that draws while it runs (dropout) draws other numbers when it is run again, and its gradient would be of
// another function than its output.
void Engine::watch_generator(const std::string& before) {
    std::string now = generator_state(deps_.device);
    if (now == before) {
        if (!generator_.empty()) generator_ = std::move(now);  // who draws between steps moves it as well
        return;
    }
    if (options_.activations == Activations::recompute)
        throw Error(ExitCode::usage,
                    "a unit draws from torch's default generator while it runs, and would draw other numbers in the "
                    "backward pass that runs it again: keep activations, or draw from a generator of the step's own");
    generator_ = std::move(now);
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

FinishedGradients Engine::forward_and_backward(std::span<const Bundle> micro_batches, StepReport& report) {
    const auto count = static_cast<std::uint32_t>(saved_.size());
    const auto forward_start = Clock::now();
    for (auto& unit : saved_) unit.assign(micro_batches.size(), {});
    upstream_.assign(micro_batches.size(), {});
    for (std::size_t index = 0; index < micro_batches.size(); ++index)
        saved_[0][index].input = cut(micro_batches[index], false);

    deps_.driver->begin(zero::Pass::training);
    visit_ = 0;
    for (std::uint32_t unit = 0; unit + 1 < count; ++unit) forward(unit, micro_batches.size());
    const auto backward_start = Clock::now();
    report.loss = backward(count - 1, micro_batches.size());
    for (std::uint32_t unit = count - 1; unit-- > 0;) backward(unit, micro_batches.size());
    const FinishedGradients gradients = deps_.gradients->finish();
    report.forward = backward_start - forward_start;
    report.backward = Clock::now() - backward_start;
    return gradients;
}

void Engine::forward(std::uint32_t unit, std::size_t count) {
    const bool retain = options_.activations == Activations::retain;
    const at::AutoGradMode graph(retain);
    bind(visit_, unit);
    for (std::size_t index = 0; index < count; ++index) {
        SavedActivations& saved = saved_[unit][index];
        const Bundle output = deps_.model->units()[unit]->forward(saved.input);
        saved_[unit + 1][index].input = cut(output, /*wants_gradient=*/true);
        check_output(unit, output);
        if (retain) saved.output = output;
    }
    release(unit);
    deps_.driver->reshard(visit_++);
}

// Returns the sum of the micro-batches' losses over their number, for the last unit; 0 for the others.
double Engine::backward(std::uint32_t unit, std::size_t count) {
    const at::AutoGradMode graph(true);
    double loss = 0;
    bind(visit_, unit);
    deps_.gradients->sum(unit, [&](GradientSum& sum) {
        for (std::size_t index = 0; index < count; ++index) {
            sum.add(differentiate(unit, saved_[unit][index], upstream_[index], count, loss));
            saved_[unit][index] = {};
        }
    });
    release(unit);
    deps_.driver->reshard(visit_++);
    return loss / static_cast<double>(count);
}

// One unit and micro-batch: gradients of its parameters; `upstream` goes from its outputs' gradients to its inputs'.
std::vector<at::Tensor> Engine::differentiate(std::uint32_t unit, SavedActivations& saved, Bundle& upstream,
                                              std::size_t count, double& loss) {
    const Unit& module = *deps_.model->units()[unit];
    const bool recomputed = saved.output.size() == 0;
    const Bundle output = recomputed ? module.forward(saved.input) : saved.output;
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> output_gradients;
    if (unit + 1 == saved_.size()) {
        outputs.push_back(output.at("loss"));
        loss += outputs.back().item<double>();
        output_gradients.push_back(at::full_like(outputs.back(), 1.0 / static_cast<double>(count)));
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
    const std::vector<at::Tensor> parameters = differentiated(module);
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    upstream = {};
    if (inputs.empty() || outputs.empty()) return std::vector<at::Tensor>(parameters.size());
    std::vector<at::Tensor> gradients = torch::autograd::grad(outputs, inputs, output_gradients, /*retain_graph=*/false,
                                                              /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t index = 0; index < names.size(); ++index)
        if (gradients[index].defined()) upstream.set(names[index], gradients[index]);
    gradients.erase(gradients.begin(), gradients.begin() + static_cast<std::ptrdiff_t>(names.size()));
    return gradients;
}

void Engine::update(const zero::StepValues& values, const FinishedGradients& gradients, double norm,
                    zero::ResidentTiles residents) {
    const double clip = zero::clip_factor(norm, options_.gradient_clipping);
    zero::TileUpdate tile_update{
        .format = &deps_.layout->format(), .values = values, .gradient_scale = static_cast<float>(clip)};
    commit_barrier_.before_write();
    deps_.driver->begin_update(residents);
    while (const auto staged = deps_.driver->next_tile()) {
        const zero::GradientView gradient = gradients.tile(staged->tile);
        tile_update.pieces = deps_.layout->pieces(staged->tile);
        if (const auto bad = update_tile(tile_update, staged->view, gradient, *deps_.workers)) {
            const zero::UnitLayout& layout = deps_.layout->unit(staged->tile.unit);
            throw Error(
                ExitCode::non_finite,
                fmt::format(
                    "step {} makes unit '{}', parameter '{}' {}; the last committed step is untouched: start a new run "
                    "with a lower learning rate",
                    values.step, layout.spec().name, parameter_at(layout, tile_update.pieces.first + *bad),
                    beyond(*deps_.layout->format().codec, deps_.codec_setting)));
        }
        deps_.driver->put_back(*staged);
    }
}

Bundle Engine::infer(const Bundle& input) {
    PENSTOCK_CHECK(!busy_, "the engine is used again after an exception, or from within itself");
    busy_ = true;
    const at::AutoGradMode no_graph(false);
    Bundle current = input;
    visit_units([&](std::uint32_t unit) {
        current = deps_.model->units()[unit]->forward(current);
        check_output(unit, current);
    });
    busy_ = false;
    return current;
}

// Each unit once, in order, with its weights where compute reads them.
void Engine::visit_units(const std::function<void(std::uint32_t unit)>& visit) {
    deps_.driver->begin(zero::Pass::inference);
    for (std::uint32_t unit = 0; unit < saved_.size(); ++unit) {
        bind(unit, unit);
        visit(unit);
        release(unit);
        deps_.driver->reshard(unit);
    }
}

// Waits for the visit's weights and points the unit's parameters, own and borrowed, at them.
void Engine::bind(std::uint32_t visit, std::uint32_t unit) {
    deps_.driver->unshard(visit);
    const std::uint64_t element_bytes = deps_.layout->format().weights_bytes();
    const auto bind_one = [&](std::uint32_t owner, std::size_t index, Parameter& parameter) {
        const zero::UnitMemory memory = deps_.driver->memory(visit, owner);
        const zero::ParameterPlace& place = deps_.layout->unit(owner).place(index);
        std::byte* range = place.training == zero::Training::trainable ? memory.weights : memory.frozen;
        parameter.bind(range + place.first * element_bytes);
    };
    const Unit& module = *deps_.model->units()[unit];
    for (std::size_t index = 0; index < module.parameters().size(); ++index)
        bind_one(unit, index, *module.parameters()[index]);
    for (const Borrowed& borrowed : module.borrowed()) {
        const auto& all = borrowed.owner->parameters();
        for (std::size_t index = 0; index < all.size(); ++index)
            if (all[index].get() == borrowed.parameter)
                bind_one(deps_.model->index_of(*borrowed.owner), index, *all[index]);
    }
}

// A view of a parameter would read memory that is gone when the next unit uses it.
void Engine::check_output(std::uint32_t unit, const Bundle& output) const {
    const Unit& module = *deps_.model->units()[unit];
    const auto check = [&](const Parameter& parameter) {
        for (const auto& [name, tensor] : output)
            if (tensor.defined() && tensor.is_alias_of(parameter.tensor()))
                throw Error(ExitCode::internal,
                            fmt::format("unit '{}' returns '{}', a view of its parameter '{}': return a "
                                        "copy (clone())",
                                        module.name(), name, parameter.spec().name));
    };
    for (const auto& parameter : module.parameters()) check(*parameter);
    for (const Borrowed& borrowed : module.borrowed()) check(*borrowed.parameter);
}

void Engine::release(std::uint32_t unit) noexcept {
    const Unit& module = *deps_.model->units()[unit];
    for (const auto& parameter : module.parameters()) parameter->release();
    for (const Borrowed& borrowed : module.borrowed()) borrowed.parameter->release();
}

}  // namespace penstock::engine
