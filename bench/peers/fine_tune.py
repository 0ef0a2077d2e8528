#!/usr/bin/env python3
"""Steps of a Hugging Face model with parameters and optimizer states on NVMe, by Penstock's Python package or by its peer.

  bench/peers/venv.sh && .peers/deepspeed/bin/python -m pip install transformers==5.23.0     # once: .peers/deepspeed
  PYTHONPATH=python .peers/deepspeed/bin/python bench/peers/fine_tune.py penstock --dir /nvme/try --steps 20
  .peers/deepspeed/bin/python bench/peers/fine_tune.py deepspeed --dir /nvme/try --steps 20
  .peers/deepspeed/bin/python bench/peers/fine_tune.py plain --dir /nvme/try --steps 3   # torch alone, without an update

Same shape, same random weights (a seed), same tokens, AdamW without weight decay, clipping at 1 (--clip), one process on the CPU. All of
them with memory that torch frees kept by glibc, as `penstock train` has it (trainer/environment.cpp).
Prints a line of JSON per step and one at the end: median seconds, peak resident memory of the process, losses.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

SHAPES = {  # of Qwen2: hidden, layers, heads, key-value heads, intermediate, vocabulary
    "0.5b": (896, 24, 14, 2, 4864, 151936),  # 494 M parameters, as Qwen2.5-0.5B
    "1.5b": (1536, 28, 12, 2, 8960, 151936),
    "3b": (2048, 36, 16, 2, 11008, 151936),  # 3.1 B, as Qwen2.5-3B
    "7b": (3584, 28, 28, 4, 18944, 152064),  # 7.6 B, whose head has weights of its own
    "0.36b": (1024, 24, 16, 16, 2816, 50304),
    "0.1b": (512, 12, 8, 2, 2816, 50304),
    "tiny": (64, 4, 4, 2, 256, 1000),
}


def configuration(shape, tokens):
    from transformers import Qwen2Config

    hidden, layers, heads, key_value, intermediate, vocabulary = SHAPES[shape]
    return Qwen2Config(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                       num_key_value_heads=key_value, intermediate_size=intermediate, vocab_size=vocabulary,
                       max_position_embeddings=max(tokens, 128), tie_word_embeddings=shape != "7b", attn_implementation="sdpa")


def model_of(options):
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    dtype = torch.bfloat16 if options.bf16 else torch.float32
    return AutoModelForCausalLM.from_config(configuration(options.shape, options.tokens), dtype=dtype)


def place_of(options):
    """Where torch computes."""
    return options.device if options.device.startswith("cuda") else "cpu"


class Torch:
    """All of it in the memory of the device that computes, its update too."""

    def __init__(self, options):
        import torch

        self.model = model_of(options).to(place_of(options))
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr, weight_decay=0.0)
        self.clip, self.limit = torch.nn.utils.clip_grad_norm_, options.clip

    def __call__(self, **batch):
        return self.model(**batch)

    def backward(self, loss):
        loss.backward()

    def step(self):
        if self.limit:
            self.clip(self.model.parameters(), self.limit)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Plain:
    """Forward and backward in memory, layers recomputed as the others do, no update: what torch itself takes."""

    def __init__(self, options):
        self.model = model_of(options).to(place_of(options))
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.kept_bytes = 2 * sum(each.nbytes for each in self.model.parameters())  # weights and gradients

    def __call__(self, **batch):
        return self.model(**batch)

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.model.zero_grad()


def print_plan(model, optimizer, store, settings, options):
    import torch

    import penstock

    ids = torch.randint(0, SHAPES[options.shape][5], (1, options.tokens))
    begin = time.perf_counter()
    told = penstock.plan(model, store=store, optimizer=optimizer, settings=settings,
                         batch={"input_ids": ids, "labels": ids, "use_cache": False})
    print(told, file=sys.stderr)
    print(json.dumps({"planned_seconds": round(told.forecast.step.seconds, 3),
                      "planned_forward": round(told.forecast.step.forward_s, 3),
                      "planned_backward": round(told.forecast.step.backward_s, 3),
                      "planned_in": round(time.perf_counter() - begin, 1)}), flush=True)


def ready_for_penstock(options):
    import torch

    import penstock

    with penstock.zero.Init(options.dir):  # its weights are never all in memory
        model = model_of(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.0)
    store = penstock.Store(os.path.join(options.dir, "penstock"), host_budget_bytes=options.budget,
                           weights=options.tier, states=options.tier, commit_steps=options.commit_steps,
                           update_order=options.update_order,
                           device=options.device,
                           device_budget_bytes=256 << 20 if options.device == "emulated" else 0)
    settings = penstock.Settings(clip=options.clip, activations=options.activations,
                                 graph_budget_bytes=options.graph_budget)
    if options.plan:
        print_plan(model, optimizer, store, settings, options)
    engine, _, _, _ = penstock.initialize(model, optimizer, store=store, settings=settings)
    print(engine.core.memory_table(), file=sys.stderr)
    return engine


def ready_for_deepspeed(options):
    os.environ.update(DS_ACCELERATOR="cpu", USE_LIBUV="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29500 + os.getpid() % 1000))
    import deepspeed
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    place = {"device": "nvme", "nvme_path": options.dir, "pin_memory": False} if options.tier == "nvme" else \
        {"device": "cpu", "pin_memory": False}
    config = {
        "train_micro_batch_size_per_gpu": 1, "gradient_clipping": options.clip, "bf16": {"enabled": options.bf16},
        "zero_optimization": {
            "stage": 3, "offload_param": {**place, "buffer_count": options.buffers, "buffer_size": 140_000_000},
            "offload_optimizer": {**place, "buffer_count": 5}, "sub_group_size": 100_000_000,
            "stage3_max_live_parameters": 150_000_000, "stage3_prefetch_bucket_size": 20_000_000,
            "stage3_param_persistence_threshold": 10_000},
        "aio": {"block_size": 1048576, "queue_depth": 16, "thread_count": 1, "single_submit": False,
                "overlap_events": True},
        "zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True,
    }
    model = model_of(options)
    optimizer = DeepSpeedCPUAdam(model.parameters(), lr=options.lr, weight_decay=0.0)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def peak_rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


MEMORY = "glibc.malloc." + ":glibc.malloc.".join((
    "hugetlb=1", "mmap_threshold=1073741824", "trim_threshold=1099511627776", "top_pad=67108864"))


def main():
    if "GLIBC_TUNABLES" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GLIBC_TUNABLES": MEMORY})
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=["penstock", "deepspeed", "torch", "plain"])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="0.5b")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=int, default=0, help="of Penstock's pool, in bytes; 0: what its plan takes")
    parser.add_argument("--tier", choices=["nvme", "cpu"], default="nvme")
    parser.add_argument("--commit-steps", type=int, default=1)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--update-order", default="after_backward", help="of Penstock")
    parser.add_argument("--activations", choices=["auto", "recompute", "keep"], default="recompute", help="of Penstock")
    parser.add_argument("--graph-budget", type=int, help="bytes of graphs that are kept; without it all are")
    parser.add_argument("--device", default="cpu", help="of all but DeepSpeed: cpu, cuda")
    parser.add_argument("--buffers", type=int, default=22, help="of DeepSpeed's, each as large as the largest parameter: "
                        "with 40 in fp32 it is killed where there are 24 GB")
    parser.add_argument("--plan", action="store_true", help="of Penstock: what penstock.plan() says of its steps, first")
    parser.add_argument("--fp32", dest="bf16", action="store_false")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    os.makedirs(options.dir, exist_ok=True)
    begin = time.perf_counter()
    engine = {"penstock": ready_for_penstock, "deepspeed": ready_for_deepspeed, "torch": Torch, "plain": Plain
              }[options.engine](options)
    opened = time.perf_counter() - begin
    generator = torch.Generator().manual_seed(7)
    place = place_of(options)
    batches = [torch.randint(0, SHAPES[options.shape][5], (1, options.tokens), generator=generator).to(place)
               for _ in range(4)]
    losses, seconds = [], []
    for step in range(options.steps):
        ids = batches[step % len(batches)]
        begin = time.perf_counter()
        loss = engine(input_ids=ids, labels=ids, use_cache=False).loss
        forward = time.perf_counter() - begin
        engine.backward(loss)
        backward = time.perf_counter() - begin - forward
        engine.step()
        if place != "cpu":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
        print(json.dumps({"step": step + 1, "loss": losses[-1], "seconds": round(seconds[-1], 3),
                          "forward": round(forward, 3), "backward": round(backward, 3)}), flush=True)
    kept = engine.core.info().pool_bytes if options.engine == "penstock" else getattr(engine, "kept_bytes", 0)
    print(json.dumps({"engine": options.engine, "shape": options.shape, "tokens": options.tokens, "tier": options.tier,
                      "opened_seconds": round(opened, 1), "median_seconds": round(statistics.median(seconds[1:]), 3),
                      "tokens_per_second": round(options.tokens / statistics.median(seconds[1:]), 1),
                      "peak_rss_mib": peak_rss() >> 20, "beside_pool_or_model_mib": (peak_rss() - kept) >> 20,
                      "kept_graphs_mib": engine.activations.peak_bytes >> 20 if options.engine == "penstock" else None,
                      "losses": losses}))


if __name__ == "__main__":
    main()
