// The first weights of a model that begins from nothing: drawn by torch's generator, each parameter by one of its own.
#pragma once

#include "zero_infinity/engine/model.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::engine {

// What is drawn for one parameter, into `values` (spec().numel() floats): depends on nothing but the seed and the
// names.
void draw_initial(const Parameter& parameter, const std::string& unit, std::uint64_t seed, float* values);

// Holds one parameter in fp32 at a time: torch draws a tensor as a whole. The model outlives it.
class DrawnWeights final : public zero::WeightSource {
   public:
    DrawnWeights(const Model& model, std::uint64_t seed) : model_(&model), seed_(seed) {}
    const char* doing() const noexcept override { return "drawing the initial weights"; }
    // REQUIRES: the parameter is one of the model's.
    void read(const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) override;

   private:
    const Model* model_;
    std::uint64_t seed_;
    const Parameter* drawn_ = nullptr;  // whose values_ are
    std::vector<float> values_;         // all of them
};

}  // namespace penstock::engine
