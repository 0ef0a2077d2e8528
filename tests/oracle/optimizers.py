#!/usr/bin/env python3
"""Our optimizers against torch's, step by step, on ordinary and adversarial values.

  tests/oracle/venv.sh                                       # once: .peers/torch
  cmake --build build/release --target optimizer_steps
  .peers/torch/bin/python tests/oracle/optimizers.py [--golden tests/oracle/optimizers.golden]

Two ways to run torch 2.11's optimizers (single tensor, CPU), each in a process of its own:

  rounded    each operation rounded by itself: torch's kernels without vector instructions, which do not fuse
             multiply-add, and numpy's correctly rounded square root in place of its own. 100 steps run freely from the
             same start must end in the same bits, every one of them. This proves the order of operations.
  installed  as a user has it. Each step begins from torch's own state; the largest difference is given in units of the
             last place (ulp) of the largest magnitude that the sum in question had to carry: where two terms
             cancel, an ulp of what is left says nothing. BOUND_ULP must hold.

Lion is not in torch.optim: it is its authors' algorithm (Chen et al. 2023) in torch's tensor operations.
--golden writes what ordinary tests compare with, in `rounded` form; they need no Python.
"""
import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
COUNT = 4096
STEPS = 100
SEED = 20261121
BOUND_ULP = 8

