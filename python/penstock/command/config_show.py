"""python -m penstock config show: what a configuration that was written for DeepSpeed means here."""
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..native import config as config_library

OTHER = ("so reads penstock.initialize(config=...); `import penstock.deepspeed` reads some keys as DeepSpeed does: "
         "--as deepspeed")


def add(verbs: Any) -> None:
    """The verb, with what it takes."""
    config = verbs.add_parser("config", help="what a configuration that was written for DeepSpeed means here")
    show = config.add_subparsers(dest="what", required=True).add_parser(
        "show", help="what each \"auto\" became, what is read as something else, what is without effect and why")
    show.add_argument("file", type=Path)
    add_known(show)
    show.add_argument("--as", dest="reader", choices=("penstock", "deepspeed"), default="penstock",
                      help="who reads it: penstock.initialize(config=...), or deepspeed.initialize() of `import "
                           "penstock.deepspeed`, with DeepSpeed's defaults (%(default)s)")
    show.add_argument("--all", action="store_true", help="also the keys that nobody says, with their defaults")
    show.set_defaults(run=_show)


def add_known(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--known", type=json.loads, default={}, metavar="JSON",
                      help="values for keys that are \"auto\": '{\"optimizer.params.lr\": 2e-5}'")


def _show(chosen: argparse.Namespace) -> int:
    if chosen.reader == "deepspeed":
        return _show_as_deepspeed(chosen)
    try:
        text = chosen.file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"{chosen.file}: {error}", file=sys.stderr)
        return 2
    resolved = config_library.resolve(text, str(chosen.file), chosen.known)
    for line in lines_of(resolved, chosen.all):
        print(line)
    print(OTHER)
    return 2 if resolved["wrong"] or resolved["missing"] else 0


def _show_as_deepspeed(chosen: argparse.Namespace) -> int:
    """By the surface's own code, which imports torch. Raises UsageError."""
    try:
        from ..deepspeed.shown import shown
    except ImportError as error:
        raise UsageError(f"penstock config show --as deepspeed: {error}") from error
    seen = shown(str(chosen.file), chosen.known)
    resolved = {**seen.resolved, "obeyed": [each for each in seen.resolved["obeyed"] if each["key"] not in seen.unsaid]}
    for line in (*_part("as deepspeed.initialize() answers", list(seen.answers())),
                 *_part("by DeepSpeed's default", [f"{key} = {_json(value)}" for key, value in seen.unsaid.items()]),
                 *lines_of(resolved, chosen.all, "or transformers and Accelerate, which fill it in")):
        print(line)
    return 2 if resolved["wrong"] or resolved["missing"] else 0


def lines_of(resolved: dict[str, Any], defaults: bool = False,
             else_: str = "penstock.initialize(known=...)") -> Iterator[str]:
    yield from _part("wrong", resolved["wrong"])
    yield from _part(f"is auto, and must be known (--known, {else_})", resolved["missing"])
    yield from _part("obeyed", [f"{each['key']} = {_json(each['value'])}" for each in resolved["obeyed"]
                                if each["from"] == "file"])
    yield from _part("was auto", [f"{each['key']} = {_json(each['became'])}   ({each['rule']})"
                                  for each in resolved["auto"] if each["key"] not in resolved["missing"]])
    yield from _part("follows from others", [f"{each['key']} = {_json(each['value'])}" for each in resolved["obeyed"]
                                             if each["from"] == "other keys"])
    if defaults:
        yield from _part("by default", [f"{each['key']} = {_json(each['value'])}" for each in resolved["obeyed"]
                                        if each["from"] == "default"])
    yield from _part("read as something else", [
        f"{each['key']} = {_json(each['value'])}: {each['became']}   ({each['because']})"
        for each in resolved["translated"]])
    yield from _part("without effect here", [f"{each['key']}   (because {each['because']})"
                                             for each in resolved["without_effect"]])


def _part(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _json(value: Any) -> str:
    return "unknown" if value is None else json.dumps(value)

