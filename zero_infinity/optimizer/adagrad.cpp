#include "aio/words/check.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/option_check.h"

#include <fmt/format.h>

namespace penstock::zero {
namespace {

class Adagrad final : public Optimizer {
   public:
    explicit Adagrad(const AdagradOptions& options) : options_(options) {}

    std::string name() const override { return "adagrad"; }
    std::string options() const override {
        return fmt::format("lr_decay {}, weight decay {}, epsilon {}", options_.lr_decay, options_.weight_decay,
                           options_.epsilon);
    }
    std::uint32_t moments() const noexcept override { return 1; }
    MomentKind moment_kind(std::uint32_t) const noexcept override { return MomentKind::growing_sum; }
    float initial_moment(std::uint32_t) const noexcept override {
        return static_cast<float>(options_.initial_accumulator);
    }

    void update(const UpdateSpan& span, const StepValues& values) const noexcept override {
        kernels().adagrad.decoded(factors(values), span);
    }
    EncodedUpdate update_encoded(const EncodedSpan& span, const StepValues& values) const noexcept override {
        return kernels().adagrad.encoded(factors(values), span);
    }

   private:
    AdagradFactors factors(const StepValues& values) const noexcept {
        PENSTOCK_CHECK(values.step > 0, "steps count from 1");
        const double earlier_steps = static_cast<double>(values.step) - 1.0;
        const double rate = values.learning_rate / (1.0 + earlier_steps * options_.lr_decay);
        return {.weight_decay = static_cast<float>(options_.weight_decay),
                .epsilon = static_cast<float>(options_.epsilon),
                .step = static_cast<float>(-rate)};
    }

    AdagradOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options) {
    const OptionCheck check("adagrad");
    check.is_not_negative("lr_decay", options.lr_decay);
    check.is_not_negative("weight_decay", options.weight_decay);
    check.is_not_negative("initial_accumulator", options.initial_accumulator);
    check.is_positive_as_fp32("epsilon", options.epsilon);  // padding may have g = v = 0: without it, 0/0
    return std::make_unique<Adagrad>(options);
}

}  // namespace penstock::zero
