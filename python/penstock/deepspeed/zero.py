"""deepspeed.zero: a model is made outside of memory, and its parameters are gathered."""
from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from types import TracebackType
from typing import Any

import torch
from torch import nn

from . import comm
from .. import zero
from ..errors import UsageError
from ..weights.parameter import Managed, Released, engine_of
from .configuration.given import configuration, section
from .configuration.values import check_places


class ZeroParamStatus(Enum):
    """Of `parameter.ds_status`."""

    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class ZeroParamType(Enum):
    NORMAL = 1
    PARTITIONED = 2
    REMOTE = 3


class Init(contextlib.AbstractContextManager["Init"]):
    """Parameters that are made within it lie in a file without a name, in the configuration's nvme_path or a temporary
    directory, until an engine takes them; they stay ordinary tensors (penstock.zero.Init), of the type that is said here, or
    that the configuration trains in."""

    within = False  # one is running: an inner one does nothing

    def __init__(self, module: nn.Module | None = None, data_parallel_group: Any = None,
                 mem_efficient_linear: bool = True, remote_device: str | None = None, pin_memory: bool = False,
                 config_dict_or_path: Any = None, config: Any = None, enabled: bool = True,
                 dtype: torch.dtype | None = None, mpu: Any = None, **others: Any) -> None:
        self._inner: zero.Init | None = None
        if not enabled:
            return
        comm.init_distributed()  # transformers asks torch.distributed which rank it is
        given = config_dict_or_path if config_dict_or_path is not None else config
        if module is None:  # one that is there stays where it is until an engine takes it
            read = {} if given is None else configuration(given)
            check_places(read)
            self._inner = zero.Init(_directory_of(read), mpu=mpu, dtype=dtype or _type_of(read), **others)

    def __enter__(self) -> Init:
        if self._inner is not None and not Init.within:
            self._inner.__enter__()
            Init.within = True
        else:
            self._inner = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        if self._inner is not None:
            Init.within = False
            self._inner.__exit__(kind, error, trace)


def _type_of(config: Mapping[str, Any]) -> torch.dtype | None:
    """"auto" is nobody's word yet."""
    types = {"bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "fp16": torch.float16}
    return next((each for key, each in types.items() if section(config, key).get("enabled") is True), None)


def _directory_of(config: Mapping[str, Any]) -> str:
    there = section(config, "zero_optimization", "offload_param")
    path = there.get("nvme_path") if there.get("device") == "nvme" else None
    if not path:
        return tempfile.gettempdir()
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as problem:
        raise UsageError(f"zero_optimization.offload_param.nvme_path '{path}' cannot be made: "
                         f"{problem.strerror}") from problem
    return str(path)


class GatheredParameters(contextlib.AbstractContextManager[None]):
    """Weights that are read come by themselves, also within a pass. With a `modifier_rank` they are there within it,
    and what was changed is kept: of several processes what that one has changed. Those of a model without an engine are
    there anyway."""

    def __init__(self, params: Any, modifier_rank: int | None = None, fwd_module: Any = None, enabled: bool = True
                 ) -> None:
        changes = enabled and modifier_rank is not None
        chosen = listed(params) if changes else []
        self._managed = list(dict.fromkeys(each for each in chosen if isinstance(each, Managed)))
        self._stack = contextlib.ExitStack()
        self._rank = modifier_rank
        self._of: dict[Any, list[nn.Parameter]] = {}  # by engine
        for each in self._managed:
            self._of.setdefault(engine_of(each), []).append(each)

    def __enter__(self) -> None:
        for engine, parameters in self._of.items():
            self._stack.enter_context(engine.gathered(parameters, modify=True))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        for engine, parameters in self._of.items():
            if engine.group is not None and kind is None:
                for each in parameters:
                    engine.group.take_first(each.detach(), self._rank or 0)
        self._stack.__exit__(kind, error, trace)


def listed(params: Any) -> list[Any]:
    """Of a parameter, a module, or whatever has them."""
    if isinstance(params, torch.Tensor):
        return [params]
    if isinstance(params, nn.Module):
        return list(params.parameters())
    return [each for inner in params or () for each in (listed(inner) if isinstance(inner, (list, tuple)) else [inner])]


def register_external_parameter(module: nn.Module, parameter: nn.Parameter) -> None:
    """Nothing: a weight that is read outside of its unit comes by itself."""


@contextlib.contextmanager
def unwrap_model_for_generation(model: Any, *_: Any, **__: Any) -> Iterator[Any]:
    """The module."""
    yield getattr(model, "module", model)


def as_it_is(function: Any, *_: Any, **__: Any) -> Any:
    """Constructors of tensors are torch's own."""
    return function


def is_zero_param(parameter: Any) -> bool:
    """It is an engine's."""
    return isinstance(parameter, Managed)


@contextlib.contextmanager
def OnDevice(dtype: torch.dtype, device: str = "meta", enabled: bool = True) -> Iterator[None]:  # noqa: N802
    """What is made within it is there, in that type."""
    if not enabled:
        yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


def _status(parameter: nn.Parameter) -> ZeroParamStatus:
    return ZeroParamStatus.NOT_AVAILABLE if isinstance(parameter, Released) else ZeroParamStatus.AVAILABLE


def _sub_modules(parameter: nn.Parameter) -> set[int]:
    """Of DeepSpeed's hooks, of which there are none."""
    return set()


# What programs look for on a parameter of DeepSpeed's.
ANSWERS: dict[str, Any] = {
    "ds_id": id, "ds_numel": torch.Tensor.numel, "ds_shape": lambda each: each.shape, "ds_status": _status,
    "ds_persist": lambda each: not isinstance(each, Released), "ds_active_sub_modules": _sub_modules}


def tell_of_ordinary(model: nn.Module) -> None:
    """On parameters that stay in memory."""
    for each in model.parameters():
        if not isinstance(each, Managed):
            each.__dict__.update((name, answer(each)) for name, answer in ANSWERS.items())


def answer_of_parameters() -> None:
    """On those of engines."""
    for name, answer in ANSWERS.items():
        setattr(Managed, name, property(answer))
