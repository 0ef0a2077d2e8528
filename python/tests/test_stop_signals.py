"""A signal ends a training behind the step that is under way, with exit code 75, and the same command goes on."""
from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import forked
import penstock
import small_models as small
from cores import NATIVE, WAYS, test_core
from penstock.native.look import look
from penstock.run.stop_signals import StopSignals
from penstock.weights.bits import same_bits
from resumed import life
from test_ending import open_engine, step
from test_killed import same_end, server  # noqa: F401  a fixture

HERE = Path(__file__).resolve().parent
ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
native = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")


@pytest.fixture(autouse=True)
def handlers():
    """As a program has them that has set none."""
    before = [signal.signal(each, signal.SIG_DFL) for each in ALL]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for each, handler in zip(ALL, before):
        signal.signal(each, handler)


def opened(folder=None, **options):
    torch.manual_seed(0)
    return penstock.initialize(small.Stack(), core=test_core(folder=folder), **options)[0]


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def send_within(engine, number, hook="register_forward_pre_hook"):
    handle = getattr(engine.module.blocks[1].linear, hook)(lambda *_: (handle.remove(), send(number))[0])


def ends(engine, number=0):
    """The exit code of the step that is stopped."""
    with pytest.raises(SystemExit) as ended:
        step(engine, number)
    return ended.value.code


@pytest.mark.parametrize("number", ALL)
@pytest.mark.parametrize("hook", ["register_forward_pre_hook", "register_full_backward_hook", None])
def test_a_signal_ends_the_process_behind_the_step_under_way(number, hook, tmp_path, capfd, caplog):
    engine = opened(tmp_path / "store")
    engine.stop_on_signals()
    step(engine, 0)
    send(number) if hook is None else send_within(engine, number, hook)
    assert ends(engine, 1) == 75 and engine.global_steps == 2
    assert "stopping after this step; a second signal ends at once" in capfd.readouterr().err
    assert f"stopped by {number.name} behind step 2, which is committed: the same command goes on" in caplog.text
    engine.close()
    assert opened(tmp_path / "store").global_steps == 2


@native
@pytest.mark.parametrize("order", WAYS)
def test_what_is_not_committed_is_in_every_order_of_updates(order, tmp_path):
    clip = penstock.Settings(clip=1.0 if order in ("speculative", "balanced") else 0.0)
    options = dict(**WAYS[order], commit_steps=1 if clip.clip else 100)

    def engine_at(folder):
        torch.manual_seed(0)
        return penstock.initialize(small.Stack(), store=penstock.Store(folder, **options), settings=clip)[0]
    whole = engine_at(tmp_path / "whole")
    for number in range(8):
        step(whole, number)
    engine = engine_at(tmp_path / "store")
    engine.stop_on_signals()
    for number in range(4):
        step(engine, number)
    send_within(engine, signal.SIGTERM)
    assert ends(engine, 4) == 75
    assert look(tmp_path / "store").values["updates"] == "5"  # while the engine is open
    engine.close()
    engine = engine_at(tmp_path / "store")
    for number in range(5, 8):
        step(engine, number)
    a, b = whole.state_dict(), engine.state_dict()
    assert all(same_bits(a[name], b[name]) for name in a)


@pytest.mark.parametrize("agreed", [None, [None, signal.SIGTERM]])
def test_one_of_several_that_has_stopped_does_not_hear_its_launcher_any_more(agreed):
    """Who asks the others to end when the first of them has ended, and would see another end than 75."""
    stop = StopSignals()
    stop.take((signal.SIGINT, signal.SIGTERM))
    if agreed:
        stop.agree(agreed)
    else:
        send()
    with pytest.raises(SystemExit) as ended:
        stop.end(3, kept=True)
    assert ended.value.code == 75
    assert signal.getsignal(signal.SIGTERM) == (signal.SIG_IGN if agreed else signal.SIG_DFL)
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def test_a_step_of_several_micro_batches_is_ended_as_a_whole():
    engine = opened(settings=penstock.Settings(accumulation=2))
    engine.stop_on_signals()
    send_within(engine, signal.SIGTERM)
    step(engine, 0)
    assert engine.global_steps == 0
    assert ends(engine, 1) == 75 and engine.global_steps == 1


def test_a_loop_that_steps_the_optimizer_is_ended_by_it():
    engine = opened()
    engine.stop_on_signals()
    send()
    small.loss(engine, small.ids()).backward()
    with pytest.raises(SystemExit) as ended:
        engine.optimizer.step()
    assert ended.value.code == 75 and engine.global_steps == 1


def test_nothing_is_taken_that_nobody_asked_for_and_all_is_given_back():
    engine = opened()
    step(engine, 0)
    assert [signal.getsignal(each) for each in ALL] == [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]
    engine.stop_on_signals(signal.SIGTERM)
    engine.stop_on_signals(signal.SIGTERM, signal.SIGUSR1)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGUSR1) == signal.getsignal(signal.SIGTERM) == engine.stop
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # set since, and stays
    engine.close()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL and signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    with pytest.raises(penstock.UsageError, match="after engine.close"):
        engine.stop_on_signals()


def test_an_engine_that_nobody_has_any_more_gives_them_back():
    engine = opened()
    engine.stop_on_signals()
    del engine
    import gc
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_of_the_programs_is_named_and_stays_and_may_ask_itself():
    engine = opened()

    def my_handler(number, frame):
        engine.stop_after_step(number)
    signal.signal(signal.SIGTERM, my_handler)
    with pytest.raises(penstock.UsageError, match=r"SIGTERM has a handler already, .*my_handler.*stop_after_step\(\)"):
        engine.stop_on_signals()
    assert signal.getsignal(signal.SIGTERM) is my_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    engine.stop_on_signals(signal.SIGINT)
    send()
    assert ends(engine) == 75
    with pytest.raises(penstock.UsageError, match="SIGKILL comes to no process"):
        engine.stop_on_signals(signal.SIGKILL)


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    engine = opened()
    engine.stop_on_signals()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    send(signal.SIGHUP)
    step(engine, 0)


