// The first weights of a new store, from the C caller's function.
#pragma once

#include "zero_infinity/capi/penstock_session.h"
#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// Asked for one stretch at a time. Options and model outlive it. Throws Refusal: the caller's status and words.
class FirstWeights final : public WeightSource {
   public:
    FirstWeights(const penstock_session_options& options, const ModelSpec& model) : options_(options), model_(model) {}

    void check(std::span<const UnitLayout>) override;
    void read(const NamedParameter& parameter, std::uint64_t first, std::span<float> values) override;

   private:
    std::uint32_t index_of(const UnitSpec& unit);

    const penstock_session_options& options_;
    const ModelSpec& model_;
    std::size_t unit_ = 0;
};

}  // namespace penstock::zero
