"""A model that is larger than memory answers: its layers come from where its weights lie, and nothing is trained.

    python examples/generate.py /nvme/generate

prints

    12 tokens, the same as with all weights in memory: True
"""
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import penstock

place = sys.argv[1] if len(sys.argv) > 1 else "example-generate"
torch.manual_seed(0)
config = GPT2Config(vocab_size=64, n_embd=64, n_layer=4, n_head=4, n_positions=32)
GPT2LMHeadModel(config).save_pretrained(f"{place}/model")  # stands for a model that you have
prompt = torch.tensor([[1, 2, 3, 4]])

with torch.device("meta"):  # no weights yet
    model = GPT2LMHeadModel(GPT2Config.from_pretrained(f"{place}/model"))
model.requires_grad_(False).eval()
engine, *_ = penstock.initialize(model, weights=f"{place}/model")
with torch.no_grad():
    answer = engine.module.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)

plain = GPT2LMHeadModel.from_pretrained(f"{place}/model").eval()
expected = plain.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
print(f"{answer.shape[1]} tokens, the same as with all weights in memory: {torch.equal(answer, expected)}")
