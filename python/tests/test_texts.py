"""What the package's texts name is there: arguments, calls of the engine, keys of a configuration."""
from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import penstock
import small_models as small
from fake_core import OpenFakeCore
from penstock.configuration.config import read_config
from penstock.errors import UsageError
from penstock.native import config as config_library

PACKAGE = Path(penstock.__file__).resolve().parent
SOURCES = PACKAGE.parents[1]
VALUE = "…"  # stands for what an f-string puts in
CALL = re.compile(r"(?<![\w.])((?:penstock\.)?(?:\w+\.)*\w+)\(((?:[^()]|\([^()]*\))*)\)?")
ARGUMENT = re.compile(r"(?:^|,)\s*([a-z]\w*)=(?!=)")
CGROUP = {f"memory.{name}" for name in ("stat", "max", "current", "limit_in_bytes", "usage_in_bytes")}  # its files
SECTIONS = ("memory", "run", "aio", "keep", "zero_optimization", "data_types", "bf16", "bfloat16", "fp16",
            "optimizer.params", "scheduler.params")
KEY = re.compile(rf"(?<![\w./])((?:{'|'.join(map(re.escape, SECTIONS))})\.\w+(?:\.\w+)*)(?!\w|\()")


def texts_of(source: str) -> list[tuple[int, str]]:
    """Lines and strings: those of an f-string are one."""
    found, parts = [], set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(each) for each in ast.walk(node) if isinstance(each, ast.Constant))
            found.append((node.lineno, "".join(str(each.value) if isinstance(each, ast.Constant) else VALUE
                                               for each in node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            found.append((node.lineno, node.value))
    return found


def all_texts() -> list[tuple[str, str]]:
    return [(f"{file.relative_to(PACKAGE)}:{line}", " ".join(text.split()))
            for file in sorted(PACKAGE.rglob("*.py")) for line, text in texts_of(file.read_text())]


# What penstock.deepspeed answers itself.
SURFACE_KEYS = {"fp16.auto_cast", "bfloat16.enabled", "zero_optimization.stage3_param_persistence_threshold"}
SURFACE_CALLS = {"scale"}


def known_keys() -> set[str]:
    """That change something: a remedy names no other."""
    return set(config_library.resolve("{}", "none")["values"]) | SURFACE_KEYS


@pytest.fixture(scope="module")
def engine():
    return penstock.initialize(small.Stack(), core=OpenFakeCore())[0]


def named(path: str, engine):
    """What a text calls; None: it is not of this package."""
    first, *rest = path.split(".")
    if first == "penstock":
        found = penstock
        for number, name in enumerate(rest):
            if not hasattr(found, name):
                try:
                    importlib.import_module(".".join(("penstock", *rest[:number + 1])))
                except ModuleNotFoundError as error:
                    if error.name and error.name.startswith("penstock"):
                        raise LookupError(f"there is no {path}") from error
                    return None  # of what is not installed
            found = getattr(found, name)
        return found
    if first == "engine" and len(rest) == 1:
        if rest[0] in SURFACE_CALLS:
            return None
        if not hasattr(engine, rest[0]):
            raise LookupError(f"the engine has no {rest[0]}()")
        return getattr(engine, rest[0])
    return {"Store": penstock.Store, "Settings": penstock.Settings}.get(path)


def complaints_about(text: str, engine, keys: set[str]) -> list[str]:
    wrong = []
    for path, given in CALL.findall(text):
        try:
            called = named(path, engine)
        except LookupError as error:
            wrong.append(str(error))
            continue
        if called is None:
            continue
        there = {name for name in inspect.signature(called).parameters if name != "said"}
        wrong += [f"{path}() has no {name}=" for name in ARGUMENT.findall(re.sub(r"\([^()]*\)", "", given))
                  if name not in there]
    return wrong + [f"there is no key {key}" for key in KEY.findall(text) if key not in keys | CGROUP]


@pytest.mark.parametrize("text, wrong", [
    ("say penstock.initialize(snapshots=...)", "has no snapshots="), ("Store(gradients='cpu', tier=1)", "has no tier="),
    ("penstock.Settings(keep=True)", "has no keep="), ("call engine.settle() first", "no settle()"),
    ("penstock.forecast(model)", "no penstock.forecast"), ("engine.gathered(x, modified=True)", "has no modified="),
    ("say memory.budget", "no key memory.budget"), ("aio.block_size is read", "no key aio.block_size"),
    ("model.hidden and memory.host_budget, engine.gathered(each, modify=True), Store('/a')", None),
    ("penstock.Settings(activations=\"keep\") and f(x=1), zero_optimization.offload_param.device", None)])
def test_a_text_that_names_what_is_not_there_is_found(text, wrong, engine):
    found = complaints_about(text, engine, known_keys())
    assert (found == []) if wrong is None else (len(found) == 1 and wrong in found[0])


def test_every_text_names_what_is_there(engine):
    keys = known_keys()
    texts = all_texts()
    wrong = [f"{place}: {each}" for place, text in texts for each in complaints_about(text, engine, keys)]
    assert not wrong, "\n".join(wrong)
    assert sum("penstock.initialize(" in text for _, text in texts) > 10, "it reads them"


def test_texts_of_an_order_of_updates_name_its_setting():
    orders = re.compile(r"'(within)'|(?<!\w)update_order '")
    wrong = [f"{place}: {text}" for place, text in all_texts()
             if orders.search(text) and "Store(update_order=" not in text]
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(not (SOURCES / "trainer").is_dir(), reason="the sources are not there")
def test_the_key_tables_texts_name_keys_that_there_are():
    files = [file for room in ("trainer/config", "trainer/capi", "zero_infinity/keys")
             for file in sorted((SOURCES / room).glob("*.cpp"))]
    source = "\n".join(file.read_text() for file in files)
    keys = set(re.findall(r'(?:KeySpec\{|without\(|off\()"([\w.]+)"', source))
    strings = ["".join(re.findall(r'"((?:[^"\\]|\\.)*)"', group))
               for group in re.findall(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*', source)]
    found = {key for text in strings for key in KEY.findall(text)}
    assert len(found) > 100 and not {key for key in found if key not in keys and not any(
        each.startswith(key + ".") for each in keys)}


def test_each_key_that_a_merge_names_is_one():
    from penstock.configuration.merged import SETTINGS_KEYS
    from penstock.store import STORE_KEYS
    assert set(STORE_KEYS.values()) | set(SETTINGS_KEYS.values()) <= known_keys()


def test_the_reasons_of_keys_without_effect_are_sentences_about_this_package():
    text = {"aio": {"block_size": 1, "queue_depth": 8, "thread_count": 1, "single_submit": True, "use_gds": True}}
    told = config_library.resolve(json.dumps(text), "ds.json")["without_effect"]
    assert {each["key"] for each in told} == {f"aio.{name}" for name in text["aio"]}
    assert all(len(each["because"]) > 20 for each in told)
    with pytest.raises(UsageError, match="aio.deadline"):
        config_library_read({"aio": {"deadline": 0}})


def config_library_read(config):
    return read_config(config)
