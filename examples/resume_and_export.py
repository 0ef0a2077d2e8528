"""A training that is stopped goes on, and its weights become an ordinary directory of Hugging Face's.

    python examples/resume_and_export.py /nvme/export

prints

    stopped at step 3
    goes on at step 3
    exported; transformers reads 4 layers, and the weights are equal: True

and, run again

    stopped at step 9
    goes on at step 9
"""
import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import penstock

place = sys.argv[1] if len(sys.argv) > 1 else "example-export"
os.makedirs(place, exist_ok=True)


def opened():
    """The same model and optimizer each time; the store knows how far they are."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=64, n_layer=4, n_head=4, n_positions=32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return penstock.initialize(model, optimizer, store=f"{place}/store")[0]


def train(engine):
    for _ in range(3):
        tokens = torch.randint(0, 64, (4, 16))
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


with opened() as engine:
    train(engine)
    print(f"stopped at step {engine.global_steps}")
with opened() as engine:
    print(f"goes on at step {engine.global_steps}")
    train(engine)
    exported = f"{place}/model-{engine.global_steps}"
    engine.save_pretrained(exported)
    weights = {name: each.clone() for name, each in engine.state_dict().items()}
model = GPT2LMHeadModel.from_pretrained(exported)
equal = all(torch.equal(each, weights[name]) for name, each in model.state_dict().items())
print(f"exported; transformers reads {len(model.transformer.h)} layers, and the weights are equal: {equal}")
