// The factors of one step of an optimizer, rounded to fp32: what its kernel needs beside the arrays. optimizers.h says
// how they are computed. Internal to the core.
#pragma once

namespace penstock::zero {

// Of Adam and AdamW, which decay the weights in ways of their own.
struct AdamFactors {
    float decay;         // AdamW: 1 - lr*wd, of the master; Adam: wd, of the master that is added to the gradient
    float m_weight;      // 1 - beta1
    float v_decay;       // beta2
    float v_weight;      // 1 - beta2
    float v_correction;  // sqrt(1 - beta2^t)
    float epsilon;
    float step;  // -lr / (1 - beta1^t)
};

struct SgdFactors {
    float weight_decay;
    float momentum;
    float gradient_weight;  // 1 - dampening
    float step;             // -lr
    bool first_step;        // the momentum buffer is the gradient
    bool nesterov;
};

struct LionFactors {
    float decay;          // 1 - lr*wd
    float sign_m_weight;  // beta1
    float sign_g_weight;  // 1 - beta1
    float m_decay;        // beta2
    float m_weight;       // 1 - beta2
    float step;           // -lr
};

struct AdagradFactors {
    float weight_decay;
    float epsilon;
    float step;  // -lr / (1 + (t - 1)*lr_decay)
};

}  // namespace penstock::zero
