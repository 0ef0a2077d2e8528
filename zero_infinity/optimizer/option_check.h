// How the makers of optimizers refuse an option: by the optimizer's name and the option's. Internal to the core.
#pragma once

namespace penstock::zero {

// Each throws Error (usage) unless the value is as its name says; NaN never is.
class OptionCheck {
   public:
    explicit OptionCheck(const char* optimizer) : optimizer_(optimizer) {}

    void is_decay(const char* option, double value) const;             // at least 0 and less than 1
    void is_finite(const char* option, double value) const;            // in fp32
    void is_not_negative(const char* option, double value) const;      // finite, in fp32 too
    void is_positive_as_fp32(const char* option, double value) const;  // finite, in fp32 too
    void holds(bool condition, const char* option, double value, const char* range) const;

   private:
    const char* optimizer_;
};

}  // namespace penstock::zero
