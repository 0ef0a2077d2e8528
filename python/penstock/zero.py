"""penstock.zero.Init(): a model larger than memory is made by its own code, as with deepspeed.zero.Init()."""
from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from .configuration.deepspeed_calls import NoSuchCallError, check_init
from .errors import UsageError
from .files.spill import Spill

__all__ = ["Init"]

SPILLED_BYTES_MIN = 1 << 16  # smaller parameters, such as biases and norms, stay in memory
RESIDENT_BYTES = 64 << 20  # may have been touched before the pages are given back


class Init:
    """Within it, each parameter that a module is given goes at once to a file without a name in `directory` (which must
    be on a drive, with room for the model in the type in which it is made), and stays an ordinary tensor: its memory is
    the mapped file's, and leaves the process's as other parameters come. So the code that makes and draws the model
    runs as it is, in its order, on the same generator: the values are, bit for bit, those of plain construction.

    `dtype`: parameters of floating point have this type from their registration on, so that they are drawn in it, and
    half the room is enough; None: the one in which the code makes them.

    With `empty=True` parameters have no values and no memory (they are on meta) while buffers are made as ever: for
    penstock.initialize(weights=...).

    One at a time; it sees modules that its own thread makes. Of DeepSpeed's arguments `enabled=False` does nothing
    within it, and the others are nothing here, or named in an error.
    """

    def __init__(self, directory: str | os.PathLike[str] = "/var/tmp", *, empty: bool = False, enabled: bool = True,
                 dtype: torch.dtype | None = None, **deepspeeds: Any) -> None:
        check_init(deepspeeds)
        if dtype is not None and not dtype.is_floating_point:
            raise UsageError(f"penstock.zero.Init(dtype={dtype}): a type of floating point")
        self._directory, self._empty, self._enabled, self._dtype = directory, empty, enabled, dtype
        self._end: list[Callable[[], None]] = []

    def __enter__(self) -> Init:
        if not self._enabled:
            return self
        if self._empty:
            self._end = [_at_registration(lambda _, __, each: _on_meta(each, self._dtype))]
            return self
        spill = Spill(self._directory)
        mode: Any = _LetGo(spill)
        mode.__enter__()
        self._end = [_at_registration(lambda _, __, each: _spilled(spill, each, self._dtype)),
                     lambda: mode.__exit__(None, None, None), _load_one_by_one(), spill.let_go]
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for each in self._end:
            each()
        self._end = []


def __getattr__(name: str) -> Any:
    if name == "GatheredParameters":
        raise NoSuchCallError("penstock.zero.GatheredParameters: of a managed model it is engine.gathered(parameters, "
                              "modify=True); while the model is made its parameters are readable as they are")
    raise AttributeError(f"penstock.zero has no '{name}'")


class _LetGo(TorchFunctionMode):
    """Gives pages back when enough have been touched, and spills the copies that deepcopy() makes of modules."""

    def __init__(self, spill: Spill) -> None:
        super().__init__()
        self._spill, self._touched_bytes = spill, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        first: Any = next(iter((*args, *(kwargs or {}).values())), None)  # torch.nn.init names it
        if _is_plain(first) and self._spill.has(first):
            if func is torch.Tensor.clone and out.is_contiguous():
                out.data = self._spill.copy(out)
            self._touched_bytes += first.numel() * first.element_size()
            if self._touched_bytes >= RESIDENT_BYTES:
                self._spill.let_go()
                self._touched_bytes = 0
        return out


def _at_registration(hook: Any) -> Callable[[], None]:
    """The hook is called with each parameter that any module is given, until what this returns is."""
    return register_module_parameter_registration_hook(hook).remove


def _is_plain(value: Any) -> bool:
    """A tensor with memory of its own: of no other class, such as the parameters of lazy modules."""
    return type(value) in (torch.Tensor, nn.Parameter)


def _spilled(spill: Spill, parameter: Any, dtype: torch.dtype | None) -> None:
    if not _is_plain(parameter):
        return
    if dtype not in (None, parameter.dtype) and parameter.is_floating_point():
        parameter.data = parameter.data.to(dtype)
    if parameter.device.type != "cpu" or not parameter.is_contiguous():
        return
    if parameter.numel() * parameter.element_size() >= SPILLED_BYTES_MIN and not spill.has(parameter):
        parameter.data = spill.copy(parameter.data)


def _on_meta(parameter: Any, dtype: torch.dtype | None) -> nn.Parameter | None:
    if not _is_plain(parameter) or parameter.is_meta and dtype in (None, parameter.dtype):
        return None
    wanted = dtype if parameter.is_floating_point() else None
    empty = nn.Parameter(parameter.data.to("meta", wanted), requires_grad=parameter.requires_grad)
    empty.__dict__.update(parameter.__dict__)
    return empty


def _load_one_by_one() -> Callable[[], None]:
    """from_pretrained() of transformers 5 reads ahead with threads, without a limit, unless it is told not to."""
    name = "HF_DEACTIVATE_ASYNC_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"

    def restore() -> None:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return restore
