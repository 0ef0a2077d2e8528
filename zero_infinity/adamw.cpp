#include "aio/check.h"
#include "aio/error.h"
#include "zero_infinity/kernels.h"
#include "zero_infinity/optimizer.h"

#include <fmt/format.h>

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

// Written so that NaN fails too.
void require(bool holds, const char* name, double value, const char* range) {
    if (!holds)
        throw Error(ExitCode::usage, fmt::format("optimizer adamw: {} is {}; it must be {}", name, value, range));
}

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) {
    require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "at least 0 and less than 1");
    require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "at least 0 and less than 1");
    // Padding has m = v = 0: without an epsilon it would become 0/0.
    require(static_cast<float>(options.epsilon) > 0 && std::isfinite(options.epsilon), "epsilon", options.epsilon,
            "finite and, rounded to fp32, greater than 0");
    require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay", options.weight_decay,
            "finite and at least 0");
    return std::make_unique<AdamW>(options);
}

}  // namespace penstock
