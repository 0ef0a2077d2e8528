"""How a training gets on is told where somebody listens, and never ends it."""
from __future__ import annotations

import io
import logging
import re
import sys
import time

import pytest
import torch

import forked
import penstock
import small_models as small
from cores import NATIVE, OPTIONS, test_core
from penstock.run import progress
from penstock.run.progress import Progress
from penstock.run.step_record import StepRecord


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def train(steps=6, core=None, **settings):
    engine, *_ = penstock.initialize(small.Stack(), core=core or test_core(), settings=penstock.Settings(
        accumulation=2, **settings))
    for micro in range(2 * steps):
        engine.backward(small.loss(engine, small.ids(micro)))
        engine.step()
    return engine


def lines(caplog):
    return [each.getMessage() for each in caplog.records if each.name == "penstock" and "step " in each.getMessage()]


def test_a_line_per_so_many_steps_goes_to_the_logger(caplog):
    caplog.set_level(logging.INFO, "penstock")
    train(steps_per_print=3)
    told = lines(caplog)
    assert [each.split("  ")[0] for each in told] == ["step 3", "step 6"]
    for part in (r"loss \d\.\d{4}", r"lr 0\.001", r"[\d.e-]+ s/step", r"\d+% waiting for NVMe"):
        assert re.search(part, told[1]), told[1]
    assert told[1].endswith("committed 5" if OPTIONS["update_order"] in ("deferred", "balanced") else "committed 6")
    if NATIVE:
        assert "norm" in told[0]


def test_the_loss_is_the_mean_of_the_steps_micro_batches(caplog):
    caplog.set_level(logging.INFO, "penstock")
    engine, *_ = penstock.initialize(small.Stack(), core=test_core(), settings=penstock.Settings(
        accumulation=2, steps_per_print=1))
    losses = []
    for micro in range(4):
        loss = small.loss(engine, small.ids(micro))
        losses.append(engine.backward(loss).item())
        engine.step()
    assert [each.split("  ")[1] for each in lines(caplog)] == [
        f"loss {sum(losses[at:at + 2]) / 2:.4f}" for at in (0, 2)]


def test_nothing_is_told_of_steps_where_nobody_asks(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "penstock")
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    train().close()
    assert lines(caplog) == [] and screen.getvalue() == ""


def test_on_a_terminal_one_line_is_drawn_again_and_stays_when_it_is_due(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "penstock")
    monkeypatch.setattr(progress, "REDRAWN_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    train(steps=5, steps_per_print=2).close()
    stays = screen.getvalue().split("\n")
    assert [each.count("\r") for each in stays] == [2, 2, 1, 0] and lines(caplog) == []
    assert all(len(each) <= 39 + len("\x1b[K") for line in stays for each in line.split("\r"))
    assert "step 4" in stays[1].rsplit("\r", 1)[1] and "step 5" in stays[2]


class Broken(Screen):
    tries = 0

    def write(self, text: str) -> int:
        Broken.tries += 1
        raise BrokenPipeError("nobody reads")


def test_an_output_that_fails_ends_the_telling_and_not_the_training(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Broken())
    engine = train(steps_per_print=1)
    engine.close()
    assert engine.global_steps == 6 and Broken.tries == 1


def test_a_program_without_logging_hears_the_steps_that_its_configuration_asks_for():
    script = ("import sys; sys.path[:0] = sys.argv[1:]; import test_progress; "
              "test_progress.train(steps_per_print=3); print('-', file=sys.stderr); import logging; "
              "logging.basicConfig(format='own %(message)s'); test_progress.train(steps_per_print=3)")
    done = forked.run([sys.executable, "-c", script, *sys.path[:2]], capture_output=True, text=True, check=True)
    first, then = done.stderr.split("-\n")
    assert re.findall(r"penstock: (step \d)", first) == ["step 3", "step 6"]
    assert re.findall(r"(\w+) (step \d)", then) == [("own", "step 3"), ("own", "step 6")]


@pytest.mark.skipif(not NATIVE, reason="a store that is there")
@pytest.mark.parametrize("logging_is_set_up", [False, True])
def test_an_opening_that_goes_on_is_heard_once_by_a_program_without_logging_too(tmp_path, logging_is_set_up):
    script = f"""import sys; sys.path[:0] = sys.argv[1:]; import logging, torch, penstock
{'logging.basicConfig(level=logging.INFO)' if logging_is_set_up else ''}
for steps in range(2):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    with penstock.initialize(model, torch.optim.AdamW(model.parameters()), store={str(tmp_path)!r})[0] as engine:
        engine.backward(engine(torch.ones(1, 4)).sum())
        engine.step()
"""
    told = forked.run([sys.executable, "-c", script, *sys.path[:2]], capture_output=True, text=True,
                      check=True).stderr
    assert told.count("goes on from step 1") == 1
    assert ("weights on NVMe" in told) is logging_is_set_up


def test_a_skipped_step_says_so(caplog):
    caplog.set_level(logging.INFO, "penstock")
    told = Progress(1)
    core = type("Core", (), {"notes": lambda self: ["a note"]})()
    told.begin(core)
    told.step(StepRecord(0, updated=False, rate=0.1, loss_scale=512.0), core)
    assert "skipped: a gradient is not finite, loss scale 512" in caplog.text and "a note" in caplog.text


def test_a_long_work_is_told_of_and_a_short_one_is_not(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "penstock")
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = Progress()
    for second in range(31):
        now[0] = 100.0 + second
        told.work("verifying", second * 10**9, 30 * 10**9)
    messages = [each.getMessage() for each in caplog.records]
    assert [each.split("  ")[1] for each in messages] == ["7% of 30.00 GB", "40% of 30.00 GB", "73% of 30.00 GB",
                                                          "100% of 30.00 GB"]
    assert messages[1] == "verifying  40% of 30.00 GB  1.00 GB/s  18 s left"
    caplog.clear()
    for part in range(3):
        now[0] += 0.5
        told.work("writing", part, 2)
    assert caplog.records == []


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
def test_the_opening_of_a_store_tells_its_works(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Progress, "work", lambda self, what, done, total: seen.append((what, done == total)))
    torch.manual_seed(0)
    penstock.initialize(small.Stack(), store=tmp_path / "store")[0].close()
    assert ("preparing the swap files", True) in seen
    seen.clear()
    penstock.initialize(small.Stack(), store=tmp_path / "store")[0].close()
    assert ("verifying what was committed", True) in seen


@pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
def test_an_interrupt_while_a_store_is_opened_is_not_lost(tmp_path):
    def interrupted(what, done, total):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        penstock.initialize(small.Stack(), store=penstock.Store(tmp_path / "store", progress=interrupted))
    assert penstock.initialize(small.Stack(), store=tmp_path / "store")[0].global_steps == 0
