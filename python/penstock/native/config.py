"""The C interface by which a configuration is read (trainer/capi/penstock_config.h)."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import PenstockError, UsageError
from .library import library_of
from .structs import USAGE, Error

ABI = 1


class Text(ctypes.Structure):
    _fields_ = [("struct_bytes", ctypes.c_size_t), ("json", ctypes.c_char_p), ("name", ctypes.c_char_p),
                ("known", ctypes.c_char_p), ("own", ctypes.c_char_p), ("ranks", ctypes.c_uint32)]


def resolve(text: str, name: str, known: Mapping[str, Any] | None = None, own: Sequence[str] = (), ranks: int = 1
            ) -> dict[str, Any]:
    """What the text says of every key to so many processes, as the header describes it. Never raises for what the text has
    wrong: that is the list "wrong"."""
    loaded = _functions()
    given = Text(ctypes.sizeof(Text), text.encode(), name.encode(), json.dumps(dict(known or {})).encode(),
                 json.dumps(list(own)).encode(), ranks)
    config, error = ctypes.c_void_p(), Error()
    status = loaded.penstock_config_resolve(ctypes.byref(given), ctypes.byref(config), ctypes.byref(error))
    if not config:
        raise (UsageError if status == USAGE else PenstockError)(error.message.decode(errors="replace"))
    try:
        told = ctypes.string_at(loaded.penstock_config_json(config))
    finally:
        loaded.penstock_config_free(config)
    resolved: dict[str, Any] = json.loads(told)
    return resolved


def _functions() -> ctypes.CDLL:
    loaded = library_of("penstock_config.h", "penstock_config_abi_version", ABI)
    loaded.penstock_config_resolve.argtypes = (ctypes.POINTER(Text), ctypes.POINTER(ctypes.c_void_p),
                                               ctypes.POINTER(Error))
    loaded.penstock_config_resolve.restype = ctypes.c_int
    loaded.penstock_config_json.argtypes = (ctypes.c_void_p,)
    loaded.penstock_config_json.restype = ctypes.c_void_p
    loaded.penstock_config_free.argtypes = (ctypes.c_void_p,)
    loaded.penstock_config_free.restype = None
    return loaded
