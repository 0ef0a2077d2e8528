#!/usr/bin/env bash
# tests/peers/venv.sh llamafactory|axolotl|older DIR: a Python in DIR with that peer from PyPI, and with Penstock of
# this checkout in DeepSpeed's place; 5 to 8 GB.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root peer=$1 venv=$2

case $peer in
  llamafactory) packages=(llamafactory==0.9.5) ;;
  axolotl) packages=(axolotl==0.19.0) ;;
  older) packages=(transformers==4.49.0 trl==0.15.2 accelerate==1.4.0 datasets==3.6.0 peft rich) ;;
  *) echo "venv.sh: no peer '$peer'; there are llamafactory, axolotl, older" >&2; exit 2 ;;
esac

python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check uv  # pip tries versions of Axolotl's for minutes
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" torch==2.11.0 "${packages[@]}"
echo "$root/python" > "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/penstock.pth"
if [[ $peer != older ]]; then  # its script's first line does it
  "$venv/bin/python" -m penstock deepspeed install
fi
