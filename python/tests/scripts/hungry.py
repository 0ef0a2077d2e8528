"""A script of a user's whose graphs are many times its weights. `hungry.py WORD STORE STEPS`; WORD is "torch", or that of
activations. Says what it took and what its weights became."""
import json
import os
import resource
import sys

import torch
from cores import test_core
from torch import nn

import penstock

word, steps = sys.argv[1], int(sys.argv[3])
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(512)), nn.Parameter(torch.randn(512))

    def forward(self, x):
        for _ in range(4):
            x = torch.relu(x * self.scale + self.shift)
        return nn.functional.dropout(x, 0.1)


torch.manual_seed(1)
model = nn.Sequential(*(Block() for _ in range(16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
engine = None
if word != "torch":
    engine, optimizer, _, _ = penstock.initialize(model, optimizer, core=test_core(folder=sys.argv[2]),
                                                  settings=penstock.Settings(activations=word))
losses = []
for step in range(steps):
    loss = model(torch.randn(1 << 12, 512)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
state = model.state_dict() if engine is None else engine.state_dict()
print(json.dumps({
    "losses": losses, "weights": [each.double().sum().item() for each in state.values()],
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "given_up": 0 if engine is None else engine.activations.given_up}))
sys.stdout.flush()
os._exit(0)
