#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/option_check.h"

#include <fmt/format.h>

namespace penstock::zero {
namespace {

class Lion final : public Optimizer {
   public:
    explicit Lion(const LionOptions& options) : options_(options) {}

    std::string name() const override { return "lion"; }
    std::string options() const override {
        return fmt::format("betas {} and {}, weight decay {}", options_.beta1, options_.beta2, options_.weight_decay);
    }
    std::uint32_t moments() const noexcept override { return 1; }
    MomentKind moment_kind(std::uint32_t) const noexcept override { return MomentKind::any_sign; }

    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        kernels().lion.decoded(factors(values), span);
    }
    EncodedUpdate update_encoded(const EncodedSpan& span, const StepValues& values) const noexcept override {
        return kernels().lion.encoded(factors(values), span);
    }

   private:
    LionFactors factors(const StepValues& values) const noexcept {
        return {.decay = static_cast<float>(1.0 - values.learning_rate * options_.weight_decay),
                .sign_m_weight = static_cast<float>(options_.beta1),
                .sign_g_weight = static_cast<float>(1.0 - options_.beta1),
                .m_decay = static_cast<float>(options_.beta2),
                .m_weight = static_cast<float>(1.0 - options_.beta2),
                .step = static_cast<float>(-values.learning_rate)};
    }

    LionOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(const LionOptions& options) {
    const OptionCheck check("lion");
    check.is_decay("beta1", options.beta1);
    check.is_decay("beta2", options.beta2);
    check.is_not_negative("weight_decay", options.weight_decay);
    return std::make_unique<Lion>(options);
}

}  // namespace penstock::zero
