"""A model from a directory of Hugging Face's is trained in less memory than its weights take. Run again it goes on.

    python examples/larger_than_memory.py /nvme/large [MODEL]

prints, without a MODEL

    0 steps so far
    step 1, loss ...
    step 2, loss ...
    weights: 404 MB, with gradients and moments of AdamW: 1,615 MB
    beyond Python, torch and transformers: ... MB, less than the weights: True

and, run again

    2 steps so far
"""
import multiprocessing
import sys
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import penstock

place = Path(sys.argv[1] if len(sys.argv) > 1 else "example-large")
directory = Path(sys.argv[2] if len(sys.argv) > 2 else place / "model")


def make():  # what stands for a model that you have
    config = LlamaConfig(vocab_size=256, hidden_size=512, intermediate_size=2048, num_hidden_layers=24,
                         num_attention_heads=8, bos_token_id=None, eos_token_id=None)
    LlamaForCausalLM(config).save_pretrained(f"{directory}.new")
    Path(f"{directory}.new").rename(directory)


def peak_bytes():  # the most that this process has had in memory, mapped files included
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024


if not directory.exists():
    maker = multiprocessing.get_context("fork").Process(target=make)  # in memory of its own
    maker.start()
    maker.join()
before = peak_bytes()
with torch.device("meta"):  # no weights yet
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory))
numel = sum(each.numel() for each in model.parameters())
store = penstock.Store(place / "store", host_budget_bytes=128 << 20, gradients="nvme")
with penstock.initialize(model, store=store, weights=directory)[0] as engine:
    print(f"{engine.global_steps} steps so far")
    for _ in range(2):
        tokens = torch.arange(16)[None]  # your data
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        print(f"step {engine.global_steps}, loss {loss.item():.4f}")
print(f"weights: {numel * 4 / 1e6:,.0f} MB, with gradients and moments of AdamW: {numel * 16 / 1e6:,.0f} MB")
added = peak_bytes() - before
print(f"beyond Python, torch and transformers: {added / 1e6:,.0f} MB, less than the weights: {added < numel * 4}")
