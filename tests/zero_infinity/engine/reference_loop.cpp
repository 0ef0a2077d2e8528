#include "tests/zero_infinity/engine/reference_loop.h"

#include "zero_infinity/engine/drawn_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock::testing {

struct ReferenceLoop::Trained {
    std::string name;
    std::uint32_t unit = 0;
    engine::Parameter* parameter = nullptr;
    std::vector<std::byte> weights;  // the memory that the tensor reads for good
    ReferenceState state;
    bool trainable = true;

    float gradient(std::uint64_t index) const { return flat_gradient.const_data_ptr<float>()[index]; }
    at::Tensor flat_gradient;  // fp32 copy of .grad
};

ReferenceLoop::ReferenceLoop(std::unique_ptr<engine::Model> model, const ReferenceOptions& options)
    : model_(std::move(model)), options_(options) {
    for (std::uint32_t unit = 0; unit < model_->units().size(); ++unit) {
        for (const auto& parameter : model_->units()[unit]->parameters()) {
            auto trained = std::make_unique<Trained>();
            const std::string& unit_name = model_->units()[unit]->name();
            trained->name = unit_name + "/" + parameter->spec().name;
            trained->unit = unit;
            trained->parameter = parameter.get();
            trained->trainable = parameter->spec().training == zero::Training::trainable;
            const std::size_t numel = parameter->spec().numel();
            trained->state.master.resize(numel);
            draw_initial(*parameter, unit_name, options.seed, trained->state.master.data());
            trained->state.m.resize(numel);
            trained->state.v.resize(numel);
            trained->weights.resize(numel * (options.bf16 ? 2 : 4) + 64);
            parameter->materialise(options.bf16 ? at::kBFloat16 : at::kFloat, at::kCPU);
            parameter->bind(trained->weights.data());
            write_weights(*trained);
            parameters_.push_back(std::move(trained));
        }
    }
}

ReferenceLoop::~ReferenceLoop() = default;

// Round to bf16 with ties away from zero in magnitude: add half a unit to the bit pattern and cut.
void ReferenceLoop::write_weights(Trained& parameter) {
    for (std::size_t index = 0; index < parameter.state.master.size(); ++index) {
        const float value = parameter.state.master[index];
        if (options_.bf16) {
            reinterpret_cast<std::uint16_t*>(parameter.weights.data())[index] =
                static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16);
        } else {
            reinterpret_cast<float*>(parameter.weights.data())[index] = value;
        }
    }
}

ReferenceLoop::Step ReferenceLoop::train_batch(const std::vector<engine::Bundle>& micro_batches, std::uint64_t step,
                                               double learning_rate) {
    Step result;
    const auto count = static_cast<double>(micro_batches.size());
    for (const engine::Bundle& micro_batch : micro_batches) {
        engine::Bundle current = micro_batch;
        for (const auto& unit : model_->units()) current = unit->forward(current);
        const at::Tensor loss = current.at("loss");
        result.loss += loss.item<double>();
        loss.backward(at::full_like(loss, 1.0 / count));
    }
    result.loss /= count;
    for (const auto& parameter : parameters_) {
        if (!parameter->trainable) continue;
        parameter->flat_gradient = parameter->parameter->tensor().grad().to(at::kFloat).contiguous();
        parameter->parameter->tensor().mutable_grad() = at::Tensor();
    }
    result.norm = norm();
    double scale = 1;
    if (options_.clipping > 0) scale = std::min(1.0, options_.clipping / (result.norm + 1e-6));
    for (const auto& parameter : parameters_)
        if (parameter->trainable) update(*parameter, static_cast<float>(scale), step, learning_rate);
    return result;
}

// The stated order: a unit's parameters one after the other, each start rounded up to 64 elements, cut into tiles; in a
// tile element i goes to lane i % 16; lanes are added as a balanced tree; tiles in order.
double ReferenceLoop::norm() const {
    double total = 0;
    for (std::uint32_t unit = 0; unit < model_->units().size(); ++unit) {
        std::vector<float> flat;
        for (const auto& parameter : parameters_) {
            if (parameter->unit != unit || !parameter->trainable) continue;
            flat.resize((flat.size() + 63) / 64 * 64);
            for (std::size_t index = 0; index < parameter->state.master.size(); ++index)
                flat.push_back(parameter->gradient(index));
        }
        for (std::size_t first = 0; first < flat.size(); first += options_.tile_numel) {
            double lanes[16] = {};
            const std::size_t last = std::min<std::size_t>(flat.size(), first + options_.tile_numel);
            for (std::size_t index = first; index < last; ++index)
                lanes[(index - first) % 16] += static_cast<double>(flat[index]) * static_cast<double>(flat[index]);
            for (int width = 8; width >= 1; width /= 2)
                for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
            total += lanes[0];
        }
    }
    return std::sqrt(total);
}

// AdamW as torch.optim.AdamW writes it, every operation in fp32, factors rounded once from double.
void ReferenceLoop::update(Trained& parameter, float scale, std::uint64_t step, double learning_rate) {
    double weight_decay = options_.weight_decay;
    const auto own = std::find_if(options_.own.begin(), options_.own.end(), [&](const ReferenceOptions::Own& each) {
        return parameter.name.find(each.text) != std::string::npos;
    });
    if (own != options_.own.end()) {
        weight_decay = own->weight_decay;
        learning_rate *= own->learning_rate_factor;
    }
    const auto decay = static_cast<float>(1 - learning_rate * weight_decay);
    const auto one_minus_beta1 = static_cast<float>(1 - options_.beta1);
    const auto beta2 = static_cast<float>(options_.beta2);
    const auto one_minus_beta2 = static_cast<float>(1 - options_.beta2);
    const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(step));
    const auto root_correction2 =
        static_cast<float>(std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(step))));
    const auto step_size = static_cast<float>(-(learning_rate / correction1));
    const auto epsilon = static_cast<float>(options_.epsilon);
    ReferenceState& state = parameter.state;
    for (std::size_t index = 0; index < state.master.size(); ++index) {
        const float g = parameter.gradient(index) * scale;
        const float m = state.m[index] + one_minus_beta1 * (g - state.m[index]);
        const float kept = state.v[index] * beta2;
        const float weighted = one_minus_beta2 * g;
        const float v = kept + weighted * g;
        const float denominator = std::sqrt(v) / root_correction2 + epsilon;
        const float decayed = state.master[index] * decay;
        const float moved = step_size * m;
        state.master[index] = decayed + moved / denominator;
        state.m[index] = m;
        state.v[index] = v;
    }
    write_weights(parameter);
}

std::map<std::string, ReferenceState> ReferenceLoop::states() const {
    std::map<std::string, ReferenceState> states;
    for (const auto& parameter : parameters_)
        if (parameter->trainable) states[parameter->name] = parameter->state;
    return states;
}

}  // namespace penstock::testing
