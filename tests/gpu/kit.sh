#!/usr/bin/env bash
# kit.sh FOLDER: runs all that wants a GPU and leaves its results in FOLDER, within nine minutes: summary.txt has a line
# for each part, with a log beside it. What fails does not stop the rest. Needs: a Python with a torch that sees a GPU.
#   KIT_DEVICE=emulated   a dry run without a GPU
#   KIT_PYTHON=python3    another Python
#   KIT_SECONDS=540       the time for all of it
#   KIT_PARTS="a b"       only the parts of these names; machine and install are always done
#   KIT_PLAN=quick        of the part `yardstick` (bench/peers/gpu.py): quick, 3b or 7b
#   KIT_PEERS=FOLDER      wheels of peers for it, as of DeepSpeed with its ops compiled beforehand
set -uo pipefail

kit=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
results=$(cd "$1" && pwd)
readonly kit results
readonly device=${KIT_DEVICE:-cuda} python=${KIT_PYTHON:-python3} seconds=${KIT_SECONDS:-540} parts=${KIT_PARTS:-}
plan=${KIT_PLAN:-$([[ $device == cuda ]] && echo quick || echo dry)}
work=$(mktemp -d "${TMPDIR:-/tmp}/penstock-kit-XXXXXX")
trap 'rm -rf "$work"' EXIT
SECONDS=0

# part NAME SECONDS COMMAND...: at most so long, and never beyond the time for all.
part() {
  local name=$1 limit=$2 begin=$SECONDS rc
  shift 2
  [[ -z $parts || " machine install $parts " == *" $name "* ]] || return 0
  ((limit <= seconds - SECONDS)) || limit=$((seconds - SECONDS))
  if ((limit < 5)); then
    echo "$name: not run: no time is left" | tee -a "$results/summary.txt"
    return
  fi
  # shellcheck disable=SC2016  # so that a function can be timed, too
  timeout --kill-after=5 "$limit" bash -c '"$@"' _ "$@" >"$results/$name.log" 2>&1
  rc=$?
  echo "$name: $( ((rc == 0)) && echo passed || echo "FAILED, exit code $rc") in $((SECONDS - begin)) s" | tee -a "$results/summary.txt"
}

machine() {
  date -u +%FT%TZ
  cat "$kit/commit"
  nvidia-smi || true
  "$python" -c 'import sys, torch; print(sys.version); print(torch.__version__, torch.version.cuda, torch.cuda.is_available())'
  lscpu | grep -E '^(Model name|CPU\(s\))'
  df -h "$work"
}

# What this Python lacks of what the kit brings; never another torch.
install() {
  local wheels=("$kit"/wheels/penstock-*.whl) package
  "$python" -m pip install --quiet --no-index --no-deps --target "$work/site" "${wheels[@]}" || return 1
  if [[ -n ${KIT_PEERS:-} ]]; then
    "$python" -m pip install --quiet --no-index --no-deps --target "$work/site" "$KIT_PEERS"/*.whl || return 1
  fi
  for package in pytest transformers; do
    "$python" -c "import $package" 2>/dev/null ||
      "$python" -m pip install --quiet --no-index --find-links "$kit/wheels" --target "$work/site" "$package" || return 1
  done
}

# bench NAME VERB ARGUMENT...: of penstock-bench, with its figures in the file NAME.json.
bench() {
  mkdir -p "$work/bench"
  "$kit/bin/penstock-bench" "$2" --json --dir "$work/bench" "${@:3}" >"$results/$1.json"
}

# steps_on NAME DEVICE ROUNDS ARGUMENT...: on 16 cores, with three contenders, a round takes up to 75 s.
steps_on() {
  bench "$1" step --set "memory.device=$2" --set gradient_clipping=0 --rounds "$3" --steps 2 --warm-up 1 --seconds 0.5 \
    "${@:4}"
}

# tests FILE: with its cases side by side where the Python can do that.
tests() {
  local workers=()
  ! "$python" -c 'import xdist' 2>/dev/null || workers=(-n "$(($(nproc) < 6 ? $(nproc) : 6))")
  "$python" -m pytest -q -p no:cacheprovider "${workers[@]}" "$kit/$1"
}

# yardstick SECONDS: Penstock beside torch, FSDP2 and DeepSpeed, each run as a line of yardstick.jsonl.
yardstick() {
  mkdir -p "$work/yardstick"
  "$python" "$kit/gpu.py" plan "$plan" --device "$device" --dir "$work/yardstick" --seconds "$1" --out "$results/yardstick.jsonl"
  "$python" "$kit/gpu.py" table "$results/yardstick.jsonl"
}

fine_tune() { "$python" "$kit/fine_tune.py" "$1" --dir "$work/$1-$2" --device "$device" "${@:3}"; }

torch_libraries() {
  "$python" -c 'import glob, os, torch
root = os.path.dirname(os.path.dirname(torch.__file__))
print(":".join([os.path.join(root, "torch/lib"), *glob.glob(os.path.join(root, "nvidia/*/lib"))]))'
}

main() {
  : >"$results/summary.txt"
  part machine 60 machine
  part install 60 install
  export PYTHONPATH=$work/site PENSTOCK_GPU=$device CUBLAS_WORKSPACE_CONFIG=:4096:8
  LD_LIBRARY_PATH=$kit/lib:$(torch_libraries)
  export LD_LIBRARY_PATH
  local filter='*OwnMemory*' shape=${KIT_SHAPE:-0.5b} orders=after_backward,within
  part device 60 "$kit/bin/tests_core" "--gtest_filter=$filter"
  part python 200 tests test_gpu.py
  part trainer 200 tests test_trainer.py
  part yardstick 240 yardstick 235
  part null 60 bench null swap --null --rounds 3 --seconds 1
  part transfer 60 bench transfer transfer --size 1GiB
  part fine_tune 120 fine_tune penstock nvme --shape "$shape" --steps 6 --tokens 1024
  part all_in_torch 60 fine_tune torch memory --shape "$shape" --steps 6 --tokens 1024
  if [[ $device == cuda ]]; then
    part torch_repeats 40 "$python" "$kit/torch_repeats.py"
    if command -v compute-sanitizer >/dev/null; then
      part sanitizer 60 compute-sanitizer --error-exitcode 9 "$kit/bin/tests_core" "--gtest_filter=$filter"
    fi
    part step_gpu 200 steps_on step_cuda cuda 1 --tokens 8192 --orders "$orders"
    part step_gpu_ordered 90 steps_on step_gpu_ordered cuda 1 --tokens 8192 --orders within --set run.deterministic=true
    part step_gpu_tf32 90 steps_on step_gpu_tf32 cuda 1 --tokens 8192 --orders within --set run.matmul=high
    part step_cpu 200 steps_on step_cpu cpu 2 --tokens 1024 --orders "$orders"
    part fine_tune_3b 200 fine_tune penstock 3b --shape 3b --steps 3 --tokens 1024
  fi
  ! grep -q FAILED "$results/summary.txt"
}

export -f machine install bench tests steps_on yardstick fine_tune
export kit results device python work plan
main
