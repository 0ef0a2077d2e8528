"""However a training comes to its end, its newest step is committed and goes on to the same bits."""
from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import penstock
import small_models as small
from cores import NATIVE
from penstock.run.ending import Undisturbed
from penstock.weights.bits import same_bits

HERE = Path(__file__).resolve().parent
native = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")
SCRIPT = """
import os, signal, sys
sys.path[:0] = {paths!r}
import torch, penstock
import small_models as small
from cores import round_each_operation
from test_ending import open_engine, step

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background has it ignored
round_each_operation()
engine = open_engine({store!r})
for number in range(engine.global_steps, 20):
    if number == 7:
        {what}
    step(engine, number)
"""
ENDS = {
    "between steps": "os.kill(os.getpid(), signal.SIGINT)",
    "within a forward": "engine.module.blocks[1].linear.register_forward_pre_hook("
                        "lambda *_: os.kill(os.getpid(), signal.SIGINT))",
    "within a backward": "engine.module.blocks[1].linear.register_full_backward_hook("
                         "lambda *_: os.kill(os.getpid(), signal.SIGINT))",
    "by sys.exit()": "sys.exit(3)",
    "by an exception": "raise ValueError('a mistake')",
    "with the engine forgotten": "del engine; break",
}


@pytest.fixture(autouse=True)
def interrupts():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def open_engine(store, **options):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return penstock.initialize(small.Stack(), store=penstock.Store(store, commit_steps=100, **options))[0]


def step(engine, number):
    torch.manual_seed(number)
    engine.backward(small.loss(engine, small.ids(number)))
    engine.step()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    engine = open_engine(tmp_path_factory.mktemp("whole") / "store")
    for number in range(10):
        step(engine, number)
    return engine.state_dict()


@native
@pytest.mark.parametrize("how", ENDS)
def test_a_program_that_ends_has_committed_its_newest_step(expected, tmp_path, how):
    script = SCRIPT.format(paths=[str(HERE.parent), str(HERE)], store=str(tmp_path / "store"), what=ENDS[how])
    package = os.environ.get("PENSTOCK_PACKAGE_AT")
    if package:
        script = script.replace("import torch, penstock", f"sys.path.insert(0, {package!r}); import torch, penstock")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          env={**os.environ, "ATEN_CPU_CAPABILITY": "default"})
    assert (done.returncode != 0) == ("forgotten" not in how), done.stderr[-2000:]
    assert "KeyboardInterrupt" in done.stderr or "within" not in how, done.stderr[-2000:]
    assert "not committed" not in done.stderr
    engine = open_engine(tmp_path / "store")
    assert engine.global_steps == 7
    for number in range(7, 10):
        step(engine, number)
    state = engine.state_dict()
    assert all(same_bits(expected[name], state[name]) for name in expected)


@native
def test_an_engine_that_nobody_has_any_more_gives_its_store_back(tmp_path):
    engine = open_engine(tmp_path / "store")
    step(engine, 0)
    small.loss(engine, small.ids())  # a pass is open
    del engine
    gc.collect()
    assert open_engine(tmp_path / "store").global_steps == 1


@native
def test_an_engine_is_closed_at_the_end_of_with_and_once(tmp_path):
    with pytest.raises(ValueError, match="a mistake"), open_engine(tmp_path / "store") as engine:
        step(engine, 0)
        small.loss(engine, small.ids())
        raise ValueError("a mistake")
    engine.close()
    with open_engine(tmp_path / "store") as again:
        assert again.global_steps == 1


@native
@pytest.mark.parametrize("keep, left", [(True, "What it had committed is in .*store: penstock.initialize"),
                                        (False, "was for one run and is gone")])
def test_what_is_asked_of_a_closed_engine_is_an_error_that_says_so(tmp_path, keep, left):
    with open_engine(tmp_path / "store", keep=keep) as engine:
        step(engine, 0)
    for ask in (lambda: small.loss(engine, small.ids()), lambda: engine.weight("norm.weight"), engine.state_dict):
        with pytest.raises(penstock.EndedError, match=f"the engine is closed: by engine.close.*{left}"):
            ask()
    engine.close()


@native
def test_what_could_not_be_committed_is_told(tmp_path, caplog, monkeypatch):
    engine = open_engine(tmp_path / "store")
    step(engine, 0)

    def full():
        raise penstock.StorageError("no room")
    monkeypatch.setattr(engine.core, "settle", full)
    with pytest.raises(penstock.StorageError, match="no room"):
        engine.close()
    assert open_engine(tmp_path / "store").global_steps == 0  # the directory is free
    engine = open_engine(tmp_path / "other")
    monkeypatch.setattr(engine.core, "settle", full)
    del engine
    gc.collect()
    assert "the newest step was not committed: no room" in caplog.text


@native
def test_a_child_of_the_process_ends_nothing_and_says_nothing(tmp_path, caplog):
    engine = open_engine(tmp_path / "store")
    step(engine, 0)
    caplog.clear()
    child = os.fork()
    if child == 0:
        try:
            engine._ending._finalizer()
            refused = False
            try:
                engine.core.settle()
            except penstock.UsageError as error:
                refused = "forked" in str(error)
            os._exit(0 if refused and not caplog.records else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    step(engine, 1)
    engine.close()
    assert open_engine(tmp_path / "store").global_steps == 2


def test_an_interrupt_waits_for_the_end_of_an_update(tmp_path):
    done = []
    with pytest.raises(KeyboardInterrupt):
        with Undisturbed():
            with Undisturbed():
                os.kill(os.getpid(), signal.SIGINT)
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def elsewhere():
        with Undisturbed():
            done.append("thread")
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done[-1] == "thread"


@native
def test_a_loop_that_catches_the_interrupt_goes_on(expected, tmp_path):
    engine = open_engine(tmp_path / "store")
    update, came = engine.core.update, 0

    def interrupted(request):
        report = update(request)
        os.kill(os.getpid(), signal.SIGINT)
        return report
    engine.core.update = interrupted
    for number in range(10):
        try:
            step(engine, number)
        except KeyboardInterrupt:
            came += 1
    assert came == 10 and engine.global_steps == 10 and engine.micro_steps == 10
    state = engine.state_dict()
    assert all(same_bits(expected[name], state[name]) for name in expected)
