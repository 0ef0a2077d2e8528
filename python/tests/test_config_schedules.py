"""DeepSpeed's schedulers: shapes here; the same numbers as DeepSpeed's own are tests/oracle/schedules.py's."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from penstock.configuration.config import read_config

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "oracle" / "schedules.golden"
CASES = json.loads(GOLDEN.read_text())["cases"]


def course(kind, params, steps, optimizer="AdamW", lr=0.01):
    own = {"type": optimizer, "params": {"lr": lr}}
    config = read_config({"optimizer": own, "scheduler": {"type": kind, "params": params}})
    made = config.optimizer([torch.zeros(1, requires_grad=True)])
    scheduler = config.scheduler(made)
    told = []
    for _ in range(steps):
        group = made.param_groups[0]
        told.append([group["lr"], group["betas"][0] if "betas" in group else None])
        made.step()
        scheduler.step()
    return told


@pytest.mark.parametrize("case", CASES, ids=lambda each: each["name"])
def test_rates_are_deepspeeds(case):
    found = course(case["type"], case["params"], len(case["course"]), case["optimizer"])
    assert found == case["course"]


def test_a_resumed_schedule_goes_on():
    params = {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "cycle_first_step_size": 3}
    config = read_config({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "OneCycle", "params": params}})
    kept = None
    for resumed in (False, True):
        made = config.optimizer([torch.zeros(1, requires_grad=True)])
        scheduler = config.scheduler(made)
        if resumed:
            scheduler.load_state_dict(json.loads(kept))
            assert made.param_groups[0]["betas"] == expected
        else:
            for _ in range(2):
                made.step()
                scheduler.step()
            kept, expected = json.dumps(scheduler.state_dict()), made.param_groups[0]["betas"]
            following = scheduler.rate(2, 0.01)
    made.step()
    scheduler.step()
    assert scheduler.get_last_lr() == [following]
