"""All features, by their nouns: whoever imports this has them all."""
from __future__ import annotations

from typing import Any

from . import backwards, hooks, outside, outside_weights  # noqa: F401
from . import parts_computing, parts_drawing, parts_graph, parts_holding  # noqa: F401
from .arguments import GIVES, TAKES
from .calls import CALLS
from .named import Named
from .part import PARTS
from .script import BACKWARDS, OUTSIDE

NOUNS: dict[str, Named[Any]] = {"parts": PARTS, "takes": TAKES, "gives": GIVES, "calls": CALLS, "outside": OUTSIDE,
                                "backwards": BACKWARDS}
