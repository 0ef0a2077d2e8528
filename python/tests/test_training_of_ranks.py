"""One model trained by several processes over torch.distributed: the bits of one process that adds their gradients in
the order of the ranks, durable together and ended together. Two ranks cannot see a wrong order: the C++ tests have
three and four, and so has the long form here."""
from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

import forked
import penstock
from penstock.native import library
from test_ranks import PACKAGE, ended, start

try:
    library.library()
except penstock.UsageError as absent:
    pytest.skip(str(absent), allow_module_level=True)

# Rows by step and rank, so that one process can take those of all in turn. Told of each step: loss, norm, and at the
# end the masters' bits.
PROGRAM = '''
import hashlib, json, os, sys, time
import torch, penstock
from torch import nn

rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
directory, last, share, passes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(7 + rank)
model = nn.Sequential(nn.Linear(20, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 5))

def rows(step, micro, of):
    torch.manual_seed(step * 1000 + micro * 10 + of)
    return torch.randn(4, 20), torch.randn(4, 5)

def say(**what):
    print(json.dumps({"rank": rank, **what}), flush=True)

engine, *_ = penstock.initialize(
    model, torch.optim.AdamW(model.parameters(), lr=1e-2),
    store=penstock.Store(directory, tile_elements=4096, **globals().get("STORE", {})),
    settings=penstock.Settings(accumulation=share * passes, clip=globals().get("CLIP", 0.7)))
begin = globals().get("begin", lambda engine: None)
within = globals().get("within", lambda engine: None)
begin(engine)
while engine.global_steps < last:
    step = engine.global_steps
    for micro in range(passes):
        for of in range(share) if share > 1 else [rank]:
            given, wanted = rows(step, micro, of)
            loss = nn.functional.mse_loss(engine(given), wanted)
            engine.backward(loss)
            within(engine)
            engine.step()
    say(step=engine.global_steps, loss=loss.item(), norm=engine.get_global_grad_norm())
digest = hashlib.sha256()
for what in ("master", "moment0", "moment1"):
    for name, values in engine.named_weights(what):
        digest.update(values.numpy().tobytes())
say(bits=digest.hexdigest())
engine.close()
'''


def run(count, directory, last, share=1, passes=1, before="", **changed):
    return start(count, sys.executable, "-c", before + PROGRAM, str(directory), str(last), str(share), str(passes),
                 **changed)


def told(outputs):
    """By rank."""
    return [[json.loads(line) for line in each.splitlines() if line.startswith("{")] for each in outputs]


def bits(outputs):
    return [of[-1].get("bits") for of in told(outputs)]


def alone(ranks, directory, last, passes=1):
    """One process takes the rows of all ranks in turn: the order of the sum is theirs where each makes one pass, and the
    mean is exact where their number is a power of two."""
    codes, outputs, errors = ended(run(1, directory, last, share=ranks, passes=passes, RANK="0", WORLD_SIZE="1"))
    assert codes == [0], errors
    return told(outputs)[0]


@pytest.mark.skipif(os.environ.get("OMP_NUM_THREADS") != "1", reason="libraries may have threads")
def test_processes_are_forked():
    with forked.Popen([sys.executable, "-c", "pass"]) as made:
        assert made.forked, "something that is imported has a thread: what is here takes ten times as long"


@pytest.mark.parametrize("sums", [None, "ranks_first"])
def test_two_ranks_have_the_bits_of_one_that_adds_theirs(tmp_path, sums):
    codes, outputs, errors = ended(run(2, tmp_path / "two", 3, before=f"STORE = {{'sum_order': {sums!r}}}\n"))
    assert codes == [0, 0], errors
    expected = alone(2, tmp_path / "one", 3)
    assert bits(outputs) == [expected[-1]["bits"]] * 2
    for mine, whole in zip(told(outputs)[0][:-1], expected[:-1]):  # squares are added in another order
        assert mine["norm"] == pytest.approx(whole["norm"], rel=1e-12)
    voices = [error for error in errors if "others on other ranks" in error]
    assert len(voices) == 1 and voices[0] is errors[0], "rank 0 says that the first weights are its own"


