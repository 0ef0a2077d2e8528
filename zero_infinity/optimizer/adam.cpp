// Adam and AdamW: the same moments, and two ways to decay the weights.
#include "aio/words/check.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/option_check.h"

#include <fmt/format.h>

#include <cmath>

namespace penstock::zero {
namespace {

enum class Decay { penalty, decoupled };

class Adam final : public Optimizer {
   public:
    Adam(const AdamOptions& options, Decay decay) : options_(options), decay_(decay) {}

    std::string name() const override { return decay_ == Decay::decoupled ? "adamw" : "adam"; }
    std::string options() const override {
        return fmt::format("betas {} and {}, epsilon {}, weight decay {}", options_.beta1, options_.beta2,
                           options_.epsilon, options_.weight_decay);
    }
    std::uint32_t moments() const noexcept override { return 2; }
    MomentKind moment_kind(std::uint32_t moment) const noexcept override {
        return moment == 0 ? MomentKind::any_sign : MomentKind::square;
    }
    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        kernel().decoded(factors(values), span);
    }
    EncodedUpdate update_encoded(const EncodedSpan& span, const StepValues& values) const noexcept override {
        return kernel().encoded(factors(values), span);
    }

   private:
    const UpdateKernel<AdamFactors>& kernel() const noexcept {
        return decay_ == Decay::decoupled ? kernels().adamw : kernels().adam;
    }
    AdamFactors factors(const StepValues& values) const noexcept {
        PENSTOCK_CHECK(values.step > 0, "steps count from 1");
        const auto step = static_cast<double>(values.step);
        const double correction1 = 1.0 - std::pow(options_.beta1, step);
        const double correction2 = 1.0 - std::pow(options_.beta2, step);
        const double decay =
            decay_ == Decay::decoupled ? 1.0 - values.learning_rate * options_.weight_decay : options_.weight_decay;
        return {.decay = static_cast<float>(decay),
                .m_weight = static_cast<float>(1.0 - options_.beta1),
                .v_decay = static_cast<float>(options_.beta2),
                .v_weight = static_cast<float>(1.0 - options_.beta2),
                .v_correction = static_cast<float>(std::sqrt(correction2)),
                .epsilon = static_cast<float>(options_.epsilon),
                .step = static_cast<float>(-(values.learning_rate / correction1))};
    }

    AdamOptions options_;
    Decay decay_;
};

void check_options(const OptionCheck& check, const AdamOptions& options) {
    check.is_decay("beta1", options.beta1);
    check.is_decay("beta2", options.beta2);
    check.is_positive_as_fp32("epsilon", options.epsilon);  // padding has m = v = 0: without it, 0/0
    check.is_not_negative("weight_decay", options.weight_decay);
}

}  // namespace

std::unique_ptr<Optimizer> make_adam(const AdamOptions& options) {
    check_options(OptionCheck("adam"), options);
    return std::make_unique<Adam>(options, Decay::penalty);
}

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
    const AdamOptions same{.beta1 = options.beta1,
                           .beta2 = options.beta2,
                           .epsilon = options.epsilon,
                           .weight_decay = options.weight_decay};
    check_options(OptionCheck("adamw"), same);
    return std::make_unique<Adam>(same, Decay::decoupled);
}

}  // namespace penstock::zero
