#include "trainer/plan/measured_units.h"

#include "aio/words/error.h"
#include "zero_infinity/engine/tape.h"
#include "zero_infinity/engine/torch/memory_meter.h"
#include "zero_infinity/engine/torch/tensor_view.h"
#include "zero_infinity/measure/measuring_memory.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>

namespace penstock::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t most_places = 64;  // of small units, whose time is not that of memory

// Units with equal ones are taken to cost the same, and to give out alike.
std::string kind_of(const engine::Unit& unit, const engine::Bundle& input) {
    std::string kind;
    const auto add = [&](const zero::ParameterSpec& spec) {
        kind +=
            fmt::format("{}{} ", fmt::join(spec.shape, "x"), spec.training == zero::Training::frozen ? " frozen" : "");
    };
    for (const auto& parameter : unit.parameters()) add(parameter->spec());
    for (const engine::Borrowed& borrowed : unit.borrowed()) add(borrowed.parameter->spec());
    for (const auto& [name, tensor] : input)
        kind += fmt::format("{} {}{} ", name, fmt::join(tensor.sizes(), "x"), tensor.requires_grad() ? " graded" : "");
    return kind;
}

std::vector<engine::Parameter*> parameters_of(const engine::Unit& unit) {
    std::vector<engine::Parameter*> parameters;
    for (const auto& parameter : unit.parameters()) parameters.push_back(parameter.get());
    for (const engine::Borrowed& borrowed : unit.borrowed()) parameters.push_back(borrowed.parameter);
    return parameters;
}

// With a gradient where what they come from has one, as the engine cuts them.
engine::Bundle leaves_of(const engine::Bundle& bundle) {
    engine::Bundle leaves;
    for (const auto& [name, tensor] : bundle) leaves.set(name, tensor.detach().requires_grad_(tensor.requires_grad()));
    return leaves;
}

bool has_gradient(const engine::Bundle& bundle) {
    return std::any_of(bundle.begin(), bundle.end(), [](const auto& entry) { return entry.second.requires_grad(); });
}

// Weights and gradients of one unit, in as many places as no cache holds: a step meets each unit's cold.
class UnitMemory {
   public:
    UnitMemory(const engine::Unit& unit, const UnitsQuestion& question)
        : parameters_(parameters_of(unit)), question_(question) {
        for (const engine::Parameter* parameter : parameters_) {
            weight_offsets_.push_back(weights_bytes_);
            gradient_offsets_.push_back(gradients_bytes_);
            weights_bytes_ += padded(parameter->spec().numel() * zero::bytes_of(question.weights));
            gradients_bytes_ += padded(parameter->spec().numel() * zero::bytes_of(question.gradients));
        }
        const std::uint64_t each = weights_bytes_ + gradients_bytes_;
        places_ = std::clamp<std::uint64_t>(zero::beyond_caches_bytes / each, 1, most_places);
        try {
            memory_.emplace(places_ * each);
        } catch (const Error& error) {
            throw Error(error.code(), fmt::format("measuring unit '{}': {}", unit.name(), error.what()));
        }
        fill();
    }
    ~UnitMemory() { release(); }
    UnitMemory(const UnitMemory&) = delete;
    UnitMemory& operator=(const UnitMemory&) = delete;

    void bind(std::size_t round) {
        release();
        place_ = memory_->bytes().data() + round % places_ * (weights_bytes_ + gradients_bytes_);
        for (std::size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->bind(place_ + weight_offsets_[i]);
    }
    void release() noexcept {
        for (engine::Parameter* parameter : parameters_)
            if (parameter->state() == engine::Parameter::State::bound) parameter->release();
    }
    std::vector<at::Tensor> trainable() const {
        std::vector<at::Tensor> tensors;
        for (const engine::Parameter* parameter : parameters_)
            if (parameter->spec().training == zero::Training::trainable) tensors.push_back(parameter->tensor());
        return tensors;
    }
    // As the engine adds them to the sums.
    void take_gradients(std::span<const at::Tensor> gradients, bool first) const {
        std::size_t next = 0;
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (parameters_[i]->spec().training != zero::Training::trainable) continue;
            const at::Tensor& gradient = gradients[next++];
            if (!gradient.defined()) continue;
            at::Tensor sum = at::from_blob(place_ + weights_bytes_ + gradient_offsets_[i], parameters_[i]->spec().shape,
                                           engine::scalar_type(question_.gradients));
            first ? sum.copy_(gradient) : sum.add_(gradient);
        }
    }

   private:
    static std::uint64_t padded(std::uint64_t bytes) noexcept { return (bytes + 63) / 64 * 64; }
    // Small numbers, as weights are: what is not normal or not finite is computed at another speed.
    void fill() {
        for (std::size_t round = 0; round < places_; ++round) {
            bind(round);
            const at::NoGradGuard no_graph;
            for (const engine::Parameter* parameter : parameters_) {
                at::Tensor weights = parameter->tensor().detach();
                weights.fill_(0.01);
                weights.flatten().slice(0, 0, c10::nullopt, 3).fill_(-0.02);
            }
        }
        release();
    }

    std::vector<engine::Parameter*> parameters_;
    const UnitsQuestion& question_;
    std::vector<std::uint64_t> weight_offsets_;
    std::vector<std::uint64_t> gradient_offsets_;
    std::uint64_t weights_bytes_ = 0;
    std::uint64_t gradients_bytes_ = 0;
    std::uint64_t places_ = 1;
    std::optional<zero::MeasuringMemory> memory_;
    std::byte* place_ = nullptr;
};

class UnitProbe {
   public:
    UnitProbe(const engine::Unit& unit, const engine::Bundle& input, bool last, const UnitsQuestion& question)
        : unit_(unit), input_(leaves_of(input)), last_(last), question_(question), memory_(unit, question) {}

