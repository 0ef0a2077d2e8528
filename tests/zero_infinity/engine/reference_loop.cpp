#include "tests/zero_infinity/engine/reference_loop.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

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
    std::vector<float> gradient;  // of the step's micro-batches so far
    ReferenceOptimizer optimizer;
    double learning_rate_factor = 1;
    bool trainable = true;
};

std::vector<float> first_weights(const engine::Parameter& parameter, const std::string& unit, std::uint64_t seed) {
    using enum engine::Initial::Kind;
    std::vector<float> values(parameter.spec().numel(), parameter.initial().kind == ones ? 1.0F : 0.0F);
    if (parameter.initial().kind == normal) {
        const std::string identity = unit + "/" + parameter.spec().name;
        auto generator =
            at::make_generator<at::CPUGeneratorImpl>(XXH3_64bits_withSeed(identity.data(), identity.size(), seed));
        const at::Tensor drawn = at::normal(0.0, parameter.initial().deviation, parameter.spec().shape, generator);
        std::copy_n(drawn.const_data_ptr<float>(), values.size(), values.begin());
    }
    return values;
}

ReferenceLoop::ReferenceLoop(std::unique_ptr<engine::Model> model, const ReferenceOptions& options)
    : model_(std::move(model)), options_(options) {
    const bool narrow = options.weights != ReferenceOptions::Weights::fp32;
    for (std::uint32_t unit = 0; unit < model_->units().size(); ++unit) {
        for (const auto& parameter : model_->units()[unit]->parameters()) {
            auto trained = std::make_unique<Trained>();
            const std::string& unit_name = model_->units()[unit]->name();
            trained->name = unit_name + "/" + parameter->spec().name;
            trained->unit = unit;
            trained->parameter = parameter.get();
            trained->trainable = parameter->spec().training == zero::Training::trainable;
            trained->state.master = first_weights(*parameter, unit_name, options.seed);
            trained->optimizer = options.optimizer;
            const auto own = std::find_if(options.own.begin(), options.own.end(), [&](const auto& each) {
                return trained->name.find(each.text) != std::string::npos;
            });
            if (own != options.own.end()) {
                trained->optimizer = own->optimizer;
                trained->learning_rate_factor = own->learning_rate_factor;
            }
            trained->optimizer.begin(trained->state);
            trained->weights.resize(trained->state.master.size() * (narrow ? 2 : 4) + 64);
            parameter->materialise(narrow ? at::kBFloat16 : at::kFloat, at::kCPU);
            parameter->bind(trained->weights.data());
            write_weights(*trained);
            parameters_.push_back(std::move(trained));
        }
    }
}

ReferenceLoop::~ReferenceLoop() = default;

namespace {

// Half a unit is added to the bit pattern, and the lower half is cut off; for ties to even a bit less than half where
// the upper half is even.
std::uint16_t bf16_away(float value) {
    return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16);
}

std::uint16_t bf16_even(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float rounded(float value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bf16_even(value)) << 16);
}

}  // namespace

void ReferenceLoop::write_weights(Trained& parameter) {
    for (std::size_t index = 0; index < parameter.state.master.size(); ++index) {
        const float value = parameter.state.master[index];
        if (options_.weights == ReferenceOptions::Weights::fp32) {
            reinterpret_cast<float*>(parameter.weights.data())[index] = value;
        } else {
            reinterpret_cast<std::uint16_t*>(parameter.weights.data())[index] =
                options_.weights == ReferenceOptions::Weights::bf16_away ? bf16_away(value) : bf16_even(value);
        }
    }
}

ReferenceLoop::Step ReferenceLoop::train_batch(const std::vector<engine::Bundle>& micro_batches, std::uint64_t step,
                                               double learning_rate) {
    Step result{.loss = add_batch(micro_batches), .norm = norm()};
    double scale = 1;
    if (options_.clipping > 0) scale = std::min(1.0, options_.clipping / (result.norm + 1e-6));
    for (const auto& parameter : parameters_)
        if (parameter->trainable) update(*parameter, static_cast<float>(scale), step, learning_rate);
    return result;
}

ReferenceLoop::Step ReferenceLoop::train_ranks(const std::vector<std::vector<engine::Bundle>>& of_ranks,
                                               std::uint64_t step, double learning_rate) {
    Step result;
    std::vector<std::vector<float>> sums(parameters_.size());
    for (const std::vector<engine::Bundle>& micro_batches : of_ranks) {
        result.loss += add_batch(micro_batches);
        for (std::size_t at = 0; at < sums.size(); ++at) {
            const std::vector<float>& addend = parameters_[at]->gradient;
            sums[at].resize(addend.size());
            for (std::size_t index = 0; index < addend.size(); ++index) sums[at][index] += addend[index];
        }
    }
    result.loss /= static_cast<double>(of_ranks.size());
    for (std::size_t at = 0; at < sums.size(); ++at) {
        Trained& parameter = *parameters_[at];
        if (!parameter.trainable) continue;
        for (std::size_t index = 0; index < sums[at].size(); ++index) {
            const float mean = sums[at][index] / static_cast<float>(of_ranks.size());
            parameter.gradient[index] = options_.bf16_gradients ? rounded(mean) : mean;
        }
        update(parameter, 1, step, learning_rate);
    }
    return result;
}

// Returns the mean of the losses.
double ReferenceLoop::add_batch(const std::vector<engine::Bundle>& micro_batches) {
    double losses = 0;
    const auto count = static_cast<double>(micro_batches.size());
    for (const engine::Bundle& micro_batch : micro_batches) {
        engine::Bundle current = micro_batch;
        for (const auto& unit : model_->units()) current = unit->forward(current);
        const at::Tensor loss = current.at("loss");
        losses += loss.item<double>();
        loss.backward(at::full_like(loss, 1.0 / count));
        for (const auto& parameter : parameters_)
            if (parameter->trainable) add_gradient(*parameter, &micro_batch == micro_batches.data());
    }
    return losses / count;
}

// Takes .grad. Micro-batches are added in order, in fp32; sums in bf16 are rounded each time.
void ReferenceLoop::add_gradient(Trained& parameter, bool first) const {
    const at::Tensor flat = parameter.parameter->tensor().grad().to(at::kFloat).contiguous();
    parameter.parameter->tensor().mutable_grad() = at::Tensor();
    parameter.gradient.resize(parameter.state.master.size());
    for (std::size_t index = 0; index < parameter.gradient.size(); ++index) {
        const float addend = flat.const_data_ptr<float>()[index];
        float& sum = parameter.gradient[index];
        sum = first ? addend : sum + addend;
        if (options_.bf16_gradients) sum = rounded(sum);
    }
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
                flat.push_back(parameter->gradient[index]);
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

void ReferenceLoop::update(Trained& parameter, float scale, std::uint64_t step, double learning_rate) {
    for (float& each : parameter.gradient) each = each * scale;
    parameter.optimizer.update(parameter.state, parameter.gradient, step,
                               learning_rate * parameter.learning_rate_factor);
    write_weights(parameter);
}

std::map<std::string, ReferenceState> ReferenceLoop::states() const {
    std::map<std::string, ReferenceState> states;
    for (const auto& parameter : parameters_)
        if (parameter->trainable) states[parameter->name] = parameter->state;
    return states;
}

}  // namespace penstock::testing
