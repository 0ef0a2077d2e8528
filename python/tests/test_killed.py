"""Processes that are killed at any instant and started again: the bits of the one that was not."""
from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch

import penstock

from cores import NATIVE, WAYS
from penstock.weights.bits import same_bits
from resumed import SCHEDULERS, life, start

HERE = Path(__file__).resolve().parent
STEPS = 12
SEED = int(os.environ.get("PENSTOCK_SEED") or random.SystemRandom().randrange(10**6))


@pytest.fixture(scope="module")
def server():
    """Processes come from one that has imported torch, and nothing else."""
    paths = [os.environ.get("PENSTOCK_PACKAGE_AT", str(HERE.parent)), str(HERE), os.environ.get("PYTHONPATH", "")]
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["resumed"])
        context.Process(target=int).start()
        yield context
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def live(server, folder: Path, how: tuple, seconds: float | None = None) -> float:
    """Until it is killed after so many seconds, or to its end; how long that took."""
    folder.mkdir(exist_ok=True, parents=True)
    began = time.monotonic()
    process = server.Process(target=life, args=(folder, *how))
    process.start()
    process.join(seconds if seconds is not None else 300)
    if process.is_alive():
        assert seconds is not None, "it does not come to its end"
        process.kill()
        process.join()
    assert process.exitcode in (0, -9), (how, process.exitcode)
    return time.monotonic() - began


def losses(folder: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in (folder / "losses").read_text().splitlines():
        if len(line.split()) == 2:  # a kill may cut the last one
            found.setdefault(line.split()[0], set()).add(line.split()[1])
    return found


def check(server, folder: Path, how: tuple, kills: int, chance: random.Random) -> None:
    whole, parts = folder / "whole", folder / "parts"
    took = live(server, whole, how)
    for _ in range(kills):
        live(server, parts, how, chance.random() * took)
        if (parts / "end.pt").exists():  # it came to its end before: from the beginning
            same_end(whole, parts)
            shutil.rmtree(parts)
    live(server, parts, how)
    same_end(whole, parts)
    order, store = (None, None) if how[1] is None else ("after_backward", {})
    engine = start(folder / "other", how[0], order, penstock.Settings(how[2]), store)
    place, state = engine.load_checkpoint(parts / "checkpoints")
    assert place == str(parts / "checkpoints" / "best") and engine.global_steps % 2 == 0 and "losses" in state


def same_end(whole: Path, parts: Path) -> None:
    expected, found = losses(whole), losses(parts)
    # A step may be committed and its loss not yet written.
    differing = {step: each for step, each in found.items() if each != expected[step]}
    assert not differing and len(found) > STEPS // 2, f"seed {SEED}: {differing}"
    a, b = (torch.load(each / "end.pt", weights_only=True) for each in (whole, parts))
    assert a.keys() == b.keys() and all(same_bits(a[name], b[name]) for name in a), f"seed {SEED}"


KINDS = [("own", None, 1), ("multi_step", None, 2)] if not NATIVE else [
    ("plateau", "deferred", 1), ("sequence", "within", 2), ("own", "after_backward", 1)]


@pytest.mark.parametrize("how", KINDS, ids=lambda how: "-".join(map(str, how)))
def test_killed_and_started_again_it_ends_with_the_same_bits(how, server, tmp_path):
    check(server, tmp_path, (*how, STEPS), 3, random.Random(f"{SEED} {how}"))


@pytest.mark.long
def test_killed_fifty_times_with_every_scheduler_in_every_order(server, tmp_path):
    orders = list(WAYS) if NATIVE else [None]
    chance, kills = random.Random(SEED), 0
    for at, name in enumerate(SCHEDULERS):
        order = orders[at % len(orders)]
        commit_steps = 3 if order in ("after_backward", "deferred") and at % 2 else 1
        check(server, tmp_path / name, (name, order, 1 + at % 2, STEPS, commit_steps), 3, chance)
        kills += 3
    assert kills >= 50
