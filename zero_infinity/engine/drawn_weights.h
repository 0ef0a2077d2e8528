// The first weights of a model that begins from nothing: drawn by torch's generator, each parameter by one of its own.
#pragma once

#include "zero_infinity/engine/model.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::engine {

// What is drawn for one parameter, into `values` (spec().numel() floats): depends on nothing but the seed and the
// names.
void draw_initial(const Parameter& parameter, const std::string& unit, std::uint64_t seed, float* values);

// Holds one parameter in fp32, and those that other threads draw ahead: torch draws a tensor as a whole, by one thread.
// The model outlives it.
class DrawnWeights final : public zero::WeightSource {
   public:
    // With `threads` in all, the caller's included.
    DrawnWeights(const Model& model, std::uint64_t seed, unsigned threads = 1);
    const char* doing() const noexcept override { return "drawing the initial weights"; }
    // REQUIRES: the parameter is one of the model's.
    void read(const zero::NamedParameter& parameter, std::uint64_t first, std::span<float> values) override;

   private:
    struct Place {  // of a parameter, in the order in which they are asked for
        const Unit* unit = nullptr;
        const Parameter* parameter = nullptr;
    };
    using Values = std::unique_ptr<float[]>;  // all of one parameter's
    struct Ahead {
        std::size_t place = 0;
        std::future<Values> values;
    };

    std::size_t find(const zero::NamedParameter& wanted) const;
    Values take(std::size_t place);
    void draw_ahead();

    std::vector<Place> places_;
    std::uint64_t seed_;
    std::size_t ahead_max_;
    std::optional<std::size_t> drawn_;  // whose values_ are
    Values values_;
    std::deque<Ahead> ahead_;  // those that come next, in order; waited for by the destructor
};

}  // namespace penstock::engine
