"""penstock.zero.Init(): the values of plain construction, without the model in memory."""
from __future__ import annotations

import gc
import os

import pytest
import torch
from torch import nn

import penstock
import penstock.zero
import small_models as small
from cores import test_core as OpenFakeCore
from directories import peak_bytes
from families import FAMILIES
from penstock.files.spill import Spill
from penstock.weights.bits import same_bits

@pytest.fixture
def all_sizes(monkeypatch):
    monkeypatch.setattr(penstock.zero, "SPILLED_BYTES_MIN", 1)


def made(make, *inits):
    torch.manual_seed(5)
    for each in inits:
        with each:
            model = make()
        return model, torch.rand(())
    return make(), torch.rand(())


def spilled(model) -> list[bool]:
    return [getattr(each.untyped_storage(), "penstock_spill", None) is not None for each in model.parameters()]


def equal(a, b) -> bool:
    return list(a) == list(b) and all(same_bits(a[name], b[name]) for name in a)


def check(make, tmp_path):
    plain, after = made(make)
    model, after_too = made(make, penstock.zero.Init(tmp_path))
    assert equal(plain.state_dict(), model.state_dict())
    assert equal(dict(plain.named_buffers()), dict(model.named_buffers()))
    assert torch.equal(after, after_too)
    return model


@pytest.mark.parametrize("empty", [False, True])
def test_parameters_have_the_type_that_is_said_from_their_registration_on(tmp_path, empty):
    """So they are drawn in it, as where the code makes them so."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        plain, _ = made(Drawn)
    finally:
        torch.set_default_dtype(before)
    model, _ = made(Drawn, penstock.zero.Init(tmp_path, dtype=torch.bfloat16, empty=empty))
    assert all(each.dtype == torch.bfloat16 and each.is_meta == empty for each in model.parameters())
    assert model.counted.dtype == torch.float32 and model.count.dtype == torch.int64
    if not empty:
        assert equal(dict(plain.named_parameters()), dict(model.named_parameters()))
        assert spilled(model) == [True, False]


class Drawn(nn.Linear):
    def __init__(self) -> None:
        super().__init__(300, 300)
        self.register_buffer("counted", torch.arange(4.0, dtype=torch.float32))
        self.register_buffer("count", torch.tensor(0))


class Mixed(nn.Module):
    """Parameters that are drawn, computed, tied, copied, parametrized, transposed, lazy; of several types."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = nn.Parameter(torch.randn(40, 30))
        self.computed = nn.Parameter(self.drawn.detach() * 2)
        self.tied = self.drawn
        self.turned = nn.Parameter(torch.randn(30, 40).T)
        self.shorter = nn.Parameter(torch.randn(50, dtype=torch.bfloat16))
        self.none = nn.Parameter(torch.zeros(0))
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))
        self.lazy = nn.LazyLinear(4)
        self.listed = nn.ParameterList([torch.randn(7) for _ in range(3)])
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 20), 3)
        self.recurrent = nn.LSTM(4, 5, 2)
        with torch.no_grad():
            self.drawn[3].zero_()
            nn.init.orthogonal_(self.computed)


def test_any_module_is_as_it_would_be(tmp_path, all_sizes):
    plain, after = made(Mixed)
    model, after_too = made(Mixed, penstock.zero.Init(tmp_path))
    names = [name for name, each in plain.named_parameters() if not isinstance(each, nn.UninitializedParameter)]
    a, b = dict(plain.named_parameters()), dict(model.named_parameters())
    assert list(a) == list(b) and all(same_bits(a[name], b[name]) and a[name].stride() == b[name].stride()
                                      for name in names)
    assert torch.equal(after, after_too) and model.tied is model.drawn
    assert all(spilled(model.layers)), "copies of a module are not spilled"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.name)
def test_a_model_of_transformers_is_as_it_would_be(tmp_path, all_sizes, family):
    pytest.importorskip("transformers")
    model = check(lambda: family.make(0.1), tmp_path)
    assert sum(spilled(model)) >= len(spilled(model)) - 1


