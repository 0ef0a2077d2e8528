"""Families of transformers, trained managed and by plain torch: the same bits. Writes the table FAMILIES.md."""
from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

from compare import Training, differences  # noqa: E402
from cores import NATIVE  # noqa: E402
from families import FAMILIES, Family, batches  # noqa: E402

TABLE = Path(__file__).resolve().parents[1] / "FAMILIES.md"
STEPS = 5
OUTCOMES: dict[str, list[str]] = defaultdict(list)
CASES = [(dropout, accumulation) for dropout in (0.1, 0.0) for accumulation in (1, 3)]


def training(family: Family, dropout: float, accumulation: int, tied: bool | None) -> Training:
    return Training(lambda: family.make(dropout, tied), list(batches(family, STEPS * accumulation)),
                    accumulation=accumulation, clip=1.0)


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    if len(OUTCOMES) == len(FAMILIES):
        write_table()


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.name)
def test_family_trains_to_the_bits_of_plain_torch(family):
    transformers.logging.set_verbosity_error()
    OUTCOMES[family.name] = []
    count = 0
    for dropout, accumulation in CASES:
        for tied in ((True, False) if family.ties else (None,)):
            case = f"dropout {dropout}, accumulation {accumulation}" + ("" if tied is None else f", tied {tied}")
            one = training(family, dropout, accumulation, tied)
            try:
                found = differences(one.plain(), one.managed())
            except Exception as error:  # the table says what it was
                found = [f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"]
            OUTCOMES[family.name] += [f"{case}: {each}" for each in found]
            count += 1
    assert not OUTCOMES[family.name], OUTCOMES[family.name]


def write_table() -> None:
    equal = sum(not each for each in OUTCOMES.values())
    lines = [
        "# Families", "",
        "Written by tests/test_families.py: tiny random configurations, fp32 on the CPU, "
        f"{STEPS} steps of AdamW with clipping and weight decay,",
        "dropout 0.1 and 0, accumulation 1 and 3, tied and untied where a configuration can say so; over "
        + ("the core on NVMe." if NATIVE else "a fake core."),
        "Equal: losses, final weights, buffers and random states are the same bits as plain torch's (foreach=False).",
        "",
        f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}: {equal} of {len(OUTCOMES)} "
        "families equal.", "", "| family | class | outcome | reason |", "|---|---|---|---|"]
    for family in FAMILIES:
        bad = OUTCOMES[family.name]
        lines.append(f"| {family.name} | `{family.model}` | {'differs' if bad else 'equal'} | "
                     f"{bad[0].replace('|', '/') if bad else ''} |")
    new = TABLE.with_suffix(".new")
    new.write_text("\n".join(lines) + "\n")
    os.replace(new, TABLE)
