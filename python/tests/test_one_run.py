"""Store(keep=False): a store for one run trains to the same bits, and leaves nothing."""
from __future__ import annotations

import fcntl
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import torch

import forked
import penstock
import small_models as small
from compare import adamw
from cores import NATIVE
from penstock.machine.sizes import size
from penstock.native import new_places
from penstock.native.one_run import PREFIX

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.skipif(not NATIVE, reason="of the core on NVMe")


def open_engine(place, keep=False, clip=0.0, **options):
    torch.manual_seed(0)
    model = small.Stack()
    return penstock.initialize(model, adamw(model.parameters()), store=penstock.Store(place, keep=keep, **options),
                               settings=penstock.Settings(clip=clip))[0]


def train(engine, first=0, last=3):
    for number in range(first, last):
        torch.manual_seed(number)
        engine.backward(small.loss(engine, small.ids(number)))
        engine.step()


def ends(engine):
    return {name: engine.weight(name, what) for name, _ in engine.named_weights() for what in ("weight", "moment1")}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(each, other[name]) for name, each in one.items())


OPTIONS = [{}, {"weights": "cpu"}, {"weights": "cpu", "states": "cpu"}, {"update_order": "deferred"},
           {"update_order": "within"}, {"gradients": "nvme"}, {"activation_budget_bytes": 1 << 20}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_it_trains_to_the_bits_of_one_that_is_kept_and_its_files_have_no_names(tmp_path, options):
    kept, once = open_engine(tmp_path / "kept", keep=True, **options), open_engine(tmp_path / "once", **options)
    assert os.listdir(tmp_path / "once") == []
    for engine in (kept, once):
        train(engine)
    assert same(ends(kept), ends(once)) and os.listdir(tmp_path / "once") == []
    once.close()
    assert os.listdir(tmp_path / "once") == []
    assert open_engine(tmp_path / "once", **options).global_steps == 0


def test_a_place_that_nobody_may_have_meant_is_told_of(tmp_path, caplog):
    caplog.set_level("WARNING", "penstock")

    def told(place):
        caplog.clear()
        open_engine(place).close()
        return [each.getMessage() for each in caplog.records if "was not there and is made" in each.getMessage()]
    line, = told(tmp_path / "typo" / "offload")
    assert line.startswith(f"{tmp_path / 'typo' / 'offload'} was not there") and "GB free" in line
    assert told(tmp_path / "typo" / "offload") == told(tmp_path / "typo" / "other") == []
    assert new_places.notes_of(["/no-such-drive"], kept=False) != [] and new_places.notes_of(["no-such-folder"], kept=False) == []


def test_a_place_that_cannot_be_made_is_not_told_to_be_made(tmp_path, caplog):
    (tmp_path / "file").touch()
    for place, keep in ((tmp_path / "yy/zz", True), (tmp_path / "file/yy/zz", True), (tmp_path / "file/yy/zz", False)):
        with pytest.raises(penstock.StorageError, match="cannot be created|can be made there"):
            open_engine(place, keep=keep)
    assert "is made" not in caplog.text and not (tmp_path / "yy").exists()


def test_an_opening_says_where_things_lie(tmp_path, caplog):
    caplog.set_level("INFO", "penstock")
    engine = open_engine(tmp_path, weights="cpu", gradients="nvme", update_order="deferred")
    line, = [each.getMessage() for each in caplog.records if each.getMessage().startswith("weights ")]
    for part in ("weights in host memory, gradients on NVMe, optimizer states on NVMe", "resident weights ", "NVMe ",
                 f"in {tmp_path}", "update order deferred"):
        assert part in line
    assert size(engine.core.figures().nvme_bytes) in line


def test_several_share_a_place_and_several_drives_are_several_places(tmp_path):
    places = [tmp_path / "a", tmp_path / "b"]
    one, other = open_engine(places), open_engine(places)
    train(one)
    train(other, 0, 2)
    assert (one.global_steps, other.global_steps) == (3, 2)
    assert [os.listdir(each) for each in places] == [[], []]


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
def test_checkpoints_outlive_it(tmp_path, options):
    engine = open_engine(tmp_path / "once", **options)
    train(engine, 0, 2)
    engine.save_checkpoint(tmp_path / "kept", client_state={"epoch": 1})
    train(engine, 2, 4)
    expected = ends(engine)
    engine.load_checkpoint(tmp_path / "kept")
    assert engine.global_steps == 2
    train(engine, 2, 4)
    assert same(ends(engine), expected)
    engine.close()
    later = open_engine(tmp_path / "once", **options)
    path, state = later.load_checkpoint(tmp_path / "kept")
    assert path and state == {"epoch": 1}
    train(later, 2, 4)
    assert same(ends(later), expected)
    goes_on = open_engine(tmp_path / "later", keep=True, resume_from=tmp_path / "kept" / "global_step2" / "store")
    train(goes_on, 2, 4)
    assert same(ends(goes_on), expected)


def test_where_a_checkpoint_cannot_be_taken_the_store_is_gone_and_says_so(tmp_path):
    engine = open_engine(tmp_path / "once")
    train(engine)
    place = Path(engine.save_checkpoint(tmp_path / "kept"))
    for file in (place / "store").iterdir():
        if file.is_file():
            file.write_bytes(b"")
    with pytest.raises(penstock.EndedError, match=r"for one run, Store\(keep=False\).*resume_from"):
        engine.load_checkpoint(tmp_path / "kept")
    with pytest.raises(penstock.PenstockError):
        train(engine)


@pytest.mark.parametrize("keep", [False, True])
def test_a_checkpoint_of_another_optimizer_is_refused_and_the_store_goes_on(tmp_path, keep):
    other = penstock.initialize(small.Stack(), lambda p: torch.optim.SGD(p, lr=0.1), store=penstock.Store(tmp_path / "a", keep=False))[0]
    train(other)
    other.save_checkpoint(tmp_path / "kept")
    engine = open_engine(tmp_path / "once", keep=keep)
    train(engine, 0, 2)
    expected = ends(engine)
    with pytest.raises(penstock.UsageError, match="made with another model, codec or kind of optimizer than this one, which goes on"):
        engine.load_checkpoint(tmp_path / "kept")
    assert same(ends(engine), expected) and engine.global_steps == 2
    train(engine, 2, 3)


def test_the_model_is_had_back(tmp_path):
    engine = open_engine(tmp_path / "once")
    train(engine)
    expected = dict(engine.named_weights())
    model = engine.release()
    assert same(expected, dict(model.named_parameters()))
    open_engine(tmp_path / "once")


def test_a_model_for_forwards_alone_takes_a_place_too(tmp_path):
    torch.manual_seed(0)
    model, plain = small.Stack().requires_grad_(False).eval(), small.Stack().eval()
    plain.load_state_dict(model.state_dict())
    engine = penstock.initialize(model, store=penstock.Store(tmp_path / "once", keep=False))[0]
    assert torch.equal(engine(small.ids(0)), plain(small.ids(0))) and os.listdir(tmp_path / "once") == []


def test_the_plan_counts_one_slot(tmp_path):
    kept, once = (penstock.plan(torch.nn.Linear(1024, 1024), store=penstock.Store(tmp_path / "none", keep=keep)).store_bytes
                  for keep in (True, False))
    assert 0 < once < 0.6 * kept


def test_what_needs_commits_is_refused(tmp_path):
    for share in (0.0, "auto"):
        with pytest.raises(penstock.UsageError, match="it needs commit_steps 1 in a store that is kept"):
            open_engine(tmp_path / "once", clip=1.0, update_order="within", deferred_share=share)
    (tmp_path / "file").write_text("")
    with pytest.raises(penstock.StorageError, match="no directory for one run can be made there"):
        open_engine(tmp_path / "file")


SCRIPT = """
import os, signal, sys
sys.path[:0] = {paths!r}
import penstock.native.core as native
from test_one_run import open_engine, train
if {opening}:
    native._first_weights = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
engine = open_engine({place!r})
train(engine)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("opening", [False, True])
def test_a_kill_leaves_nothing_that_the_next_one_does_not_remove(tmp_path, opening):
    script = SCRIPT.format(paths=[str(HERE), str(HERE.parent)], opening=opening, place=str(tmp_path))
    assert forked.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == opening
    open_engine(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_another_process_is_opening_is_not_removed(tmp_path):
    other = tmp_path / f"{PREFIX}other"
    other.mkdir()
    lock = os.open(other, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    open_engine(tmp_path)
    assert os.listdir(tmp_path) == [other.name]
    os.close(lock)
    open_engine(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_directory_that_another_process_takes_for_left_before_it_has_a_lock_is_made_anew(tmp_path, monkeypatch):
    made, made_first = tempfile.mkdtemp, []

    def removed_once(**given):
        path = made(**given)
        if not made_first:
            made_first.append(path)
            os.rmdir(path)
        return path
    monkeypatch.setattr(tempfile, "mkdtemp", removed_once)
    engine = open_engine(tmp_path)
    train(engine)
    assert made_first and os.listdir(tmp_path) == []