def test_from_config_and_from_pretrained_work_within(tmp_path, all_sizes):
    transformers = pytest.importorskip("transformers", "5.0")
    transformers.utils.logging.disable_progress_bar()
    plain = next(each for each in FAMILIES if each.name == "Llama").make(0.0)
    plain.save_pretrained(tmp_path / "weights")
    make = transformers.AutoModelForCausalLM.from_config
    assert all(spilled(check(lambda: make(plain.config, dtype=torch.bfloat16), tmp_path)))
    os.environ.pop("HF_DEACTIVATE_ASYNC_LOAD", None)
    with penstock.zero.Init(tmp_path):
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "weights")
    assert "HF_DEACTIVATE_ASYNC_LOAD" not in os.environ
    assert all(spilled(model)) and equal(plain.state_dict(), model.state_dict())


def test_a_model_made_within_trains_as_plain_and_leaves_the_file(tmp_path, all_sizes):
    def losses(model):
        engine, _, _, _ = penstock.initialize(model, core=OpenFakeCore(), settings=penstock.Settings(
            dtype=torch.bfloat16))
        out = []
        for step in range(3):
            torch.manual_seed(step)
            value = small.loss(engine, small.ids(step))
            engine.backward(value)
            engine.step()
            out.append(value.item())
        return out, engine.state_dict()
    plain, model = made(small.Stack)[0], made(small.Stack, penstock.zero.Init(tmp_path))[0]
    assert all(spilled(model))
    expected, found = losses(plain), losses(model)
    assert expected[0] == found[0] and equal(expected[1], found[1])
    assert not any(spilled(model))


def test_the_file_has_no_name_and_goes_with_the_model(tmp_path, all_sizes):
    def files() -> list[str]:
        return [each for each in map(_target, os.listdir("/proc/self/fd")) if str(tmp_path) in each]
    model, _ = made(small.Stack, penstock.zero.Init(tmp_path))
    assert not list(tmp_path.iterdir()) and files()
    del model
    gc.collect()
    assert not files()


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_after_it_modules_are_made_as_ever(tmp_path, all_sizes):
    with pytest.raises(ZeroDivisionError), penstock.zero.Init(tmp_path):
        1 / 0
    assert not any(spilled(small.Stack()))
    with penstock.zero.Init(empty=True):
        assert nn.Linear(2, 2).weight.is_meta
    assert not nn.Linear(2, 2).weight.is_meta


def test_what_is_given_away_comes_back_as_it_was(tmp_path):
    spill = Spill(tmp_path)
    made = [spill.copy(torch.full((1 << 20,), float(at))) for at in range(4)]
    spill.let_go()
    assert all(torch.equal(each, torch.full((1 << 20,), float(at))) for at, each in enumerate(made))
    assert all(spill.has(each) for each in made) and not spill.has(torch.ones(3)) and not spill.has(torch.ones(
        3, device="meta"))


def test_a_directory_without_room_is_said_before_anything_is_written_to_it(tmp_path, monkeypatch, all_sizes):
    with pytest.raises(penstock.StorageError, match="no file can be made in .*nothing"), \
            penstock.zero.Init(tmp_path / "nothing"):
        pass

    def full(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(penstock.StorageError, match="no room for .* name a directory with room"), \
            penstock.zero.Init(tmp_path):
        small.Stack()
    assert not any(spilled(small.Stack()))


def test_a_file_system_in_memory_is_told():
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm")
    with pytest.warns(UserWarning, match="a file system in memory"), penstock.zero.Init("/dev/shm"):
        pass


PEAK = """
import penstock
from torch import nn
class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(layers))
        for each in self.layers:
            nn.init.normal_(each.weight)
class Seen:
    def __init__(self, spec, first):
        for unit, each in enumerate(spec.units):
            for index in range(len(each.parameters)):
                assert first(unit, index).abs().sum() > 0
        raise SystemExit(0)
def make(layers):
    with penstock.zero.Init(sys.argv[1]):
        model = Model(layers)
    try:
        penstock.initialize(model, core=Seen)
    except SystemExit:
        pass
make(2)
peak_of(lambda: make(40))
"""


def test_the_model_is_never_whole_in_memory(tmp_path):
    whole = 40 * 4 * 2048 * 2048
    assert peak_bytes(PEAK, str(tmp_path)) < whole // 4
