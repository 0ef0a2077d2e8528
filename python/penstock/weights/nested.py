"""Whether a backward runs within a node of another one, as torch's reentrant checkpoint has it. Autograd tells nobody:
the Python frames of the thread do."""
from __future__ import annotations

import sys

from torch.autograd import function, graph

_RUNS = graph._engine_run_backward.__code__  # of every backward that Python begins
_NODE = function.BackwardCFunction.apply.__code__  # the outermost on a thread of autograd's own, which a GPU has


def is_nested() -> bool:
    """Of the backward that has called who asks."""
    runs, frame = 0, sys._getframe(1)
    while True:
        runs += frame.f_code is _RUNS
        if frame.f_back is None:
            return runs > (0 if frame.f_code is _NODE else 1)
        frame = frame.f_back
