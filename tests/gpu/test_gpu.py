"""The Python package on a GPU, or with PENSTOCK_GPU=emulated as far as the device apart from the host goes.

A model of transformers is not needed: a stack of torch's own layers with dropout, an embedding that is tied, and a
buffer. Deterministic kernels, so that what must be the same is the same bits."""
from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import penstock
from penstock.step import shelf

DEVICE = os.environ.get("PENSTOCK_GPU", "cuda")
PLACE = torch.device("cuda" if DEVICE.startswith("cuda") else "cpu")
WIDE, TIGHT = 64 << 20, 3 << 20


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True) for _ in range(4))
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("shift", torch.linspace(-0.1, 0.1, 64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids) + self.shift
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


@pytest.fixture(autouse=True)
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def ids_of(number: int) -> torch.Tensor:
    return torch.randint(0, 500, (4, 32), generator=torch.Generator().manual_seed(number)).to(PLACE)


def loss_of(model: nn.Module, number: int) -> torch.Tensor:
    ids = ids_of(number)
    return nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.roll(1, 1).flatten())


def room_by_turns():
    """There is room before two calls of three."""
    asked = itertools.count()
    return lambda: 0.0 if next(asked) % 3 == 0 else float("inf")


def opened(path: Path, budget: int = WIDE, accumulation: int = 1, clip: float = 1.0, make=Model, step=None, **options):
    """`step`: of penstock.Settings; `options`: of penstock.Store."""
    torch.manual_seed(3)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    store = penstock.Store(path, device=DEVICE, device_budget_bytes=budget, **options)
    return penstock.initialize(model, optimizer, store=store,
                               settings=penstock.Settings(clip=clip, accumulation=accumulation, **(step or {})))[0]


def trained(engine, steps: int, accumulation: int = 1) -> list[float]:
    """Random states are those of the step, so that a run that was cut off goes on with the same."""
    losses = []
    for step in range(engine.global_steps, steps):
        torch.manual_seed(1000 + step)
        for micro in range(accumulation):
            loss = loss_of(engine, 10 * step + micro)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
    return losses


def weights_of(engine) -> dict[str, torch.Tensor]:
    return dict(engine.named_weights())


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert torch.equal(values, other[name]), name


def test_it_is_where_it_was_asked_to_be(tmp_path):
    engine = opened(tmp_path / "store")
    seen = []
    engine.module.layers[0].linear1.register_forward_pre_hook(
        lambda module, given: seen.append((given[0].device.type, module.weight.device.type)))
    trained(engine, 1)
    assert set(seen) == {(PLACE.type, PLACE.type)}
    assert engine.module.shift.device.type == PLACE.type
    assert engine.core.info().device_bytes > 0


@pytest.mark.parametrize("accumulation", [1, 3])
def test_repeated_runs_are_bit_equal_whatever_fits(tmp_path, accumulation):
    first = opened(tmp_path / "first", WIDE, accumulation)
    losses = trained(first, 5, accumulation)
    for number, (budget, options) in enumerate([(WIDE, {}), (TIGHT, {}), (TIGHT, {"weights": "cpu"}),
                                                (TIGHT, {"states": "cpu", "prefetch_depth": 1})]):
        again = opened(tmp_path / f"again{number}", budget, accumulation, **options)
        assert trained(again, 5, accumulation) == losses
        assert_same(weights_of(again), weights_of(first))


