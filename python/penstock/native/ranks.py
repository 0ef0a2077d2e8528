"""The structures and functions of zero_infinity/ranks/capi/penstock_ranks.h."""
from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

from . import structs as c
from .session import functions_of, made

CONTROL, BULK = range(2)  # penstock_channel
CALL = CFUNCTYPE(c_int, c_int, c_void_p, c_void_p, c_uint64, c_void_p, POINTER(c.Error))
ABORT = CFUNCTYPE(None, c_char_p, c_void_p)
PUT = CFUNCTYPE(c_int, c_char_p, c_char_p, c_void_p, POINTER(c.Error))
PUT_FIRST = CFUNCTYPE(c_int, c_char_p, c_char_p, c_void_p, c_size_t, c_void_p, POINTER(c.Error))
GET = CFUNCTYPE(c_int, c_char_p, c_void_p, c_size_t, c_void_p, POINTER(c.Error))


class Ranks(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("rank", c_uint32), ("ranks", c_uint32), ("name", c_char_p),
                ("deadline_ms", c_uint64), ("all_gather", CALL), ("exchange", CALL), ("abort", ABORT), ("user", c_void_p),
                ("put", PUT), ("put_first", PUT_FIRST), ("get", GET)]


class RankRates(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("small_seconds", c_double), ("gather_bytes_per_s", c_double),
                ("exchange_bytes_per_s", c_double), ("sum_bytes_per_s", c_double)]


FUNCTIONS = {"probe": (POINTER(Ranks), c_uint64, POINTER(RankRates))}


def probe(ranks: Ranks, count: int) -> dict[str, float]:
    """Checks a sum over the ranks, and measures with `count` bytes of each: RankRates by name. All ranks call it at once."""
    rates = made(RankRates)
    functions_of("penstock_ranks_", FUNCTIONS)["probe"](ctypes.byref(ranks), count, ctypes.byref(rates))
    return {name: getattr(rates, name) for name, *_ in RankRates._fields_[1:]}
