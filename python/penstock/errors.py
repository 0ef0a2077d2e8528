"""What goes wrong: each kind says what, where, and what can be done."""
from __future__ import annotations

from collections.abc import Iterable


class PenstockError(RuntimeError):
    """Any error of this package."""


class UsageError(PenstockError):
    """A call or a setting that cannot be; nothing has changed."""


class ArgumentError(UsageError, TypeError):
    """An argument that a call does not have."""


class ModelError(UsageError):
    """The model cannot be managed, or was changed while it is."""


class WeightsError(UsageError):
    """Files of weights that cannot be read, or that do not fit the model; nothing was changed."""


class OptimizerError(UsageError):
    """The optimizer cannot be mapped to one of the core's."""


class ReleasedError(PenstockError):
    """Values of a parameter were asked for while its memory is not there."""


class NoGradientError(UsageError):
    """A step without any gradient."""


class NonFiniteError(PenstockError):
    """A gradient that is not a number; the last step is untouched."""


class PeerError(PenstockError):
    """Another process of those that train the model was lost, or has failed and said why."""


class FitError(PenstockError):
    """Units that are needed at once find no room in the budget."""


class ExactnessError(PenstockError):
    """A forward that was run again in backward was another one: its gradients would be wrong."""


class StorageError(PenstockError):
    """The store cannot be read or written; what was committed stays."""


class EndedError(StorageError):
    """An earlier error has ended the core; what was committed stays."""


def some(names: Iterable[str], most: int = 5) -> str:
    """The first names of many, for an error's text."""
    listed = list(names)
    text = ", ".join(f"'{name}'" for name in listed[:most])
    return text if len(listed) <= most else f"{text} and {len(listed) - most} more"
