#!/usr/bin/env bash
# Makes .peers/deepspeed, a Python with torch and DeepSpeed, whose optimizers bench/peers/optimizer.py times; some 5 GB, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly venv=.peers/deepspeed

if ! "$venv/bin/python" -c 'from importlib.metadata import version as v
assert v("torch").startswith("2.11.0") and v("deepspeed") == "0.19.8"' 2>/dev/null; then
  mkdir -p .peers
  rm -rf "$venv"
  python3 -m venv "$venv"
  # Unpacking takes more than a small /tmp has.
  TMPDIR=$PWD/.peers "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \
    torch==2.11.0 deepspeed==0.19.8 numpy ninja setuptools
fi
# DeepSpeed compiles each of its parts when it is first used: some minutes that no measurement should wait for, nor its
# time limit cut off, since the lock of a compilation that was killed is waited for in silence, for ever.
rm -f "${TORCH_EXTENSIONS_DIR:-$HOME/.cache/torch_extensions}"/*/*/lock
DS_ACCELERATOR=cpu "$venv/bin/python" - <<'PYTHON'
from deepspeed.ops.op_builder import AsyncIOBuilder
from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

for part in (AsyncIOBuilder, ShareMemCommBuilder):
    part().load()
PYTHON
"$venv/bin/python" bench/peers/optimizer.py --numel 4096 --threads 1 --seconds 0
