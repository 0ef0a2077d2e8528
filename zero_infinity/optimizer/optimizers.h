// The optimizers that come with the library. Each is defined here in full, in the order of operations of its source.
//
// For all: lr is StepValues::learning_rate, t its step, g the gradient, p the master. The factors of a step are
// computed in double and rounded to fp32 once (pow and sqrt are the C library's); each element is updated in fp32,
// every operation rounded to nearest by itself, in the order of the parentheses. AVX-512, AVX2 and baseline twins are
// bit-identical and chosen at run time. "torch" is torch 2.11, the single-tensor form of torch.optim on a CPU: the same
// bits when its kernels round each operation by themselves, too. As installed they do not on all processors: they fuse
// multiply-add where the processor has it, and their sqrt is not always correctly rounded; then last bits differ.
// tests/oracle/optimizers.py measures both.
// Not taken from torch: amsgrad, maximize, an epsilon of 0, and a schedule of a group's own beside its factor.
// Makers throw Error (usage) naming the option that makes no sense.
#pragma once

#include "zero_infinity/optimizer/optimizer.h"

#include <memory>

namespace penstock::zero {

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

// AdamW, Loshchilov and Hutter 2019, Algorithm 2, as torch.optim.AdamW. Moments m and v. The factors of a step are
//   decay = 1 - lr*wd,  w1 = 1 - b1,  b2,  w2 = 1 - b2,  c2 = sqrt(1 - pow(b2, t)),  eps,  s = -(lr / (1 - pow(b1, t)))
// and each element becomes
//   m = m + (w1 * (g - m))              for w1 < 0.5, else  m = g - ((g - m) * (1 - w1)),  as torch.lerp
//   v = (v * b2) + ((w2 * g) * g)
//   p = (p * decay) + ((s * m) / ((sqrt(v) / c2) + eps))
// Weight decay applies to every element.
// REQUIRES (else Error): 0 <= beta < 1, weight_decay >= 0, epsilon positive as fp32: padding has g = v = 0, and 0/0 is
// not a number.
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

struct AdamOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
};

// Adam, Kingma and Ba 2015, Algorithm 1, with an L2 penalty, as torch.optim.Adam: what AdamW does to m and v, and
//   g = g + (wd * p)                    first, unless wd is 0
//   p = p + ((s * m) / ((sqrt(v) / c2) + eps))
// REQUIRES (else Error): as AdamW.
std::unique_ptr<Optimizer> make_adam(const AdamOptions& options);

struct SgdOptions {
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;
    bool nesterov = false;
};

// Stochastic gradient descent with momentum as torch.optim.SGD. One moment, the momentum buffer b; none when momentum
// is 0. With u = 1 - dampening and s = -lr:
//   g = g + (wd * p)                    unless wd is 0
//   b = (b * momentum) + (u * g)        and b = g at t = 1, without dampening
//   d = b, or g + (momentum * b) with nesterov, or g without momentum
//   p = p + (s * d)
// REQUIRES (else Error): 0 <= momentum, 0 <= weight_decay, dampening finite; nesterov needs a momentum and no
// dampening.
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);

struct LionOptions {
    double beta1 = 0.9;
    double beta2 = 0.99;
    double weight_decay = 0;
};

// Lion, Chen et al. 2023 (Symbolic Discovery of Optimization Algorithms), Algorithm 2, in the order of operations of
// its authors' PyTorch code. One moment m. With decay = 1 - lr*wd, w1 = 1 - b1, w2 = 1 - b2 and s = -lr:
//   c = (m * b1) + (g * w1)
//   p = (p * decay) + (s * sign(c))     sign of 0 is 0
//   m = (m * b2) + (w2 * g)
// REQUIRES (else Error): 0 <= beta < 1, weight_decay >= 0.
std::unique_ptr<Optimizer> make_lion(const LionOptions& options);

struct AdagradOptions {
    double lr_decay = 0;
    double weight_decay = 0;
    double initial_accumulator = 0;  // initial_accumulator_value of torch
    double epsilon = 1e-10;
};

// Adagrad, Duchi et al. 2011, as torch.optim.Adagrad. One moment, the sum of squares v, which starts at
// initial_accumulator. With s = -(lr / (1 + (t - 1)*lr_decay)):
//   g = g + (wd * p)                    unless wd is 0
//   v = v + (g * g)
//   p = p + ((s * g) / (sqrt(v) + eps))
// REQUIRES (else Error): lr_decay, weight_decay and initial_accumulator >= 0, epsilon positive as fp32.
std::unique_ptr<Optimizer> make_adagrad(const AdagradOptions& options);

}  // namespace penstock::zero
