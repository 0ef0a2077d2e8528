#include "zero_infinity/engine/drawn_weights.h"

#include "aio/words/check.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace penstock::engine {
namespace {

constexpr std::uint64_t ahead_max_bytes = 256U << 20;

std::uint64_t bytes_of(const Parameter& parameter) {
    return parameter.spec().numel() * sizeof(float);
}

std::unique_ptr<float[]> drawn(const Parameter& parameter, const std::string& unit, std::uint64_t seed) {
    auto values = std::make_unique_for_overwrite<float[]>(parameter.spec().numel());
    draw_initial(parameter, unit, seed, values.get());
    return values;
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

DrawnWeights::DrawnWeights(const Model& model, std::uint64_t seed, unsigned threads)
    : seed_(seed), ahead_max_(std::max(threads, 1U) - 1) {
    for (const auto& unit : model.units())
        for (const zero::Training training : {zero::Training::trainable, zero::Training::frozen})
            for (const auto& parameter : unit->parameters())
                if (parameter->spec().training == training) places_.push_back({unit.get(), parameter.get()});
}

std::size_t DrawnWeights::find(const zero::NamedParameter& wanted) const {
    for (std::size_t place = 0; place < places_.size(); ++place)
        if (places_[place].unit->name() == wanted.unit.name &&
            places_[place].parameter->spec().name == wanted.spec.name)
            return place;
    PENSTOCK_CHECK(false, "the model has no parameter '{}'", wanted.name());
}

void DrawnWeights::read(const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) {
    const std::uint64_t numel = parameter.spec.numel();
    PENSTOCK_CHECK(first + values.size() <= numel, "elements [{}, {}) of '{}', which has {}", first,
                   first + values.size(), parameter.name(), numel);
    if (!drawn_ || places_[*drawn_].unit->name() != parameter.unit.name ||
        places_[*drawn_].parameter->spec().name != parameter.spec.name) {
        const std::size_t wanted = find(parameter);
        values_.reset();
        values_ = take(wanted);
        drawn_ = wanted;
        draw_ahead();
    }
    std::copy_n(values_.get() + first, values.size(), values.begin());
}

DrawnWeights::Values DrawnWeights::take(std::size_t wanted) {
    while (!ahead_.empty() && ahead_.front().place != wanted) ahead_.pop_front();  // of an order that nobody keeps
    if (ahead_.empty()) return drawn(*places_[wanted].parameter, places_[wanted].unit->name(), seed_);
    Values values = ahead_.front().values.get();
    ahead_.pop_front();
    return values;
}

void DrawnWeights::draw_ahead() {
    std::uint64_t bytes = 0;
    for (const Ahead& each : ahead_) bytes += bytes_of(*places_[each.place].parameter);
    std::size_t next = (ahead_.empty() ? *drawn_ : ahead_.back().place) + 1;
    for (; next < places_.size() && ahead_.size() < ahead_max_; ++next) {
        const Place& place = places_[next];
        bytes += bytes_of(*place.parameter);
        if (bytes > ahead_max_bytes) return;
        try {
            ahead_.push_back({next, std::async(std::launch::async, [place, seed = seed_] {
                                  return drawn(*place.parameter, place.unit->name(), seed);
                              })});
        } catch (const std::system_error&) {  // no thread is to be had: drawn when it is asked for
            return;
        }
    }
}

}  // namespace penstock::engine