def test_a_kill_of_one_rank_ends_the_other_and_both_go_on_to_the_same_bits(tmp_path):
    dies = """
import os, signal
def within(engine):
    if engine.global_steps == 2 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    begun = time.monotonic()
    codes, outputs, errors = ended(run(2, tmp_path / "two", 5, before=dies))
    assert codes[1] == -signal.SIGKILL and codes[0] != 0, (codes, errors)
    assert time.monotonic() - begun < 40
    assert "PeerError" in errors[0], errors[0]
    codes, outputs, errors = ended(run(2, tmp_path / "two", 5))
    assert codes == [0, 0], errors
    assert bits(outputs) == [alone(2, tmp_path / "one", 5)[-1]["bits"]] * 2


@pytest.mark.long
def test_a_launcher_that_is_killed_ends_both_and_they_go_on_to_the_same_bits(tmp_path):
    dies = """
def within(engine):
    import signal
    if engine.global_steps == 2 and rank == 1 and sys.argv[-1] == "dies":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(100)
"""
    script, log = tmp_path / "train.py", tmp_path / "log"
    script.write_text(dies + PROGRAM)

    def launched(*words):
        with open(log, "wb") as out:
            return subprocess.run([sys.executable, "-m", "penstock", "launch", "--num_gpus=2", "--no_local_rank",
                                   str(script), str(tmp_path / "two"), "5", "1", "1", *words],
                                  env={**os.environ, "PYTHONPATH": str(PACKAGE)}, stdout=out, stderr=out, timeout=120).returncode

    assert launched("dies") == -signal.SIGKILL, log.read_text()
    assert launched() == 0, log.read_text()  # a store is in use until those who have it are gone
    found = [json.loads(line)["bits"] for line in log.read_text().splitlines() if '"bits"' in line]
    assert found == [alone(2, tmp_path / "one", 5)[-1]["bits"]] * 2


def test_a_signal_to_one_rank_stops_all_behind_the_same_step(tmp_path):
    asked = """
import os, signal
def begin(engine):
    engine.stop_on_signals()
def within(engine):
    if engine.global_steps == 2 and rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
"""
    codes, outputs, errors = ended(run(2, tmp_path / "two", 6, before=asked))
    assert codes == [75, 75], errors
    steps = [max(each["step"] for each in of) if of else 0 for of in told(outputs)]
    assert steps[0] == steps[1], steps
    codes, outputs, errors = ended(run(2, tmp_path / "two", 6, before="""
def within(engine):  # a condition of one rank's own
    if engine.global_steps == 4 and rank == 0:
        engine.stop_after_step()
"""))
    assert codes == [75, 75] and [of[-1]["step"] for of in told(outputs)] == [4, 4], (codes, errors)
    codes, outputs, errors = ended(run(2, tmp_path / "two", 6))
    assert codes == [0, 0], errors
    assert bits(outputs) == [alone(2, tmp_path / "one", 6)[-1]["bits"]] * 2


ENDS = {  # what rank 1 does; codes of both where they are known; who says why
    "raises": ("raise ValueError('a mistake of the script')", [7, 1], 1, "a mistake of the script"),
    "exits": ("sys.exit(3)", None, 0, ""),  # the call in which they differ, or a connection that is closed
    "rates": ("engine.optimizer.param_groups[0]['lr'] *= 2", None, None, "the other has 0.01"),
    "calls": ("engine.weight('0.weight', 'master')", None, None, "the ranks are not at the same call"),
    "saves": ("engine.save_checkpoint(sys.argv[1] + '-saved')", None, None, "with engine.save_checkpoint()"),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_rank_that_does_something_else_ends_all_and_one_of_them_says_why(tmp_path, how):
    does, wanted, voice, words = ENDS[how]
    begun = time.monotonic()
    codes, _, errors = ended(run(2, tmp_path / "two", 5, before=f"""
import sys
def within(engine):
    if engine.global_steps == 2 and rank == 1:
        {does}
"""))
    assert time.monotonic() - begun < 40
    said = [rank for rank in (0, 1) if "Error" in errors[rank]]
    assert len(said) == 1 and words in errors[said[0]] and voice in (None, said[0]), errors
    assert wanted in (None, codes), (codes, errors)


def test_another_number_of_processes_is_refused_by_name(tmp_path):
    codes, _, errors = ended(run(2, tmp_path / "two", 1))
    assert codes == [0, 0], errors
    codes, _, errors = ended(run(1, tmp_path / "two", 2))
    assert codes == [1] and "holds what 2 processes committed, and one is started" in errors[0]


def test_a_resume_with_another_torch_or_another_seed_is_refused_by_all(tmp_path):
    codes, _, errors = ended(run(2, tmp_path / "two", 1))
    assert codes == [0, 0], errors
    codes, _, errors = ended(run(2, tmp_path / "two", 2, before="""
