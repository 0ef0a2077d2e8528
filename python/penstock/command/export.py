"""python -m penstock export: weights of a store or a checkpoint as files that transformers reads."""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .plan import DTYPES
from ..errors import UsageError


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    verb = verbs.add_parser("export", help="weights of a store or a checkpoint as files that transformers reads",
                            description="Needs neither the model nor a GPU, and memory for one tensor. The store must not "
                                        "be in use by a training; its checkpoints may be read beside it.")
    verb.add_argument("source", type=Path, metavar="STORE|CHECKPOINT",
                      help="a store's directory, a directory of checkpoints or a Trainer's output (the newest is taken), or one "
                           "checkpoint")
    verb.add_argument("out", type=Path, metavar="OUT", help="a directory that is made")
    verb.add_argument("--tag", help="of the checkpoint, in the place of the newest")
    verb.add_argument("--dtype", choices=DTYPES, help="of the weights; float32: the masters. Default: as they were "
                                                      "computed with")
    verb.add_argument("--also", type=Path, action="append", default=[], metavar="DIR",
                      help="a store's further directory, in the order in which they were given; once per drive")
    verb.add_argument("--max-shard-bytes", type=float, default=5e9, metavar="BYTES", help="of one file (%(default)g)")
    verb.add_argument("--overwrite", action="store_true", help="a directory of weights at OUT is replaced once the new one is whole")
    verb.add_argument("--model-names", action="store_true",
                      help="tensors have the names of the model's state_dict(), and no configuration is written")
    verb.set_defaults(run=_export)


def _export(chosen: argparse.Namespace) -> int:
    try:
        import torch

        from ..files.export import save_directory
        from ..files.stored_weights import StoredWeights
    except ImportError as error:
        raise UsageError(f"penstock export needs torch: {error}; `penstock doctor` says what else is missing") from error
    dtype = None if chosen.dtype is None else getattr(torch, chosen.dtype)
    with StoredWeights(chosen.source, chosen.tag, chosen.also, chosen.model_names) as weights:
        save_directory(weights, chosen.out, dtype, chosen.max_shard_bytes, chosen.overwrite)
        print(f"{chosen.out}: {weights.parameters:,} parameters of {weights.description.model}")
    return 0
