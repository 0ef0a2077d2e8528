"""What `penstock plan` prints. Imports torch."""
from __future__ import annotations

import argparse
import importlib
import inspect
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..configuration.config import read_config
from ..errors import UsageError
from ..files.meta_model import of_directory
from ..opening import in_memory
from ..plans.of_ranks import checked
from ..plans.plan import plan
from ..settings import Settings
from ..store import as_store


def run(chosen: argparse.Namespace) -> int:
    """Of what plan.py has parsed; the exit code."""
    checked(chosen.ranks, chosen.ranks_per_node)
    read = None if chosen.config is None else read_config(chosen.config, chosen.known, ranks=chosen.ranks)
    place: Any = read.store_at(chosen.store) if read else chosen.store
    if chosen.host_budget is not None:
        place = in_memory(read) if place is None else as_store(place)
        place = replace(place, host_budget_bytes=chosen.host_budget)
    settings = read.settings if read else Settings()
    if chosen.dtype is not None:
        settings = replace(settings, dtype=getattr(torch, chosen.dtype))
    model = model_of(chosen.model)
    loss = None if chosen.loss is None else _named(chosen.loss)
    batch = None if chosen.batch is None else batch_of(chosen.batch, model)
    told = plan(model, None, place, optimizer=read.optimizer if read else None, settings=settings, batch=batch,
                loss=loss, seconds=chosen.seconds, endurance_bytes=chosen.endurance * 1e12, ranks=chosen.ranks,
                ranks_per_node=chosen.ranks_per_node)
    print(told.json() if chosen.json else told)
    return 0


def batch_of(given: str, model: nn.Module) -> Any:
    """Of tokens that mean nothing, or what a function gives."""
    shape = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,8})", given)
    if shape is None:
        return _named(given)()
    taken = inspect.signature(model.forward).parameters
    if "input_ids" not in taken and not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        raise UsageError(f"--batch {given} is of input_ids, as models of transformers take them, and "
                         f"{type(model).__name__}.forward() takes {', '.join(taken) or 'nothing'}: name a function that gives "
                         "its batch, --batch MODULE:FUNCTION")
    config: Any = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None) or 2
    ids = torch.randint(0, vocabulary, tuple(map(int, shape.groups())), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "labels": ids} | ({"use_cache": False} if hasattr(config, "use_cache") else {})


def model_of(given: str) -> nn.Module:
    """On meta."""
    if (Path(given) / "config.json").is_file():
        return of_directory(given)
    make = _named(given, "neither a directory with a config.json nor MODULE:FUNCTION")
    with torch.device("meta"):
        made = make()
    if not isinstance(made, nn.Module):
        raise UsageError(f"'{given}' gives a {type(made).__name__}, not a torch.nn.Module")
    return made


def _named(given: str, otherwise: str = "not MODULE:FUNCTION") -> Any:
    module, _, function = given.partition(":")
    if not function:
        raise UsageError(f"'{given}' is {otherwise}")
    here = os.getcwd()
    sys.path.insert(0, here)  # where `python -m` looks, but no command does
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"'{given}': {error}; name a module that Python finds from here (PYTHONPATH) and a function "
                         "or class in it") from error
    finally:
        sys.path.remove(here)