    struct Measured {
        zero::UnitSeconds recomputed, kept;
        std::uint64_t graph_bytes = 0;
        std::uint64_t call_bytes = 0;
        engine::Bundle output;  // what the next unit is given
    };
    Measured measure();

   private:
    double forward(bool keeps);
    double backward(bool keeps);
    void make_graph(Measured& measured);
    void make_gradients(Measured& measured);
    void differentiate(const engine::Bundle& output, bool first);
    engine::Bundle run(bool graph) {
        const at::AutoGradMode mode(graph);
        return unit_.run(input_);
    }
    template <typename Work>
    double median_of(Work work);

    const engine::Unit& unit_;
    engine::Bundle input_;
    bool last_;
    const UnitsQuestion& question_;
    UnitMemory memory_;
};

// Seconds that `work` says, by round; the first is not counted.
template <typename Work>
double UnitProbe::median_of(Work work) {
    memory_.bind(0);
    work();
    std::vector<double> seconds;
    double all = 0;
    for (std::size_t round = 1; seconds.empty() || all < question_.seconds; ++round) {
        memory_.bind(round);
        seconds.push_back(work());
        all += seconds.back();
    }
    const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

double seconds_between(Clock::time_point start, Clock::time_point end) {
    return std::chrono::duration<double>(end - start).count();
}

double UnitProbe::forward(bool keeps) {
    return median_of([&] {
        const auto start = Clock::now();
        const engine::Bundle output = run(keeps);
        return seconds_between(start, Clock::now());
    });
}

void UnitProbe::differentiate(const engine::Bundle& output, bool first) {
    std::vector<at::Tensor> outputs;
    std::vector<at::Tensor> upstream;
    for (const auto& [name, tensor] : output) {
        if (!tensor.requires_grad() || !tensor.is_floating_point() || (last_ && name != "loss")) continue;
        outputs.push_back(tensor);
        upstream.push_back(at::full_like(tensor, 0.001));
    }
    std::vector<at::Tensor> inputs;
    for (const auto& [name, tensor] : input_)
        if (tensor.requires_grad()) inputs.push_back(tensor);
    const std::size_t given = inputs.size();
    for (const at::Tensor& parameter : memory_.trainable()) inputs.push_back(parameter);
    if (inputs.empty() || outputs.empty()) return;
    const std::vector<at::Tensor> gradients = torch::autograd::grad(outputs, inputs, upstream, /*retain_graph=*/false,
                                                                    /*create_graph=*/false, /*allow_unused=*/true);
    memory_.take_gradients(std::span(gradients).subspan(given), first);
}

// Of one micro-batch among all of them: the first makes the sum, the others add to it.
double UnitProbe::backward(bool keeps) {
    const bool first = question_.micro_batches == 1;
    return median_of([&] {
        const at::AutoGradMode graph(true);
        auto start = Clock::now();
        engine::Bundle output = run(true);
        if (keeps) start = Clock::now();
        differentiate(output, first);
        output = {};
        return seconds_between(start, Clock::now());
    });
}

// What it takes is measured as the engine does.
void UnitProbe::make_graph(Measured& measured) {
    memory_.bind(0);
    const engine::MemoryMeter meter;
    const engine::Bundle output = run(true);
    measured.graph_bytes = meter.held_bytes() - std::min(meter.held_bytes(), engine::own_bytes(output, input_));
    measured.output = leaves_of(output);
    measured.call_bytes = meter.peak_bytes();
}

// Of the last unit with its forward: the engine makes both at once.
void UnitProbe::make_gradients(Measured& measured) {
    memory_.bind(0);
    engine::MemoryMeter meter;
    const at::AutoGradMode graph(true);
    const engine::Bundle output = run(true);
    if (!last_) meter.restart();
    differentiate(output, /*first=*/true);
    measured.call_bytes = std::max(measured.call_bytes, meter.peak_bytes());
}

// A unit that no gradient comes to is not run again.
UnitProbe::Measured UnitProbe::measure() {
    Measured measured;
    if (!last_) make_graph(measured);
    const bool again = last_ || has_gradient(measured.output);
    if (again) make_gradients(measured);
    const auto count = static_cast<double>(question_.micro_batches);
    const auto seconds = [&](bool keeps) {
        return zero::UnitSeconds{.forward = last_ ? 0 : forward(keeps) * count,
                                 .backward = again ? backward(keeps) * count : 0};
    };
    measured.recomputed = seconds(false);
    measured.kept = last_ ? measured.recomputed : seconds(true);
    return measured;
}

}  // namespace

MeasuredUnits measure_units(const UnitsQuestion& question) {
    MeasuredUnits measured;
    const auto& units = question.model->units();
    for (const auto& unit : units)
        for (const auto& parameter : unit->parameters())
            parameter->materialise(engine::scalar_type(question.weights), at::Device(at::kCPU));
    std::map<std::string, UnitProbe::Measured> known;
    engine::Bundle input = question.input;
    for (std::size_t i = 0; i < units.size(); ++i) {
        const bool last = i + 1 == units.size();
        const std::string kind = kind_of(*units[i], input);
        auto found = known.find(kind);
        if (found == known.end() || last) {
            if (question.at) question.at(units[i]->name());
            UnitProbe probe(*units[i], input, last, question);
            found = known.insert_or_assign(kind, probe.measure()).first;
        }
        measured.recomputed.push_back(found->second.recomputed);
        measured.kept.push_back(found->second.kept);
        measured.graph_bytes.push_back(found->second.graph_bytes);
        measured.call_bytes = std::max(measured.call_bytes, found->second.call_bytes);
        if (!last) input = found->second.output;
    }
    measured.kinds = known.size();
    return measured;
}

}  // namespace penstock::trainer
