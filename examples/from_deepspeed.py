"""A program that was written for DeepSpeed. Its first line is the only new one.

    python examples/from_deepspeed.py /nvme/deepspeed

prints

    DeepSpeedEngine of stage 3, 8 rows a step
    step 6, loss ...
    saved, and loaded: {'step': 6}
"""
import penstock.deepspeed  # noqa: F401  the only new line

import sys

import deepspeed
import torch
from torch import nn

place = sys.argv[1] if len(sys.argv) > 1 else "example-deepspeed"
configuration = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}},
    "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": f"{place}/swap"},
                          "offload_optimizer": {"device": "nvme", "nvme_path": f"{place}/swap"}}}


class Squares(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x, y):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return (x - y).square().mean()


torch.manual_seed(0)
data = [(torch.randn(32), torch.randn(32)) for _ in range(48)]
model = Squares()
model_engine, optimizer, loader, scheduler = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=data, config=configuration)
print(f"{type(model_engine).__name__} of stage {model_engine.zero_optimization_stage()}, "
      f"{model_engine.train_batch_size()} rows a step")
for x, y in loader:
    loss = model_engine(x, y)
    model_engine.backward(loss)
    model_engine.step()
print(f"step {model_engine.global_steps}, loss {loss.item():.4f}")
model_engine.save_checkpoint(f"{place}/checkpoints", client_state={"step": model_engine.global_steps})
_, client_state = model_engine.load_checkpoint(f"{place}/checkpoints")
print(f"saved, and loaded: {client_state}")
