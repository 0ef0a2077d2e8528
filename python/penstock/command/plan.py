"""penstock plan: what a training of a model is going to take. By itself it needs no torch."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import config_show
from ..errors import UsageError

DTYPES = ("bfloat16", "float16", "float32")
OF_PROGRAM = ("--model", "--dir", "--set", "--bytes-only")  # what only the program's own `plan` has


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    verb = verbs.add_parser("plan", help="what a training takes: memory, room on NVMe, bytes and time of a step",
                            description="Nothing is made: the model is on meta. Exit code 3: it does not fit.")
    verb.add_argument("model", help="a directory of Hugging Face's (its config.json is read), or MODULE:FUNCTION, "
                                    "which is imported and called and gives the model; a configuration of `penstock "
                                    "train`: the program's own plan")
    verb.add_argument("--config", type=Path, help="DeepSpeed's JSON, as penstock.initialize() takes it")
    config_show.add_known(verb)
    verb.add_argument("--store", action="append", help="a directory; once per drive; without one all is in host memory")
    verb.add_argument("--host-budget", type=int, metavar="BYTES", help="limit of the pinned memory")
    verb.add_argument("--dtype", choices=DTYPES, help="what the model is made before it is managed")
    verb.add_argument("--batch", metavar="ROWSxTOKENS", help="how long a step takes, by measuring one on this machine: of "
                      "input_ids and labels, as models of transformers take them; or MODULE:FUNCTION, which gives what the "
                      "model's forward takes")
    verb.add_argument("--loss", metavar="MODULE:FUNCTION", help="makes the loss of what the model gives")
    verb.add_argument("--seconds", type=float, default=0.4, help="of each measurement, of which there are some ten "
                      "(%(default)s); 0: none is made")
    verb.add_argument("--endurance", type=float, default=0.0, metavar="TB",
                      help="that the drives together are rated to have written: days until then")
    verb.add_argument("--ranks", type=int, default=1, metavar="N", help="what N processes that train one model take: each, "
                      "those of a machine, all, and what they send each other; no times")
    verb.add_argument("--ranks-per-node", type=int, metavar="M", help="of them on one machine, which is like this one (all)")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(run=_plan)


def is_of_the_program(words: Sequence[str]) -> bool:
    """Whether what follows `plan` is of a configuration of the program's: its file, or what only the program takes."""
    if any(word.partition("=")[0] in OF_PROGRAM for word in words):
        return True
    alone = [word for before, word in zip(("", *words), words)
             if not word.startswith("-") and (before == "--json" or not before.startswith("-"))]
    return any(word.endswith(".json") or Path(word).is_file() for word in alone)


def _plan(chosen: argparse.Namespace) -> int:
    try:
        from . import planned
    except ImportError as error:
        raise UsageError(f"penstock plan needs torch: {error}; `penstock doctor` says what else is missing") from error
    return planned.run(chosen)
