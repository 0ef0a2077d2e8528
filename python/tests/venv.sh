#!/usr/bin/env bash
# Makes .peers/python, a Python with torch, transformers, TRL and what the package's tests need; some 5 GB, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly venv=.peers/python

"$venv/bin/python" -c 'from importlib.metadata import version as v
assert v("torch").startswith("2.11.0") and v("transformers") == "5.23.0" and v("peft") and v("pytest-xdist") and v("trl") == "1.16.0" and v("sentence-transformers") == "6.2.0"' 2>/dev/null && exit
mkdir -p .peers
rm -rf "$venv"
python3 -m venv "$venv"
# Unpacking takes more than a small /tmp has.
TMPDIR=$PWD/.peers "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
  torch==2.11.0 transformers==5.23.0 accelerate peft trl==1.16.0 sentence-transformers==6.2.0 numpy safetensors pytest pytest-xdist mypy
