"""Programs that were written for DeepSpeed. They have a process of their own, because its first line decides what
`import deepspeed` is: PYTHONPATH=python .peers/python/bin/python -m pytest --rootdir tests/deepspeed tests/deepspeed."""
import penstock.deepspeed  # noqa: F401  the first line

import json
import logging
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "python/tests"))
from cores import round_each_operation  # noqa: E402

torch.set_num_threads(1)
round_each_operation()


class Model(nn.Module):
    """Gives its loss."""

    def __init__(self, width=16, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x, y):
        for each in self.blocks:
            x = torch.tanh(each(x))
        return (x * self.scale - y).square().mean()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture
def data():
    chance = torch.Generator().manual_seed(1)
    return [(torch.randn(16, generator=chance), torch.randn(16, generator=chance)) for _ in range(24)]


@pytest.fixture
def configuration(tmp_path):
    """A function of its sections: AdamW, two micro-batches of four rows."""
    def made(**sections):
        return {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.0}}, **sections}
    return made


@pytest.fixture
def written(tmp_path):
    """A file of JSON."""
    def made(configuration):
        path = tmp_path / "ds_config.json"
        path.write_text(json.dumps(configuration))
        return str(path)
    return made


@pytest.fixture(autouse=True)
def no_leftovers():
    yield
    for name in ("penstock", "penstock.deepspeed"):
        logging.getLogger(name).setLevel(logging.NOTSET)
