"""Penstock for Python: a torch model whose weights, gradients and optimizer states are a core's, not torch's."""
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import zero
    from .core import Core, GroupValues, ModelSpec, OpenCore, ParameterSpec, UnitSpec, UpdateReport, UpdateRequest
    from .engine import Engine
    from .errors import (ArgumentError, EndedError, ExactnessError, FitError, ModelError, NoGradientError,
                         NonFiniteError, OptimizerError, PeerError, PenstockError, ReleasedError, StorageError, UsageError,
                         WeightsError)
    from .opening import initialize
    from .optimizer import Optimizer
    from .plans.forecast import Forecast
    from .plans.plan import Plan, plan
    from .settings import Settings
    from .store import Store
    from .units import Unit, units_of

__all__ = [
    "ArgumentError", "Core", "EndedError", "Engine", "ExactnessError", "FitError", "Forecast", "GroupValues",
    "ModelError", "ModelSpec", "NoGradientError", "NonFiniteError", "OpenCore", "Optimizer", "OptimizerError", "ParameterSpec", "PeerError",
    "PenstockError", "Plan", "ReleasedError", "Settings", "StorageError", "Store", "Unit", "UnitSpec", "UpdateReport",
    "UpdateRequest", "UsageError", "WeightsError", "initialize", "plan", "units_of", "zero",
]
_HOMES = ("errors", "core", "units", "settings", "store", "optimizer", "engine", "plans/plan", "plans/forecast", "opening")


def __getattr__(name: str) -> Any:
    """What is shown is imported, and torch with it, when somebody first asks for it: commands run without torch. So are
    modules of the package."""
    if name in __all__ and name != "zero":
        for home in _HOMES:
            here = vars(import_module("." + home.replace("/", "."), __name__))
            if name in here:
                globals()[name] = here[name]
                return here[name]
    if find_spec(f".{name}", __name__) is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__path__"]