CASES = [
    ("adamw", 1e-3, {}),
    ("adamw", 3e-3, {"beta1": 0.4, "beta2": 0.95, "epsilon": 1e-6, "weight_decay": 0.1}),
    ("adam", 1e-3, {}),
    ("adam", 1e-2, {"beta1": 0.8, "beta2": 0.99, "weight_decay": 0.05}),
    ("sgd", 0.1, {}),
    ("sgd", 0.05, {"momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("sgd", 0.05, {"momentum": 0.9, "nesterov": 1}),
    ("lion", 1e-4, {}),
    ("lion", 3e-3, {"beta1": 0.95, "beta2": 0.98, "weight_decay": 0.1}),
    ("adagrad", 1e-2, {}),
    ("adagrad", 0.1, {"lr_decay": 0.01, "weight_decay": 0.02, "initial_accumulator": 0.1, "epsilon": 1e-8}),
]


def masters(count, random):
    values = random.normal(0, 0.5, count)
    values[1::16] = 0.0
    values[2::16] *= 1e10
    values[3::16] *= 1e-30
    values[4::16] = -0.0
    return values.astype(np.float32)


def gradients(count, step, random):
    """Sixteen kinds of elements, one after the other: ten ordinary, six adversarial."""
    values = random.normal(0, 1e-2, count)
    sign = -1.0 if step % 2 else 1.0
    values[5::16] = 0.0 if step % 3 else -0.0
    values[6::16] = sign * 1e-40  # subnormal
    values[7::16] *= 1e17  # its square is near the end of fp32
    values[8::16] *= 1e-28  # its square is nothing
    values[9::16] = sign * (1 + 2.0**-20)  # alternates: the first moment cancels
    values[10::16] = 1e25 if step == 50 else 0.125  # the second moment overflows for good
    return values.astype(np.float32)


# ------------------------------------------------------------------ torch


def lion_class():
    import torch

    class Lion(torch.optim.Optimizer):
        def __init__(self, params, lr, betas, weight_decay):
            super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                beta1, beta2 = group["betas"]
                for p in group["params"]:
                    m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    direction = m * beta1 + p.grad * (1 - beta1)
                    p.add_(torch.sign(direction), alpha=-group["lr"])
                    m.mul_(beta2).add_(p.grad, alpha=1 - beta2)

    return Lion


def torch_optimizer(name, rate, options, parameter):
    import torch

    options = dict(options)
    decay = options.pop("weight_decay", 0.01 if name == "adamw" else 0)
    if name in ("adamw", "adam"):
        made = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        betas = (options.pop("beta1", 0.9), options.pop("beta2", 0.999))
        eps = options.pop("epsilon", 1e-8)
        result = made([parameter], lr=rate, betas=betas, eps=eps, weight_decay=decay, foreach=False, fused=False)
    elif name == "sgd":
        nesterov = bool(options.pop("nesterov", 0))
        result = torch.optim.SGD([parameter], lr=rate, momentum=options.pop("momentum", 0),
                                 dampening=options.pop("dampening", 0), weight_decay=decay, nesterov=nesterov,
                                 foreach=False, fused=False)
    elif name == "lion":
        betas = (options.pop("beta1", 0.9), options.pop("beta2", 0.99))
        result = lion_class()([parameter], rate, betas, decay)
    else:
        result = torch.optim.Adagrad([parameter], lr=rate, lr_decay=options.pop("lr_decay", 0), weight_decay=decay,
                                     initial_accumulator_value=options.pop("initial_accumulator", 0),
                                     eps=options.pop("epsilon", 1e-10), foreach=False, fused=False)
    assert not options, options
    return result


STATE_NAMES = {"adamw": ["exp_avg", "exp_avg_sq"], "adam": ["exp_avg", "exp_avg_sq"], "sgd": ["momentum_buffer"],
               "lion": ["exp_avg"], "adagrad": ["sum"]}


def moment_names(name, options):
    return STATE_NAMES[name] if name != "sgd" or options.get("momentum", 0) else []


def torch_run(name, rate, options, start, all_gradients):
    """States before step 1 and after each step: [step][array], arrays being masters, then moments."""
    import torch

    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = torch_optimizer(name, rate, options, parameter)
    names = moment_names(name, options)
    first = np.float32(options.get("initial_accumulator", 0))
    states = [[start.copy()] + [np.full_like(start, first) for _ in names]]
    for gradient in all_gradients:
        parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
        own = optimizer.state[parameter]
        states.append([parameter.detach().numpy().copy()] + [own[key].numpy().copy() for key in names])
    return states


def torch_half(form, path):
    """In a process of its own: writes all cases' states to `path`."""
    import torch

    torch.set_num_threads(1)
    if form == "rounded":
        assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
        torch.Tensor.sqrt = lambda tensor: torch.from_numpy(np.sqrt(tensor.numpy()))
    arrays = {}
    for index, (name, rate, options) in enumerate(CASES):
        start, all_gradients = inputs(COUNT, STEPS)
        arrays[str(index)] = np.array(torch_run(name, rate, options, start, all_gradients))
    start, all_gradients = inputs(GOLDEN_COUNT, GOLDEN_STEPS)
    for index, (name, rate, options) in enumerate(CASES):
        arrays[f"golden{index}"] = np.array(torch_run(name, rate, options, start, all_gradients))
    np.savez(path, capability=torch.backends.cpu.get_cpu_capability(), **arrays)


def inputs(count, steps):
    random = np.random.default_rng(SEED)
    start = masters(count, random)
    return start, [gradients(count, step, random) for step in range(1, steps + 1)]


def run_torch(form):
    path = ROOT / ".peers" / f"optimizers.{form}.npz"
    environment = dict(os.environ)
    if form == "rounded":
        environment["ATEN_CPU_CAPABILITY"] = "default"
    subprocess.run([sys.executable, __file__, "--torch-half", form, str(path)], check=True, env=environment)
    with np.load(path) as loaded:
        return dict(loaded)


# ------------------------------------------------------------------ ours


def ours(program, mode, case, data, count):
    name, rate, options = case
    words = [f"{key}={value!r}" for key, value in options.items()]
    steps = STEPS
    command = [str(program), mode, str(count), str(steps), repr(rate), name, *words]
    result = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
    arrays = 1 + len(moment_names(name, options))
    return np.frombuffer(result, np.float32).reshape(steps, arrays, count)


def same_bits(a, b):
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


def ulp(magnitude):
    return np.spacing(np.minimum(magnitude, np.finfo(np.float32).max / 4).astype(np.float32)).astype(np.float64)


def carried(case, step, before, after, gradient):
    """The largest magnitude in the sums that made each array, or in what went into them."""
    name, rate, options = case
    with np.errstate(all="ignore"):
        old, new, g = np.abs(before.astype(np.float64)), np.abs(after.astype(np.float64)), np.abs(gradient.astype(np.float64))
        magnitudes = np.maximum(old, new)
        g = np.maximum(g, options.get("weight_decay", 0) * old[0]) if name not in ("adamw", "lion") else g
        if name in ("adamw", "adam"):
            beta1, beta2 = options.get("beta1", 0.9), options.get("beta2", 0.999)
            magnitudes[1] = np.maximum(magnitudes[1], g if 1 - beta1 >= 0.5 else (1 - beta1) * g)
            magnitudes[2] = np.maximum(magnitudes[2], (1 - beta2) * g**2)
            root = np.sqrt(new[2]) / np.sqrt(1 - beta2**step) + options.get("epsilon", 1e-8)
            moved = rate / (1 - beta1**step) * magnitudes[1] / root
            magnitudes[0] = np.maximum(magnitudes[0], moved)
        elif name == "sgd":
            if len(magnitudes) > 1:
                magnitudes[1] = np.maximum(magnitudes[1], g)
                g = np.maximum(g, magnitudes[1])
            magnitudes[0] = np.maximum(magnitudes[0], rate * g)
        elif name == "adagrad":
            magnitudes[1] = np.maximum(magnitudes[1], g**2)
            root = np.sqrt(new[1]) + options.get("epsilon", 1e-10)
            magnitudes[0] = np.maximum(magnitudes[0], rate * g / root)
    return magnitudes


def compare_installed(program, case, states):
    start, all_gradients = inputs(COUNT, STEPS)
    del start
    data = b"".join(states[step].tobytes() + all_gradients[step].tobytes() for step in range(STEPS))
    mine = ours(program, "each", case, data, COUNT)
    theirs = states[1:]
    identical = same_bits(mine, theirs)
    worst = np.zeros(mine.shape[1])
    for step in range(STEPS):
        scale = ulp(carried(case, step + 1, states[step], theirs[step], all_gradients[step]))
        with np.errstate(all="ignore"):
            difference = np.abs(mine[step].astype(np.float64) - theirs[step].astype(np.float64)) / scale
        difference[identical[step]] = 0
        worst = np.maximum(worst, np.nan_to_num(difference, nan=np.inf).max(axis=1))
    return identical.mean(axis=(0, 2)), worst


def compare_rounded(program, case, states):
    start, all_gradients = inputs(COUNT, STEPS)
    mine = ours(program, "free", case, start.tobytes() + b"".join(g.tobytes() for g in all_gradients), COUNT)
    return same_bits(mine, states[1:]).mean()


# ------------------------------------------------------------------ golden values

GOLDEN_COUNT = 16
GOLDEN_STEPS = 6
GOLDEN_SHOWN = (1, GOLDEN_STEPS)


def hexadecimal(values):
    return " ".join(f"{bits:08x}" for bits in values.view(np.uint32))


def write_golden(path, rounded):
    start, all_gradients = inputs(GOLDEN_COUNT, GOLDEN_STEPS)
    lines = ["# What torch 2.11.0 does when each operation is rounded by itself, as bits of fp32.",
             "# Written by tests/oracle/optimizers.py --golden; read by tests/zero_infinity/optimizer/optimizers_golden_test.cpp.",
             f"start {hexadecimal(start)}"]
    lines += [f"gradient {hexadecimal(gradient)}" for gradient in all_gradients]
    for index, (name, rate, options) in enumerate(CASES):
        lines.append(" ".join(["case", name, repr(rate), *(f"{key}={value!r}" for key, value in options.items())]))
        for step in GOLDEN_SHOWN:
            for number, array in enumerate(rounded[f"golden{index}"][step]):
                lines.append(f"after {step} {number} {hexadecimal(array)}")
    Path(path).write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=ROOT / "build/release/optimizer_steps")
    parser.add_argument("--golden")
    parser.add_argument("--torch-half", nargs=2)
    arguments = parser.parse_args()
    if arguments.torch_half:
        torch_half(*arguments.torch_half)
        return 0
    rounded, installed = run_torch("rounded"), run_torch("installed")
    if arguments.golden:
        write_golden(arguments.golden, rounded)
    print(f"{COUNT} elements, {STEPS} steps, seed {SEED}; installed: capability {installed['capability']}")
    print("rounded: share of bits equal after each of the steps, run freely")
    print(f"installed: per step from torch's state, share of equal bits and largest ulp (bound {BOUND_ULP}); p, moments")
    failed = False
    for index, case in enumerate(CASES):
        share = compare_rounded(arguments.program, case, rounded[str(index)])
        shares, worst = compare_installed(arguments.program, case, installed[str(index)])
        bad = share != 1 or worst.max() > BOUND_ULP
        failed |= bad
        options = " ".join(f"{key}={value}" for key, value in case[2].items()) or "defaults"
        print(f"{'WRONG' if bad else 'ok':5} {case[0]:8} {options}\n"
              f"      rounded {share:.6f}; installed equal {np.array2string(shares, precision=4)}, "
              f"ulp {np.array2string(worst, precision=2)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