def test_an_interrupt_in_the_update_ends_the_process_behind_it():
    engine = opened()
    engine.stop_on_signals()
    update = engine.core.update
    engine.core.update = lambda request: (send(signal.SIGINT), update(request))[1]
    assert ends(engine) == 75 and engine.global_steps == 1


@native
def test_a_store_for_one_run_says_that_there_is_nothing_to_go_on_from(tmp_path, caplog):
    engine = open_engine(tmp_path, keep=False)
    engine.stop_on_signals()
    send(signal.SIGTERM)
    assert ends(engine) == 128 + signal.SIGTERM
    assert "for one run, Store(keep=False), and there is nothing to go on from but checkpoints" in caplog.text


def test_of_several_engines_one_is_asked_and_the_others_are_committed(tmp_path):
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    other.stop_on_signals()
    with pytest.raises(penstock.UsageError, match="another engine of this process"):
        one.stop_on_signals()
    with pytest.raises(SystemExit), one, other:
        send()
        step(one, 0)
        step(other, 0)
    assert [opened(tmp_path / name).global_steps for name in ("one", "other")] == [1, 1]


def test_a_model_without_anything_to_train_has_no_steps():
    if not NATIVE:
        pytest.skip("of the core on NVMe")
    engine = penstock.initialize(small.Stack().requires_grad_(False), core=test_core())[0]
    with pytest.raises(penstock.UsageError, match="nothing of this model is trainable"):
        engine.stop_on_signals()


def test_steps_in_another_thread_end_both_and_signals_are_taken_in_the_main_one(monkeypatch):
    engine, refused = opened(), []
    engine.stop_on_signals()

    def train():
        try:
            engine.stop_on_signals()
        except penstock.UsageError as error:
            refused.append(str(error))
        step(engine, 0)
        send()
        step(engine, 1)
        step(engine, 2)
    thread = threading.Thread(target=train)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # pytest's tells of SystemExit, too
    with pytest.raises(SystemExit) as ended:
        thread.start()
        thread.join(60)
        time.sleep(10)
    thread.join()
    assert ended.value.code == 75 and engine.global_steps == 2 and "outside of the main thread" in refused[0]


# ---------------------------------------------------------------- processes

SCRIPT = """
import os, signal, sys, time
sys.path[:0] = {paths!r}
import torch, penstock
import small_models as small
from test_stop_signals import opened, send, step

engine = opened(sys.argv[1])
engine.stop_on_signals()
{what}
"""


def script(what, tmp_path):
    paths = [os.environ.get("PENSTOCK_PACKAGE_AT", str(HERE.parent)), str(HERE)]
    return forked.run([sys.executable, "-c", SCRIPT.format(paths=paths, what=what), str(tmp_path / "store")],
                      capture_output=True, text=True, timeout=120, start_new_session=True)


def test_a_second_signal_ends_the_process_at_once(tmp_path):
    engine = opened()
    engine.stop_on_signals()
    send()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # the kernel's affair, also while no Python runs
    engine.close()
    done = script("engine.module.blocks[1].linear.register_forward_pre_hook(lambda *_: (send(), send(signal.SIGINT)))\n"
                  "step(engine, 0)\n", tmp_path)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert opened(tmp_path / "store").global_steps == 0


def test_children_pass_over_the_keyboards_first_signal_and_end_by_others(tmp_path):
    """A forked worker of torch's, and one of the program's own."""
    done = script("""
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, at): return small.ids(at)
rows = iter(torch.utils.data.DataLoader(Rows(), batch_size=None, num_workers=2, multiprocessing_context="fork"))
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(60)
engine.backward(small.loss(engine, next(rows)))
os.killpg(0, signal.SIGINT)  # as a terminal sends it
time.sleep(0.5)
rest = list(rows)
assert len(rest) == 7 and os.waitpid(child, os.WNOHANG) == (0, 0), rest
os.kill(child, signal.SIGTERM)
assert os.waitpid(child, 0)[1] == signal.SIGTERM
print("workers live", flush=True)
engine.step()
""", tmp_path)
    assert (done.returncode, done.stdout) == (75, "workers live\n"), done.stderr


KINDS = [("own", None, 1)] if not NATIVE else [("plateau", "deferred", 1), ("own", "after_backward", 2)]


@pytest.mark.parametrize("how", KINDS, ids=lambda how: "-".join(map(str, how)))
def test_stopped_and_started_again_it_ends_with_the_same_bits(how, server, tmp_path):  # noqa: F811
    def live(folder, steps=None):
        """A signal comes when it has made so many; its exit code."""
        folder.mkdir(exist_ok=True)
        losses = folder / "losses"
        until = made(losses) + (steps or 100)
        process = server.Process(target=life, args=(folder, *how, 12, 1 if how[1] is None else 5, True))
        process.start()
        while process.is_alive() and made(losses) < until:
            time.sleep(0.01)
        if process.is_alive():
            process.terminate()
        process.join(120)
        return process.exitcode

    def made(losses):
        return len(losses.read_text().splitlines()) if losses.exists() else 0
    assert live(tmp_path / "whole") == 0
    assert [live(tmp_path / "parts", steps) for steps in (2, 1, 3)] == [75, 75, 75]
    assert live(tmp_path / "parts") == 0
    same_end(tmp_path / "whole", tmp_path / "parts")
