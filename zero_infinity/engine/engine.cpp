#include "zero_infinity/engine/engine.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/engine/generator.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
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
Bundle cut(const Bundle& bundle, const std::set<std::string>& wanted) {
    Bundle leaves;
    for (const auto& [name, tensor] : bundle) {
        at::Tensor leaf = tensor.detach();
        if (wanted.contains(name)) leaf.requires_grad_(true);
        leaves.set(name, std::move(leaf));
    }
    return leaves;
}

std::set<std::string> requiring_gradient(const Bundle& bundle) {
    std::set<std::string> names;
    for (const auto& [name, tensor] : bundle)
        if (tensor.defined() && tensor.requires_grad()) names.insert(name);
    return names;
}

// The inputs that paths through a unit depend on: "hidden* mask targets".
std::string form_of(const Bundle& input) {
    std::string form;
    for (const auto& [name, tensor] : input) form += name + (tensor.requires_grad() ? "* " : " ");
    return form;
}

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

// Those of its own that a gradient should have come to.
std::vector<std::string> not_reached(const Unit& unit, const std::set<const Parameter*>& reached) {
    std::vector<std::string> names;
    for (const auto& parameter : unit.parameters())
        if (parameter->spec().training == zero::Training::trainable && parameter->unused() == Unused::refused &&
            !reached.contains(parameter.get()))
            names.push_back(parameter->spec().name);
    return names;
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
    : deps_(deps),
      options_(options),
      commit_barrier_(*deps.communicator),
      saved_(deps.model->units().size()),
      paths_(deps.model->units().size()) {}

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
    note_narrow_sums(micro_batches.size());
    StepReport report;
    const std::string generator_before = generator_state(deps_.device);
    const FinishedGradients gradients = forward_and_backward(micro_batches, report);
    watch_generators(generator_before);
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
    if (!went_on_from_.empty()) client[went_on_from_key] = went_on_from_;
    commit_barrier_.before_write();  // what was held back in host memory is written now
    deps_.driver->commit(client);
    commit_barrier_.committed();
}

void Engine::restore(const store::ClientState& client) {
    for (const auto& [key, value] : client)
        if (key.starts_with(user_prefix)) user_[key] = value;
    if (const auto snapshot = client.find(went_on_from_key); snapshot != client.end()) went_on_from_ = snapshot->second;
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
    if (narrow_sums_noted_ || deps_.gradients->type() != zero::PlaneType::bf16 || micro_batches <= bf16_addends_max)
        return;
    narrow_sums_noted_ = true;
    notes_.push_back(
        fmt::format("gradients of {} micro-batches are summed in bf16 ({}), which keeps 8 bits: a sum loses up to "
                    "1/512 of itself with each, and stops growing at 256 equal ones; fp32 does not, for twice the "
                    "memory",
                    micro_batches, deps_.gradient_setting));
}

std::vector<std::string> Engine::take_notes() {
    return std::exchange(notes_, {});
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
    reached_.clear();
    activation_bytes_ = 0;
    for (std::size_t index = 0; index < micro_batches.size(); ++index)
        saved_[0][index].input = cut(micro_batches[index], {});

    deps_.driver->begin(zero::Pass::training);
    visit_ = 0;
    for (std::uint32_t unit = 0; unit + 1 < count; ++unit) forward(unit, micro_batches.size());
    report.activation_bytes = activation_bytes_;
    activation_peak_bytes_ = std::max(activation_peak_bytes_, activation_bytes_);
    const auto backward_start = Clock::now();
    report.loss = backward(count - 1, micro_batches.size());
    for (std::uint32_t unit = count - 1; unit-- > 0;) backward(unit, micro_batches.size());
    const FinishedGradients gradients = deps_.gradients->finish();
    report.forward = backward_start - forward_start;
    report.backward = Clock::now() - backward_start;
    return gradients;
}

void Engine::forward(std::uint32_t unit, std::size_t count) {
    bind(visit_, unit);
    for (std::size_t index = 0; index < count; ++index) {
        SavedActivations& saved = saved_[unit][index];
        std::string generator = generator_state(deps_.device);
        saved_[unit + 1][index].input = first_run(unit, saved);
        count_saved(saved_[unit + 1][index].input, saved.input);
        if (generator != generator_state(deps_.device)) saved.generator = std::move(generator);
    }
    release(unit);
    deps_.driver->reshard(visit_++);
}

// What the next unit begins with. Which outputs require a gradient only a graph tells: where none is kept, the first
// run over inputs of this form makes one, and drops it.
Bundle Engine::first_run(std::uint32_t unit, SavedActivations& saved) {
    const bool retain = options_.activations == Activations::retain;
    const auto [path, unknown] = paths_[unit].try_emplace(form_of(saved.input));
    const at::AutoGradMode graph(retain || unknown);
    Bundle output = deps_.model->units()[unit]->run(saved.input);
    if (retain || unknown) path->second = requiring_gradient(output);
    Bundle next = cut(output, path->second);
    if (retain) saved.output = std::move(output);
    return next;
}

