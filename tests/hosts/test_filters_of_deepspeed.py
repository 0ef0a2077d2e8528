"""Hostfiles and filters as DeepSpeed's own functions read them. Wants a Python with DeepSpeed 0.19.8 in a venv of its own:

    python3 -m venv V && DS_BUILD_OPS=0 V/bin/pip install torch deepspeed==0.19.8
    PENSTOCK_DEEPSPEED_PYTHON=V/bin/python"""
from __future__ import annotations

import os
import subprocess

import pytest

import daemons
from training import ROOT

PYTHON = os.environ.get("PENSTOCK_DEEPSPEED_PYTHON", "")
pytestmark = [pytest.mark.long, pytest.mark.skipif(not PYTHON, reason="PENSTOCK_DEEPSPEED_PYTHON names no Python")]


def test_hosts_and_slots_are_deepspeeds_or_refused_on_purpose():
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "DS_ACCELERATOR": "cpu"}
    done = subprocess.run([PYTHON, ROOT / "tests/peers/launcher.py", "1000", "1"], env=variables, text=True, timeout=600,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    daemons.tell("hostfiles and filters beside DeepSpeed 0.19.8: "
                 + "; ".join(" ".join(each.split()) for each in done.stdout.splitlines() if each[:6].strip().isdigit()))