class WithoutBuffers(Model):
    """Whose updates may come within backward: buffers are committed before the step that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        del self.shift
        self.shift = 0.0


@pytest.mark.parametrize("clip", [0.0, 0.5, 1e6], ids=["no clip", "each is struck", "none is struck"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_order_has_the_same_bits(tmp_path, accumulation, clip):
    first = opened(tmp_path / "first", TIGHT, accumulation, clip, WithoutBuffers)
    losses = trained(first, 6, accumulation)
    for order, share in (("deferred", 0.0), ("within", 0.0), ("within", "auto")):
        again = opened(tmp_path / f"{order} {share}", TIGHT, accumulation, clip, WithoutBuffers, update_order=order,
                       deferred_share=share)
        assert trained(again, 6, accumulation) == losses, (order, share)
        again.core.settle()
        assert_same(weights_of(again), weights_of(first))


PLACES = {  # of what a step makes: Store's options, and Settings'
    "gradients on NVMe": ({"gradients": "nvme"}, {}),
    "inputs in the pool": ({"activation_budget_bytes": 1 << 20}, {}),
    "inputs on NVMe": ({"activation_budget_bytes": 72 << 10}, {}),
    "all graphs kept": ({}, {"activations": "keep"}),
    "all graphs recomputed": ({}, {"activations": "recompute"}),
    "graphs given up when the machine is short": ({}, {"room": room_by_turns()}),
    "some graphs kept": ({}, {"activations": "keep", "graph_budget_bytes": 3 << 20}),
    "host memory filled": ({"fill_host_budget": True, "host_budget_bytes": 64 << 20}, {}),
    "all of them": ({"gradients": "nvme", "activation_budget_bytes": 72 << 10, "update_order": "deferred"},
                    {"activations": "keep", "graph_budget_bytes": 3 << 20}),
}


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_bits_are_the_same_wherever_things_are_kept(tmp_path, monkeypatch, place, accumulation):
    monkeypatch.setattr(shelf, "LEAST_BYTES", 1 << 10)
    first = opened(tmp_path / "first", WIDE, accumulation)
    losses = trained(first, 4, accumulation)
    options, step = PLACES[place]
    again = opened(tmp_path / "again", TIGHT, accumulation, step=step, **options)
    assert trained(again, 4, accumulation) == losses
    again.core.settle()
    assert_same(weights_of(again), weights_of(first))


@pytest.mark.parametrize("codec", ["split", "plain_bf16", "compact"])
def test_sixteen_bits(tmp_path, codec):
    def make():
        return WithoutBuffers().bfloat16()

    found = []
    for order, budget in (("after_backward", WIDE), ("deferred", TIGHT), ("within", TIGHT)):
        engine = opened(tmp_path / order, budget, 1, 0.0, make, codec=codec, gradient_type="bf16", update_order=order)
        losses = trained(engine, 4)
        engine.core.settle()
        found.append((losses, weights_of(engine)))
    for losses, weights in found[1:]:
        assert losses == found[0][0]
        assert_same(weights, found[0][1])


def test_it_follows_the_current_stream(tmp_path):
    first = opened(tmp_path / "first")
    losses = trained(first, 4)
    other = opened(tmp_path / "other", TIGHT)
    if PLACE.type == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = trained(other, 2)
        torch.cuda.current_stream().wait_stream(stream)
    else:
        found = trained(other, 2)
    assert found + trained(other, 4) == losses
    assert_same(weights_of(other), weights_of(first))


def test_it_is_plain_torch_on_that_device(tmp_path):
    """Gradients are torch's own; the update is made on the host, where last bits may be others."""
    torch.manual_seed(3)
    plain = Model().to(PLACE)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, foreach=False)
    expected = []
    for step in range(5):
        torch.manual_seed(1000 + step)
        loss = loss_of(plain, 10 * step)
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    losses = trained(opened(tmp_path / "store", TIGHT), 5)
    assert losses[0] == expected[0]
    assert losses == pytest.approx(expected, rel=1e-5)