// Tensors that a unit passes on, or returns twice, have their memory once.
void Engine::count_saved(const Bundle& saved, const Bundle& before) {
    const auto has_memory_of = [](const at::Tensor& tensor) {
        return [&tensor](const auto& other) { return other.second.defined() && other.second.is_alias_of(tensor); };
    };
    for (auto entry = saved.begin(); entry != saved.end(); ++entry) {
        const at::Tensor& tensor = entry->second;
        if (!tensor.defined() || std::any_of(saved.begin(), entry, has_memory_of(tensor)) ||
            std::any_of(before.begin(), before.end(), has_memory_of(tensor)))
            continue;
        activation_bytes_ += tensor.storage().nbytes();
    }
}

// With the draws of the first time.
Bundle Engine::run_again(std::uint32_t unit, const SavedActivations& saved) const {
    const Unit& module = *deps_.model->units()[unit];
    const std::string now = saved.generator.empty() ? std::string() : generator_state(deps_.device);
    if (!now.empty()) set_generator_state(deps_.device, saved.generator);
    Bundle output = module.run(saved.input);
    if (!now.empty()) set_generator_state(deps_.device, now);
    if (unit + 1 == saved_.size()) return output;
    const std::set<std::string>& path = paths_[unit].at(form_of(saved.input));
    for (const std::string& name : requiring_gradient(output))
        if (!path.contains(name))
            throw Error(ExitCode::internal,
                        fmt::format("unit '{}' returns '{}' with a gradient for some inputs and without for others "
                                    "of the same form, and the gradient would be lost: return it with one always, or "
                                    "keep activations",
                                    module.name(), name));
    return output;
}

// Returns the sum of the micro-batches' losses over their number, for the last unit; 0 for the others.
double Engine::backward(std::uint32_t unit, std::size_t count) {
    const at::AutoGradMode graph(true);
    double loss = 0;
    std::set<std::string> wanted;  // inputs that a gradient is wanted of
    bind(visit_, unit);
    deps_.gradients->sum(unit, [&](GradientSum& sum) {
        for (std::size_t index = 0; index < count; ++index) {
            wanted.merge(requiring_gradient(saved_[unit][index].input));
            sum.add(differentiate(unit, saved_[unit][index], upstream_[index], count, loss));
            saved_[unit][index] = {};
        }
    });
    check_reached(unit, wanted);
    release(unit);
    deps_.driver->reshard(visit_++);
    return loss / static_cast<double>(count);
}

// Nothing that should be trained may silently not be. Units come in reverse, so the one that is named is the first
// before the mistake, or the mistake itself.
void Engine::check_reached(std::uint32_t unit, const std::set<std::string>& wanted) const {
    const Unit& module = *deps_.model->units()[unit];
    const std::string parameters = fmt::format("{}", fmt::join(not_reached(module, reached_), "', '"));
    if (!parameters.empty())
        throw Error(ExitCode::usage,
                    fmt::format("no gradient comes to unit '{}', parameters '{}': the loss does not depend on them, or "
                                "a unit behind detaches it from them. Use them, freeze them, or declare them with "
                                "Unused::allowed where a step may do without",
                                module.name(), parameters));
    const bool passed_on =
        std::any_of(upstream_.begin(), upstream_.end(), [](const Bundle& each) { return each.size() > 0; });
    if (wanted.empty() || passed_on) return;
    for (std::uint32_t before = 0; before < unit; ++before)
        if (!not_reached(*deps_.model->units()[before], reached_).empty())
            throw Error(ExitCode::usage,
                        fmt::format("unit '{}' passes no gradient on to its input '{}': what it returns does not "
                                    "depend on that, or was detached from it, and the units before would not be "
                                    "trained. Freeze them, or use the input in what is returned",
                                    module.name(), fmt::join(wanted, "', '")));
}

// One unit and micro-batch: gradients of its parameters; `upstream` goes from its outputs' gradients to its inputs'.
std::vector<at::Tensor> Engine::differentiate(std::uint32_t unit, SavedActivations& saved, Bundle& upstream,
                                              std::size_t count, double& loss) {
    const std::vector<const Parameter*> parameters = differentiated(*deps_.model->units()[unit]);
    const bool last = unit + 1 == saved_.size();
    if (!last && upstream.size() == 0) return std::vector<at::Tensor>(parameters.size());
    const bool kept = saved.output.size() > 0;
    const Bundle output = kept ? saved.output : run_again(unit, saved);
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> output_gradients;
    if (last) {
        const at::Tensor& mean = output.at("loss");
        loss += mean.item<double>();
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
        if (gradients[index].defined()) reached_.insert(parameters[index]);
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
    visit_units([&](std::uint32_t unit) { current = deps_.model->units()[unit]->run(current); });
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

void Engine::release(std::uint32_t unit) noexcept {
    const Unit& module = *deps_.model->units()[unit];
    for (const auto& parameter : module.parameters()) parameter->release();
    for (const Borrowed& borrowed : module.borrowed()) borrowed.parameter->release();
}

}  // namespace penstock::engine