import os, torch
if os.environ["RANK"] == "1":
    torch.__version__ = "2.0.0"
"""))
    assert sorted(codes) == [1, 7], (codes, errors)
    voice = next(error for error in errors if "Error" in error)
    assert f"differs: torch 2.0.0, the other has {torch.__version__}" in voice and "rank 1 (" in voice


def test_ranks_whose_loaders_differ_make_nothing(tmp_path):
    other = DATA.replace("training_data=Rows()", "training_data=Rows(), shuffle_seed=int(os.environ['RANK'])")
    codes, _, errors = ended(start(2, sys.executable, "-c", other, str(tmp_path / "data"), "2"))
    assert sorted(codes) == [1, 7] and sum("shuffle_seed 1, the other has 0" in error for error in errors) == 1, errors
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("sums", ["passes_first", "ranks_first"])
def test_no_sync_changes_no_bit(tmp_path, sums):
    backward = "            engine.backward(loss)\n"
    assert backward in PROGRAM
    within = PROGRAM.replace(backward, f"            with engine.no_sync():\n    {backward}")
    before = f"STORE = {{'sum_order': '{sums}'}}\n"
    found = []
    for name, program in {"plain": PROGRAM, "within": within}.items():
        codes, outputs, errors = ended(start(2, sys.executable, "-c", before + program, str(tmp_path / name), "2", "1", "2"))
        assert codes == [0, 0], errors
        found.append(outputs)
    assert found[0] == found[1]


DATA = '''
import json, os, sys
import torch, penstock
from torch import nn

rows = torch.arange(22.0).reshape(22, 1)
model = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1))
seen = []
class Rows(torch.utils.data.Dataset):
    def __len__(self): return len(rows)
    def __getitem__(self, index): return rows[index], index
engine, _, loader, _ = penstock.initialize(
    model, torch.optim.SGD(model.parameters(), lr=1e-3), training_data=Rows(), store=sys.argv[1],
    config={"train_batch_size": 6, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}})
assert engine.settings.micro_batch == 3 and engine.train_batch_size() == 6 and engine.world_size == 2
while engine.global_steps < int(sys.argv[2]):
    for values, indices in loader:
        seen += indices.tolist()
        loss = engine(values).square().mean()
        engine.backward(loss)
        engine.step()
        if engine.global_steps == int(sys.argv[2]):
            break
mean = model[0].running_mean.tolist()
print(json.dumps({"seen": seen, "mean": mean, "epoch": loader.epoch}), flush=True)
engine.close()
'''


def test_each_row_goes_to_one_rank_goes_on_where_it_was_and_buffers_are_rank_0s(tmp_path):
    def life(last):
        codes, outputs, errors = ended(start(2, sys.executable, "-c", DATA, str(tmp_path / "data"), str(last)))
        assert codes == [0, 0], errors
        return [json.loads(each.splitlines()[-1]) for each in outputs]

    first, second = life(2), life(4)
    epoch = sorted(row for of in (*first, *second) for row in of["seen"])
    assert epoch == list(range(22)), "11 rows a rank, in batches of 3, 3, 3 and 2"
    assert first[0]["mean"] == first[1]["mean"] and second[0]["mean"] == second[1]["mean"]


EVEN = '''
import json, os, sys, time
import torch, penstock
from torch import nn

rank = int(os.environ["RANK"])
torch.manual_seed(5)
model = nn.Linear(3, 2)
engine, *_ = penstock.initialize(model, torch.optim.SGD(model.parameters(), lr=0.1), store=sys.argv[1],
                                 settings=penstock.Settings(steps_per_print=1))
for batch in engine.even([torch.full((2, 3), 1.0 + rank + each) for each in range(2 + rank)], "longest"):
    time.sleep(0.2 * rank)
    engine.backward(engine(batch).square().mean())
    engine.step()
print(json.dumps({"weights": [each.tolist() for each in model.state_dict().values()], "losses": len(engine.record.losses)}))
'''


def test_loaders_of_other_lengths_end_together_and_the_slowest_rank_is_named(tmp_path):
    """Rank 0 gives its second batch again, which counts as 0."""
    codes, outputs, errors = ended(start(2, sys.executable, "-c", EVEN, str(tmp_path / "even")))
    assert codes == [0, 0], errors
    told = [json.loads(each.splitlines()[-1]) for each in outputs]
    torch.manual_seed(5)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        for rank in (0, 1) if step < 2 else (1,):
            (model(torch.full((2, 3), 1.0 + rank + step)).square().mean() / 2).backward()
        optimizer.step()
    for found, wanted in zip(told[0]["weights"], model.state_dict().values(), strict=True):
        assert torch.allclose(torch.tensor(found), wanted, rtol=1e-5)
    assert told[0]["weights"] == told[1]["weights"] and [each["losses"] for each in told] == [0, 1]
    assert errors[0].count("rank 1 slowest, by") == 3 and "slowest" not in errors[1]


HALF = '''
import json, os, sys
import torch, penstock
from torch import nn

rank = int(os.environ["RANK"])
torch.manual_seed(5)
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 2))
config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "optimizer": {"type": "Adam", "params": {"lr": 1e-2}},
          "fp16": {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}, "gradient_clipping": 1.0,
          "zero_optimization": {"stage": int(sys.argv[2])}}
engine, *_ = penstock.initialize(model, config=config, store=sys.argv[1])
told = []
for turn in range(4):
    loss = engine(torch.full((2, 8), 0.1 * (rank + 1), dtype=torch.float16)).float().square().mean()
    engine.backward(loss * (float("inf") if (turn, rank) == (1, 1) else 1.0))
    engine.step()
    told.append([engine.optimizer.loss_scale.value, engine.skipped_steps])
print(json.dumps({"told": told, "weights": [each.tolist() for each in model.state_dict().values()]}))
engine.close()
'''


@pytest.mark.parametrize("stage", [1, 2])
def test_an_overflow_on_one_rank_is_one_on_all(tmp_path, stage):
    """The loss scale is one number: all skip the step, and go on with half of it."""
    codes, outputs, errors = ended(start(2, sys.executable, "-c", HALF, str(tmp_path / "half"), str(stage)))
    assert codes == [0, 0], errors
    told = [json.loads(each.splitlines()[-1]) for each in outputs]
    assert told[0] == told[1]
    assert [scale for scale, _ in told[0]["told"]] == [256, 128, 128, 128] and told[0]["told"][-1][1] == 1


class PlainLoop:
    """Torch alone: one model's gradients for the rows of each rank, added in the order of the ranks."""

    def __init__(self, ranks, sums):
        torch.manual_seed(7)
        self.ranks, self.sums = ranks, sums
        self.model = nn.Sequential(nn.Linear(20, 300), nn.LayerNorm(300), nn.ReLU(), nn.Linear(300, 300), nn.Linear(300, 5))
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-2)

    def gradients(self, step, passes, rank, of):
        """Of these of a step's passes, added up."""
        self.optimizer.zero_grad()
        for micro in of:
            torch.manual_seed(step * 1000 + micro * 10 + rank)
            given, wanted = torch.randn(4, 20), torch.randn(4, 5)
            (nn.functional.mse_loss(self.model(given), wanted) / passes).backward()
        return [each.grad.clone() for each in self.parameters]

    def mean(self, step, passes, of):
        total = self.gradients(step, passes, 0, of)
        for rank in range(1, self.ranks):
            total = [sum_ + own for sum_, own in zip(total, self.gradients(step, passes, rank, of))]
        return [each / self.ranks for each in total]

    def train(self, steps, passes):
        for step in range(steps):
            groups = [[micro] for micro in range(passes)] if self.sums == "ranks_first" else [range(passes)]
            means = [self.mean(step, passes, of) for of in groups]
            for at, parameter in enumerate(self.parameters):
                parameter.grad = sum((each[at] for each in means[1:]), means[0][at])
            self.optimizer.step()

    def bits(self):
        states = [self.optimizer.state[each] for each in self.parameters]
        digest = hashlib.sha256()
        for values in (self.parameters, [each["exp_avg"] for each in states], [each["exp_avg_sq"] for each in states]):
            for each in values:
                digest.update(each.detach().numpy().tobytes())
        return digest.hexdigest()


@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("sums", ["passes_first", "ranks_first"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_have_the_bits_of_torchs_loop(tmp_path, ranks, sums, passes, device):
    store = {"sum_order": sums, "device": device} | ({"device_budget_bytes": 64 << 20} if device == "emulated" else {})
    before = f"STORE, CLIP = {store}, 0.0\n"
    codes, outputs, errors = ended(run(ranks, tmp_path / "ranks", 20, passes=passes, before=before), seconds=180)
    assert codes == [0] * ranks, errors
    loop = PlainLoop(ranks, sums)
    loop.train(20, passes)
    assert bits(outputs) == [loop.bits()] * ranks
