"""Penstock for Python: a torch model whose weights, gradients and optimizer states are a core's, not torch's."""
from . import zero
from .core import Core, GroupValues, ModelSpec, OpenCore, ParameterSpec, UnitSpec, UpdateReport, UpdateRequest
from .engine import Engine
from .errors import (EndedError, ExactnessError, FitError, ModelError, NoGradientError, NonFiniteError, OptimizerError,
                     PenstockError, ReleasedError, StorageError, UsageError, WeightsError)
from .initialize import initialize
from .optimizer import Optimizer
from .run.forecast import Forecast
from .run.plan import Plan, plan
from .settings import Settings
from .store import Store
from .units import Unit, units_of

__all__ = [
    "Core", "EndedError", "Engine", "ExactnessError", "FitError", "Forecast", "GroupValues", "ModelError", "ModelSpec", "NoGradientError",
    "NonFiniteError", "OpenCore", "Optimizer", "OptimizerError", "ParameterSpec", "PenstockError", "Plan",
    "ReleasedError", "Settings", "StorageError", "Store", "Unit", "UnitSpec", "UpdateReport", "UpdateRequest",
    "UsageError", "WeightsError", "initialize", "plan", "units_of", "zero",
]
