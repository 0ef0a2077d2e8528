"""The structures of zero_infinity/capi/penstock_session.h, penstock_forecast.h and penstock_look.h, member by member, and
the functions that take them."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p

ABI = 1
OK, INTERNAL, USAGE, DOES_NOT_FIT, STORAGE, OUT_OF_MEMORY, NON_FINITE, PEER_LOST = range(8)
DAMAGED, POISONED, BUSY, NOT_FOUND = 16, 17, 32, 33
TYPE_DEFAULT, BF16, FP16, FP32, U8 = range(5)
UNUSED = {"refused": 0, "allowed": 1, "skipped": 2}
PASSES = {"training": 0, "inference": 1}
GRADIENTS = {"cpu": 0, "nvme": 1, "auto": 2}
DEVICES = {"cpu": 0, "emulated": 1, "cuda": 2}
BOTTLENECKS = ("nvme", "processor", "both", "order")
WHAT = {"weight": 0, "master": 1, "moment0": 2, "moment1": 3}


class Error(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 2044)]


class Parameter(Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_int64)), ("dimensions", c_size_t), ("frozen", c_int),
                ("unused", c_int), ("group", c_uint32)]


class Unit(Structure):
    _fields_ = [("name", c_char_p), ("parameters", POINTER(Parameter)), ("parameter_count", c_size_t),
                ("borrowed", c_void_p), ("borrowed_count", c_size_t), ("frozen_type", c_int), ("resident", c_int)]


class Group(Structure):
    _fields_ = [("learning_rate", c_double), ("weight_decay", c_double), ("beta1", c_double), ("beta2", c_double),
                ("epsilon", c_double), ("momentum", c_double), ("dampening", c_double), ("nesterov", c_int),
                ("lr_decay", c_double), ("initial_accumulator", c_double)]


class Visit(Structure):
    _fields_ = [("units", POINTER(c_uint32)), ("unit_count", c_size_t)]


class Model(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("units", POINTER(Unit)), ("unit_count", c_size_t),
                ("unit_struct_bytes", c_size_t), ("parameter_struct_bytes", c_size_t), ("optimizer", c_int),
                ("groups", POINTER(Group)), ("group_count", c_size_t), ("group_struct_bytes", c_size_t),
                ("training", POINTER(Visit)), ("training_count", c_size_t),
                ("inference", POINTER(Visit)), ("inference_count", c_size_t)]


class Value(Structure):
    _fields_ = [("key", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


FirstWeights = ctypes.CFUNCTYPE(c_int, c_uint32, c_uint32, c_uint64, c_uint64, c_void_p, POINTER(Error), c_void_p)
Progress = ctypes.CFUNCTYPE(None, c_char_p, c_uint64, c_uint64, c_void_p)


class Options(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("directories", POINTER(c_char_p)), ("directory_count", c_size_t),
                ("job", c_char_p), ("resume_from", c_char_p), ("go_back", c_int), ("host_budget_bytes", c_uint64),
                ("prefetch_depth", c_uint32), ("staging_tiles", c_uint32), ("tile_elements", c_uint64),
                ("weights", c_int), ("states", c_int), ("device", c_int), ("device_index", c_int),
                ("device_budget_bytes", c_uint64), ("commit_steps", c_uint64), ("scratch", c_int), ("verify", c_int),
                ("snapshots", c_int), ("codec", c_char_p), ("gradient_type", c_int), ("threads", c_uint32),
                ("backend", c_int), ("caching", c_int), ("deadline_ms", c_uint64), ("values", POINTER(Value)),
                ("value_count", c_size_t), ("first_weights", FirstWeights), ("progress", Progress), ("user", c_void_p),
                ("update_order", c_int), ("gradients", c_int), ("activation_budget_bytes", c_uint64),
                ("fill_host_budget", c_int), ("trace", c_char_p), ("trace_first_step", c_uint64),
                ("trace_steps", c_uint64), ("forwards", c_int), ("clips", c_int), ("settings", c_char_p), ("ranks", c_void_p)]


TakeValue = ctypes.CFUNCTYPE(None, POINTER(Value), c_void_p)


class Look(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("content", c_int), ("generation", c_uint64), ("in_use", c_int)]


class Info(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("resumed", c_int), ("prefetch_depth", c_uint32), ("pool_bytes", c_uint64),
                ("memory_table", c_char_p), ("io", c_char_p), ("planned_bytes", c_double), ("read_bytes", c_uint64),
                ("write_bytes", c_uint64), ("pool_peak_bytes", c_uint64), ("waited_ns", c_uint64),
                ("visits", c_uint64), ("expected_visits", c_uint64), ("device_bytes", c_uint64),
                ("laid_bytes", c_uint64), ("laid_away_bytes", c_uint64), ("gathered_bytes", c_uint64),
                ("exchanged_bytes", c_uint64), ("waited_for_ranks_ns", c_uint64)]


class PlanUse(Structure):
    _fields_ = [("name", c_char * 32), ("bytes", c_uint64)]


class Plan(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("pool_bytes", c_uint64), ("device_bytes", c_uint64),
                ("store_bytes", c_uint64), ("prefetch_depth", c_uint32), ("use_count", c_uint32),
                ("uses", PlanUse * 16), ("read_bytes", c_uint64), ("write_bytes", c_uint64),
                ("resident_write_bytes", c_uint64), ("planned_bytes", c_double), ("parameters", c_uint64),
                ("trainable_parameters", c_uint64), ("memory_table", c_char * 2048), ("available_bytes", c_uint64),
                ("further_read_bytes", c_uint64), ("further_write_bytes", c_uint64)]


class RanksPlan(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("ranks", c_uint32), ("ranks_of_node", c_uint32),
                ("gathered_bytes", c_uint64), ("exchanged_bytes", c_uint64), ("first_gathered_bytes", c_uint64),
                ("zero_bytes", c_double * 4), ("text", c_char * 3072)]


def uses_of(plan: Plan) -> dict[str, int]:
    """What the pool is divided into: bytes."""
    return {each.name.decode(): each.bytes for each in plan.uses[:plan.use_count]}


class Rates(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("read", c_double), ("write", c_double), ("both", c_double),
                ("flush_seconds", c_double), ("submit_per_byte", c_double), ("hash_per_byte", c_double),
                ("update_per_element", c_double), ("norm_per_element", c_double), ("threads", c_uint32),
                ("cores", c_uint32), ("places", c_char * 1024), ("notes", c_char * 1024), ("text", c_char * 1024),
                ("contended_compute", c_double), ("contended_device", c_double)]


class LaidItem(Structure):
    _fields_ = [("turn", c_uint64), ("bytes", c_uint64), ("laid_in", c_size_t), ("taken_in", POINTER(c_size_t)),
                ("taken_count", c_size_t)]


class Compute(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("visits", POINTER(Visit)), ("visit_count", c_size_t),
                ("seconds", POINTER(c_double)), ("forward_count", c_size_t), ("passes", c_uint64),
                ("rest_seconds", c_double), ("tokens", c_uint64), ("endurance_bytes", c_double),
                ("laid", POINTER(LaidItem)), ("laid_count", c_size_t)]


class Forecast(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("nvme_seconds", c_double), ("update_seconds", c_double),
                ("read_bytes", c_double), ("write_bytes", c_double), ("seconds", c_double),
                ("forward_seconds", c_double), ("backward_seconds", c_double), ("after_seconds", c_double),
                ("commit_seconds", c_double), ("wait_weights_seconds", c_double), ("wait_states_seconds", c_double),
                ("compute_seconds", c_double), ("reading_seconds", c_double), ("writing_seconds", c_double),
                ("driver_seconds", c_double), ("processor_seconds", c_double), ("bottleneck", c_int),
                ("hiding_compute", c_double), ("tokens_that_hide_nvme", c_double),
                ("written_bytes_per_day", c_double), ("days_to_endurance", c_double), ("text", c_char * 2048),
                ("wait_spills_seconds", c_double)]


class Place(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("offset_bytes", c_uint64), ("numel", c_uint64), ("type", c_int),
                ("frozen", c_int)]


class UnitMemory(Structure):
    _fields_ = [("trainable", c_void_p), ("frozen", c_void_p)]


class Gradient(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("data", c_void_p), ("numel", c_uint64), ("type", c_int), ("fresh", c_int)]


class Step(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("step", c_uint64), ("groups", POINTER(Group)), ("group_count", c_size_t),
                ("group_struct_bytes", c_size_t), ("clip", c_double), ("loss_scale", c_double), ("may_skip", c_int),
                ("values", POINTER(Value)), ("value_count", c_size_t)]


class StepReport(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("gradient_norm", c_double), ("updated", c_int), ("committed", c_int),
                ("update_ns", c_uint64), ("commit_ns", c_uint64), ("committed_before", c_int), ("updated_again", c_int)]


class SnapshotProgress(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("under_way", c_int), ("done_bytes", c_uint64), ("total_bytes", c_uint64)]


SESSION = c_void_p
# Arguments of the functions but for the error, which all of these have at their end.
FUNCTIONS = {
    "open": (POINTER(Model), POINTER(Options), POINTER(SESSION)),
    "plan": (POINTER(Model), POINTER(Options), POINTER(Plan)),
    "plan_ranks": (POINTER(Model), POINTER(Options), c_uint32, c_uint32, c_uint64, POINTER(Plan), POINTER(RanksPlan)),
    "measure": (POINTER(Model), POINTER(Options), c_double, POINTER(Rates)),
    "forecast": (POINTER(Model), POINTER(Options), POINTER(Rates), POINTER(Compute), POINTER(Forecast)),
    "check": (POINTER(Options),),
    "look": (c_char_p, POINTER(Look), TakeValue, c_void_p),
    "end": (SESSION,),
    "close": (SESSION,),
    "get_info": (SESSION, POINTER(Info)),
    "value_at": (SESSION, c_size_t, POINTER(Value)),
    "place": (SESSION, c_uint32, c_uint32, POINTER(Place)),
    "expect": (SESSION, c_int, POINTER(Visit), c_size_t),
    "begin_pass": (SESSION, c_int),
    "compute_on": (SESSION, c_void_p),
    "visit": (SESSION, POINTER(c_uint32), c_size_t, POINTER(c_uint32), c_size_t, POINTER(UnitMemory)),
    "end_pass": (SESSION,),
    "resident": (SESSION, c_uint32, POINTER(UnitMemory)),
    "open_gradient": (SESSION, c_uint32, c_uint32, POINTER(Gradient)),
    "gradient": (SESSION, c_uint32, c_uint32, POINTER(Gradient)),
    "make_gradient": (SESSION, c_uint32, c_uint32, POINTER(Gradient)),
    "clear_gradient": (SESSION, c_uint32, c_uint32),
    "clear_gradients": (SESSION,),
    "gradient_norm": (SESSION, POINTER(c_double)),
    "lay": (SESSION, c_uint64, c_uint64, POINTER(c_void_p)),
    "take": (SESSION, c_uint64, POINTER(c_void_p)),
    "drop": (SESSION, c_uint64),
    "begin_step": (SESSION, POINTER(Step), POINTER(c_int)),
    "complete": (SESSION, c_uint32),
    "update": (SESSION, POINTER(Step), POINTER(StepReport)),
    "settle": (SESSION,),
    "gather": (SESSION, c_char_p, c_void_p, c_void_p, c_uint64),
    "read": (SESSION, c_uint32, c_uint32, c_int, c_void_p, c_uint64),
    "write": (SESSION, c_uint32, c_uint32, c_int, c_void_p, c_uint64),
    "begin_snapshot": (SESSION, c_char_p),
    "snapshot_progress": (SESSION, POINTER(SnapshotProgress)),
    "finish_snapshot": (SESSION,),
}
READER_FUNCTIONS = {
    "open": (POINTER(Model), POINTER(Options), POINTER(SESSION)),
    "read": (SESSION, c_uint32, c_uint32, c_int, c_void_p, c_uint64),
    "close": (SESSION,),
}
