"""Values of a program's own in checkpoints and commits: they come back equal, or are refused by their place."""
from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import json
import math
import pathlib
import random
import types
import uuid

import numpy
import pytest
import torch

import penstock
from penstock.checkpoints import client_values as values


class Mode(enum.Enum):
    FAST = 1
    EXACT = "exact"


class Level(enum.IntEnum):
    LOW = 3


class Option(enum.Flag):
    A = 1
    B = 2


def plain_values():
    return [None, True, 3, -(1 << 63) + 1, 1 << 63, 7 ** 9000, 0.1, -0.0, math.inf, 1 + 2j, "text \ud800 ü", b"\x00\xff",
            bytearray(b"ab"), [1, [2.5, None]], (1, (2,)), {1: "a", "1": "b", None: 2, (1, 2): 3}, {1, 2}, frozenset("ab"),
            range(1, 9, 3), slice(1, None), collections.OrderedDict(b=1, a=2), collections.Counter({2: 1, 6: 4}),
            collections.defaultdict(list, {"x": [1]}), collections.deque([1, 2], maxlen=2), argparse.Namespace(lr=0.1),
            types.SimpleNamespace(a=argparse.Namespace(b=[1]), make=1), pathlib.Path("/a/b"), pathlib.PureWindowsPath("c:\\x"),
            uuid.UUID(int=5), decimal.Decimal("1.10"), fractions.Fraction(1, 3), datetime.date(2026, 11, 26),
            datetime.datetime(2026, 11, 26, 18, 45, 1, 5, datetime.timezone.utc, fold=1), datetime.time(1, 2, 3),
            datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "mine")),
            datetime.timedelta(days=-1, microseconds=3), Mode.EXACT, Level.LOW, Option.B]


def tensors_and_arrays():
    return [torch.Size([1, 2]), torch.bfloat16, torch.device("cuda:1"), torch.randn(2, 3), torch.randn(3).bfloat16(), torch.tensor(1.5),
            torch.tensor([float("nan")]), torch.empty(0, 3), torch.randn(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)),
            torch.tensor([1 + 2j]).conj(), torch.randn(4, 4).t()[1:], numpy.float64(0.5), numpy.int32(3), numpy.bool_(True),
            numpy.float32("nan"), numpy.str_("x"), numpy.datetime64("2026-11-26"), numpy.arange(6).reshape(2, 3), numpy.zeros((0, 2)),
            numpy.array(["a", "bc"]), numpy.array([1.5], dtype=">f4"), numpy.asfortranarray(numpy.ones((2, 2)))]


def states_of_generators():
    return [random.getstate(), random.Random(3).getstate(), numpy.random.get_state(), numpy.random.get_state(legacy=False),
            numpy.random.default_rng(1).bit_generator.state, numpy.random.Generator(numpy.random.Philox(3)).bit_generator.state,
            torch.get_rng_state(), torch.Generator().manual_seed(3).get_state()]


@pytest.mark.parametrize("value", [*plain_values(), *tensors_and_arrays(), *states_of_generators()], ids=lambda each: type(each).__name__)
def test_a_value_comes_back_equal_from_a_text_and_from_a_file(value):
    found = values.from_text(values.to_text({"value": value}, "state"))["value"]
    assert values.same(found, value) and type(found) is type(value)
    file = io.BytesIO()
    torch.save(values.encode([value], "state"), file)
    file.seek(0)
    assert values.same(values.decode(torch.load(file, weights_only=True))[0], value)


def test_what_differs_is_not_the_same():
    for a, b in ((0.0, -0.0), (1, 1.0), (1, True), ([1], (1,)), ({"a": 1}, {"a": 2}), (numpy.float32(1), numpy.float64(1)),
                 (torch.zeros(1), torch.zeros(1).double()), (torch.zeros(1), -torch.zeros(1)), ([1, 2], [1]), (Mode.FAST, Mode.EXACT),
                 (numpy.zeros(2), numpy.zeros(3)), (argparse.Namespace(a=1), argparse.Namespace(a=2))):
        assert not values.same(a, b), (a, b)
    assert values.same(math.nan, float("nan"))


@dataclasses.dataclass
class Arguments:
    lr: float = 0.1


class Own:
    pass


class OwnDict(dict):
    pass


Pair = collections.namedtuple("Pair", "a b")


def itself() -> list:
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize("value, said", [
    (Own(), "Own, which is not kept: give plain values"), (Arguments(), "dataclasses.asdict"), (Pair(1, 2), "_asdict"),
    (print, "functions and classes are code"), (lambda: 0, "code"), (OwnDict(), "give a dict"), (itself(), "holds itself"),
    (random.Random(1), "getstate"), (numpy.random.default_rng(1), "bit_generator.state"), (torch.Generator(), "get_state"),
    (torch.nn.Linear(1, 1), "state_dict"), (torch.randn(2, requires_grad=True) * 2, "detach"), (Option.A | Option.B, "value"),
    (torch.ones(2, 2).to_sparse(), "dense"), (collections.defaultdict(lambda: 0), "give a dict"),
    (numpy.array([object()]), "plain values"), (iter([1]), "plain values")], ids=lambda each: type(each).__name__)
def test_a_value_without_a_kind_is_refused_by_its_place(value, said):
    with pytest.raises(penstock.UsageError, match=said) as refused:
        values.encode({"args": argparse.Namespace(best=[1, value])}, "client_state")
    assert str(refused.value).startswith("client_state['args'].best[1]")


def test_a_value_that_would_not_be_found_again_is_refused():
    class Local(enum.Enum):
        HERE = 1
    with pytest.raises(penstock.UsageError, match="state has .*Local.HERE, which nothing finds by this name"):
        values.encode([Local.HERE], "state")


class Pretending:
    __members__ = {"A": print}


def test_reading_runs_no_code_and_imports_nothing():
    for tree in (["enum", __name__, "Pretending", "A"], ["os.system", "true"], ["enum", "os", "system", "x"], ["enum", "antigravity", "X", "A"], ["default", "exec"],
                 ["list", ["dict"], ["no such kind"]], ["dtype", "load"], ["timedelta", "x"], [3], [], ["numpy_array", "|O", ["tuple"], ["bytes", ""]]):
        with pytest.raises(values.Unreadable):
            values.decode(tree)
    with pytest.raises(values.Unreadable):
        values.from_text(json.dumps(["list", {"dtype": "load", "shape": [], "bytes": ""}]))