class Checkpointed(WithoutBuffers):
    """Layers within reentrant checkpoints, some twice: their backwards are within the loss's."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(ids)
        for at in (0, 1, 0, 2, 3, 1):
            hidden = checkpoint(self.layers[at], hidden, use_reentrant=True)
        return self.head(hidden)


def test_within_reentrant_checkpoints_a_unit_is_updated_behind_the_last_backward(tmp_path, monkeypatch):
    found = []
    for order in ("after_backward", "within"):
        engine = opened(tmp_path / order, TIGHT, clip=0.0, make=Checkpointed, update_order=order)
        counted, complete = [], engine.core.complete
        monkeypatch.setattr(engine.core, "complete", lambda unit: (counted.append(unit), complete(unit)))
        found.append((trained(engine, 3), weights_of(engine)))
        streamed = len(engine.core.units) - len(engine.binding.resident)
        assert len(counted) == (3 * streamed if order == "within" else 0)
    assert found[0][0] == found[1][0]
    assert_same(found[0][1], found[1][1])


class Keeps(nn.TransformerEncoderLayer):
    kept: list[torch.Tensor] = []

    def forward(self, *args, **kwargs):
        self.kept.append(self.linear1.weight.detach()[1:])
        return super().forward(*args, **kwargs)


class Keeping(Model):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.__class__ = Keeps


def test_memory_that_was_lent_is_not_read_after_its_time(tmp_path):
    engine = opened(tmp_path / "store", TIGHT, make=Keeping)
    engine.backward(loss_of(engine, 0))
    gradient = engine.module.head.weight.grad
    assert torch.isfinite(gradient).all()
    with pytest.raises(RuntimeError, match="penstock: parameter 'layers.0.norm1.bias' is read while its values are in"):
        torch.tensor(engine.module.layers[0].norm1.bias)
    engine.step()
    with pytest.raises(RuntimeError, match="penstock: a tensor is read that was 'embedding.weight'.grad until a step"):
        gradient.sum().item()
    for each in Keeps.kept:
        with pytest.raises(RuntimeError, match=r"penstock: parameter 'layers.\d.linear1.weight' is read by a view"):
            each.sum().item()
    plain = trained(opened(tmp_path / "plain", TIGHT), 2)
    assert trained(opened(tmp_path / "keeping", TIGHT, make=Keeping), 2) == plain, "unread they harm nobody"


def test_evaluation_and_sums_between_passes(tmp_path):
    engine = opened(tmp_path / "store", TIGHT)
    engine.eval()
    with torch.no_grad():
        before = engine(ids_of(1))
    engine.train()
    loss_of(engine, 1).backward()
    norms = {name: each.grad.norm().item() for name, each in engine.module.named_parameters()}
    assert all(norm > 0 for norm in norms.values())
    nn.utils.clip_grad_norm_(engine.module.parameters(), 1e-6)
    engine.optimizer.step()
    assert engine.optimizer.report.gradient_norm == pytest.approx(1e-6, rel=1e-3)
    engine.eval()
    with torch.no_grad():
        assert not torch.equal(engine(ids_of(1)), before)


CHILD = """
import sys
sys.path[:0] = [{here!r}]
import torch, test_gpu
torch.use_deterministic_algorithms(True)
engine = test_gpu.opened({path!r}, test_gpu.TIGHT)
for step in range(engine.global_steps, 6):
    test_gpu.trained(engine, step + 1)
    print("step", step + 1, flush=True)
engine.close()
"""


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    whole = opened(tmp_path / "whole")
    trained(whole, 6)
    path = str(tmp_path / "killed")
    text = CHILD.format(here=str(Path(__file__).parent), path=path)
    kills = 0
    while True:
        child = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        line = child.stdout.readline()
        if kills < 3 and line:
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
            continue
        child.communicate()
        assert child.returncode == 0
        break
    assert_same(weights_of(opened(Path(path))), weights_of(whole))


@pytest.mark.skipif(PLACE.type != "cuda", reason="there is no GPU whose memory could be known")
def test_a_budget_that_is_not_given_leaves_half(tmp_path):
    before, _ = torch.cuda.mem_get_info()
    engine = opened(tmp_path / "store", 0)
    after, _ = torch.cuda.mem_get_info()
    taken = engine.core.info().device_bytes
    assert 0 < taken <= max(before, after + taken) // 2 + (1 << 30)  # other processes come and go
