#include "aio/words/check.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/option_check.h"

#include <fmt/format.h>

#include <cmath>

namespace penstock::zero {
namespace {

class Sgd final : public Optimizer {
   public:
    explicit Sgd(const SgdOptions& options) : options_(options) {}

    std::string name() const override { return "sgd"; }
    std::string options() const override {
        return fmt::format("momentum {}, dampening {}, weight decay {}{}", options_.momentum, options_.dampening,
                           options_.weight_decay, options_.nesterov ? ", nesterov" : "");
    }
    std::uint32_t moments() const noexcept override { return options_.momentum == 0 ? 0 : 1; }
    MomentKind moment_kind(std::uint32_t) const noexcept override { return MomentKind::any_sign; }

    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        kernel().decoded(factors(values), span);
    }
    EncodedUpdate update_encoded(const EncodedSpan& span, const StepValues& values) const noexcept override {
        return kernel().encoded(factors(values), span);
    }

   private:
    const UpdateKernel<SgdFactors>& kernel() const noexcept {
        return moments() == 0 ? kernels().sgd : kernels().sgd_momentum;
    }
    SgdFactors factors(const StepValues& values) const noexcept {
        PENSTOCK_CHECK(values.step > 0, "steps count from 1");
        return {.weight_decay = static_cast<float>(options_.weight_decay),
                .momentum = static_cast<float>(options_.momentum),
                .gradient_weight = static_cast<float>(1.0 - options_.dampening),
                .step = static_cast<float>(-values.learning_rate),
                .first_step = values.step == 1,
                .nesterov = options_.nesterov};
    }

    SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) {
    const OptionCheck check("sgd");
    check.is_not_negative("momentum", options.momentum);
    check.is_finite("dampening", options.dampening);
    check.is_not_negative("weight_decay", options.weight_decay);
    if (options.nesterov) {
        check.holds(options.momentum > 0, "momentum", options.momentum, "greater than 0 for nesterov");
        check.holds(options.dampening == 0, "dampening", options.dampening, "0 for nesterov");
    }
    return std::make_unique<Sgd>(options);
}

}  // namespace penstock::zero
