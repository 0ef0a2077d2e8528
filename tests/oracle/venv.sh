#!/usr/bin/env bash
# Makes .peers/torch, a Python with the torch that tests/oracle/optimizers.py compares with; some 5 GB, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly venv=.peers/torch

"$venv/bin/python" -c 'import torch, numpy; assert torch.__version__.startswith("2.11.0")' 2>/dev/null && exit
mkdir -p .peers
rm -rf "$venv"
python3 -m venv "$venv"
# Unpacking takes more than a small /tmp has.
TMPDIR=$PWD/.peers "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
  torch==2.11.0 numpy
