#include "zero_infinity/engine/drawn_weights.h"

#include "aio/words/check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

#include <algorithm>

namespace penstock::engine {
namespace {

const Parameter& find(const Model& model, const zero::NamedParameter& wanted) {
    for (const auto& unit : model.units())
        for (const auto& parameter : unit->parameters())
            if (unit->name() == wanted.unit.name && parameter->spec().name == wanted.spec.name) return *parameter;
    PENSTOCK_CHECK(false, "the model has no parameter '{}'", wanted.name());
}

}  // namespace

void draw_initial(const Parameter& parameter, const std::string& unit, std::uint64_t seed, float* values) {
    const zero::ParameterSpec& spec = parameter.spec();
    const std::string identity = unit + "/" + spec.name;
    at::Tensor tensor = at::from_blob(values, spec.shape, at::kFloat);
    switch (parameter.initial().kind) {
        case Initial::Kind::zeros:
            tensor.zero_();
            break;
        case Initial::Kind::ones:
            tensor.fill_(1);
            break;
        case Initial::Kind::normal: {
            const std::uint64_t own_seed = XXH3_64bits_withSeed(identity.data(), identity.size(), seed);
            tensor.normal_(0, parameter.initial().deviation, at::make_generator<at::CPUGeneratorImpl>(own_seed));
            break;
        }
    }
}

void DrawnWeights::read(const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) {
    const Parameter& wanted = find(*model_, parameter);
    if (&wanted != drawn_) {
        values_.resize(wanted.spec().numel());
        draw_initial(wanted, parameter.unit.name, seed_, values_.data());
        drawn_ = &wanted;
    }
    PENSTOCK_CHECK(first + values.size() <= values_.size(), "elements [{}, {}) of '{}', which has {}", first,
                   first + values.size(), parameter.name(), values_.size());
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
}

}  // namespace penstock::engine
