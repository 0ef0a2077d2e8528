#include "aio/check.h"
#include "zero_infinity/kernels.h"
#include "zero_infinity/optimizers.h"
#include "zero_infinity/option_check.h"

#include <cmath>

namespace penstock {
namespace {

class AdamW final : public Optimizer {
   public:
    explicit AdamW(const AdamWOptions& options) : options_(options) {}

    std::string name() const override { return "adamw"; }
    std::uint32_t moments() const noexcept override { return 2; }

    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        PENSTOCK_CHECK(values.step > 0, "steps count from 1");
        kernels().adamw(factors(values), span.master, span.moments[0], span.moments[1], span.gradient, span.count);
    }

    MomentKind moment_kind(std::uint32_t moment) const noexcept override {
        return moment == 0 ? MomentKind::any_sign : MomentKind::square;
    }

    EncodedUpdate update_encoded(const EncodedSpan& span, const StepValues& values) const noexcept override {
        PENSTOCK_CHECK(values.step > 0, "steps count from 1");
        return kernels().adamw_encoded(factors(values), span);
    }

   private:
    AdamWFactors factors(const StepValues& values) const noexcept {
        const auto step = static_cast<double>(values.step);
        const double correction1 = 1.0 - std::pow(options_.beta1, step);
        const double correction2 = 1.0 - std::pow(options_.beta2, step);
        return {.decay = static_cast<float>(1.0 - values.learning_rate * options_.weight_decay),
                .m_weight = static_cast<float>(1.0 - options_.beta1),
                .v_decay = static_cast<float>(options_.beta2),
                .v_weight = static_cast<float>(1.0 - options_.beta2),
                .v_correction = static_cast<float>(std::sqrt(correction2)),
                .epsilon = static_cast<float>(options_.epsilon),
                .step = static_cast<float>(-(values.learning_rate / correction1))};
    }

    AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
    const OptionCheck check("adamw");
    check.is_decay("beta1", options.beta1);
    check.is_decay("beta2", options.beta2);
    check.is_positive_as_fp32("epsilon", options.epsilon);  // padding has m = v = 0: without it, 0/0
    check.is_not_negative("weight_decay", options.weight_decay);
    return std::make_unique<AdamW>(options);
}

}  // namespace penstock
