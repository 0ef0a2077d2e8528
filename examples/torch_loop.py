"""A loop of plain torch, with the model on a drive. Each step is kept: run again it goes on, also when it was killed.

    python examples/torch_loop.py /nvme/loop

prints

    0 steps so far
    step 1, loss 2.9...
    step 5, loss ...
    5 steps are kept in /nvme/loop

and, run again

    5 steps so far
    step 6, loss ...
"""
import sys

import torch
from torch import nn
from torch.nn import functional as F

import penstock

place = sys.argv[1] if len(sys.argv) > 1 else "example-loop"


class Reader(nn.Module):
    """Nothing is said about its structure: the layers of a list come to memory one after the other."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 64)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(4))
        self.head = nn.Linear(64, 16)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.manual_seed(0)
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
with penstock.initialize(model, optimizer, store=place)[0] as engine:
    print(f"{engine.global_steps} steps so far")
    for _ in range(5):
        tokens = torch.randint(0, 16, (4, 12))
        loss = F.cross_entropy(engine(tokens).flatten(0, 1), tokens.flatten())
        engine.backward(loss)
        engine.step()
        if engine.global_steps % 5 in (0, 1):
            print(f"step {engine.global_steps}, loss {loss.item():.4f}")
print(f"{engine.global_steps} steps are kept in {place}")
