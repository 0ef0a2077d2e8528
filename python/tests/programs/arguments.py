"""What units are given, and what they give: each container that programs use."""
from __future__ import annotations

import collections
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy
import torch

from .named import Named
from .part import Given
from .parts_holding import Box

Tensor = torch.Tensor
TAKES: Named[Takes] = Named()
GIVES: Named[Gives] = Named()


@dataclass
class Batch:
    x: Tensor
    scale: Any = None
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    x: Tensor
    scale: Any = None


class Pair(NamedTuple):
    x: Tensor
    scale: Any = None


class Takes:
    """`pack` is the model's side, `unpack` the unit's. `begin` is called at the beginning of each forward of the
    model: what lasts for one forward is made there."""

    def __init__(self, draw: random.Random) -> None:
        self.factor = draw.choice((0.5, 0.9, 1.1))

    def begin(self) -> None:
        pass

    def pack(self, x: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (x,), {}

    def unpack(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Given]:
        return args[0], Given()

    def scale(self) -> Tensor:
        return torch.tensor(self.factor)


@TAKES.of(8)
class OneTensor(Takes):
    """units are given x"""


@TAKES.of(2)
class Keywords(Takes):
    """units are given x and a scale by keyword"""

    def pack(self, x: Tensor) -> Any:
        return (), {"x": x, "scale": self.scale()}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        return kwargs["x"], Given(kwargs["scale"])


@TAKES.of(4)
class OneObject(Takes):
    """units are given x and a scale in a new container: a dict, dataclass, namespace, UserDict, NamedTuple"""

    kinds = {"dict": lambda x, scale: {"x": x, "scale": scale}, "dataclass": Batch, "frozen": Frozen, "pair": Pair,
             "namespace": lambda x, scale: SimpleNamespace(x=x, scale=scale),
             "user dict": lambda x, scale: collections.UserDict(x=x, scale=scale),
             "nested": lambda x, scale: [(x, {"scale": [scale, None]}), 3]}

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.kind = draw.choice(list(self.kinds))

    def pack(self, x: Tensor) -> Any:
        return (self.kinds[self.kind](x, self.scale()),), {}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        one, = args
        if self.kind == "nested":
            return one[0][0], Given(one[0][1]["scale"][0])
        if self.kind in ("dict", "user dict"):
            return one["x"], Given(one["scale"])
        return one.x, Given(one.scale)


@TAKES.of(5)
class Carried(Takes):
    """one dataclass, namespace, dict or UserDict goes through all units, and the model sets its field between them"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.kind = draw.choice(("dataclass", "namespace", "dict", "user dict", "list"))
        self.carrier: Any = None

    def begin(self) -> None:
        self.carrier = None

    def pack(self, x: Tensor) -> Any:
        if self.carrier is None:
            self.carrier = {"dataclass": Batch, "namespace": lambda x: SimpleNamespace(x=x), "dict": lambda x: {"x": x},
                            "user dict": lambda x: collections.UserDict(x=x), "list": lambda x: [x]}[self.kind](x)
        elif self.kind == "list":
            self.carrier[0] = x
        elif self.kind in ("dict", "user dict"):
            self.carrier["x"] = x
        else:
            self.carrier.x = x
        return (self.carrier,), {}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        one, = args
        if self.kind == "list":
            return one[0], Given()
        return (one["x"] if self.kind in ("dict", "user dict") else one.x), Given()


@TAKES.of(3)
class Generators(Takes):
    """units are given generators to draw from: torch's, numpy's and Python's, alone or in a dict"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.many = torch.Generator().manual_seed(1), numpy.random.default_rng(2), random.Random(3)
        self.how = draw.choice(("each", "dict", "torch"))

    def pack(self, x: Tensor) -> Any:
        if self.how == "dict":
            return (x, {"all": self.many}), {}
        return ((x, *self.many) if self.how == "each" else (x, self.many[0])), {}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        x, *rest = args
        return x, Given(generators=rest[0]["all"] if self.how == "dict" else tuple(rest))


@TAKES.of(3)
class Filled(Takes):
    """units are given a list to fill and an object whose number they raise, the same ones for all units"""

    def __init__(self, draw: random.Random) -> None:
        super().__init__(draw)
        self.adds = draw.random() < 0.5
        self.begin()

    def begin(self) -> None:
        self.fills: list[Any] = []
        self.box = Box()

    def pack(self, x: Tensor) -> Any:
        return (x, self.fills), {"box": self.box}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        x, fills = args
        if self.adds:
            fills.append(x.mean())
            kwargs["box"].number += 1
            x = x + fills[-1] * 0.1 + 0.01 * kwargs["box"].number
        return x, Given(fills=fills, box=kwargs["box"])


@TAKES.of(2)
class Callables(Takes):
    """units are given a function that closes over a tensor of the model's, and an argument that is None"""

    def pack(self, x: Tensor) -> Any:
        shift = x.mean(0)
        return (x, lambda y: y + 0.1 * shift, None), {}

    def unpack(self, *args: Any, **kwargs: Any) -> Any:
        x, function, _ = args
        return function(x), Given()


class Gives:
    """`pack` is the unit's side, `read` the model's."""

    def __init__(self, draw: random.Random) -> None:
        self.kind = draw.choice(sorted(self.kinds))

    kinds: dict[str, Any] = {"": None}

    def pack(self, x: Tensor, unit: Any) -> Any:
        return x

    def read(self, out: Any) -> Tensor:
        return out  # type: ignore[no-any-return]


@GIVES.of(8)
class Alone(Gives):
    """units give a tensor"""


@GIVES.of(6)
class Containers(Gives):
    """units give x, its sine and a number in a tuple, list, dict, dataclass, namespace, UserDict, or nested"""

    kinds = {"tuple": tuple, "list": list, "dict": lambda each: dict(zip("xyz", each)),
             "pair": lambda each: Pair(each[0], each[1]), "dataclass": lambda each: Batch(each[0], each[1]),
             "namespace": lambda each: SimpleNamespace(x=each[0], scale=each[1]),
             "user dict": lambda each: collections.UserDict(zip("xyz", each)),
             "nested": lambda each: {"x": [each[0]], "y": (each[1], {"n": each[2]})}}

    def pack(self, x: Tensor, unit: Any) -> Any:
        return self.kinds[self.kind]((x, x.sin(), 3))

    def read(self, out: Any) -> Tensor:
        if self.kind in ("tuple", "list", "pair"):
            x, y = out[0], out[1]
        elif self.kind in ("dict", "user dict"):
            x, y = out["x"], out["y"]
        elif self.kind == "nested":
            x, y = out["x"][0], out["y"][0]
        else:
            x, y = out.x, out.scale
        return x + 0.1 * y


@GIVES.of(2)
class Weights(Gives):
    """units give their weight beside x: itself, a view of it, detached, in a dict"""

    kinds = {"itself": lambda w: w, "view": lambda w: w[:4].t(), "detached": lambda w: w.detach(),
             "dict": lambda w: {"w": w}}

    def pack(self, x: Tensor, unit: Any) -> Any:
        return x, self.kinds[self.kind](unit.parts[0].linear.weight)

    def read(self, out: Any) -> Tensor:
        x, weight = out
        return x + 0.01 * (weight["w"] if self.kind == "dict" else weight).mean()


@GIVES.of(1)
class InputsToo(Gives):
    """units give x twice, a view of it, and a detached alias of it"""

    def pack(self, x: Tensor, unit: Any) -> Any:
        return x, x, x[:2], x.detach()

    def read(self, out: Any) -> Tensor:
        x, same, part, alias = out
        return x + 0.1 * same + 0.1 * part.mean() + 0.1 * alias
