"""Features by name. One is written "name/7" where a program has it: 7 is the seed of what it draws for itself, so that
it stays as it is when others are left out."""
from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")
RARE = 0.2


class Named(Generic[T]):
    """Classes or functions of one noun, each with a docstring that says what a program with it does."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[..., T]] = {}
        self.weights: dict[str, float] = {}

    def of(self, weight: float) -> Callable[[Any], Any]:
        """How often it is drawn, beside the others. RARE is what a recompute cannot put back, or what is refused by
        name: where one program in fifty may end in an error, few may have it."""
        def add(maker: Any) -> Any:
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", maker.__name__).lower()
            assert name not in self.makers and maker.__doc__, name
            self.makers[name], self.weights[name] = maker, weight
            return maker
        return add

    def make(self, feature: str, *given: Any) -> T:
        name, _, seed = feature.partition("/")
        return self.makers[name](random.Random(int(seed or 0)), *given)

    def draw(self, draw: random.Random, but: Iterable[str] = ()) -> str:
        without = set(but)
        names = [each for each in self.makers if each not in without]
        name, = draw.choices(names, [self.weights[each] for each in names])
        return f"{name}/{draw.randrange(20)}"

    def words(self, feature: str) -> str:
        text = self.makers[feature.partition("/")[0]].__doc__ or ""
        return " ".join(text.split())


def name_of(feature: str) -> str:
    return feature.partition("/")[0]
