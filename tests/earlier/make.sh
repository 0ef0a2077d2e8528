#!/usr/bin/env bash
# Makes what tests of earlier stores hold this program to: stores.tar.xz, beside this file. It was made by an earlier
# program, and may be made anew only with that one or an earlier one still: else it would show nothing.
#
#   git worktree add /tmp/earlier f5206ea
#   (cd /tmp/earlier && ./run build && cmake --build build/release --target penstock_library)
#   tests/earlier/make.sh /tmp/earlier/build/release
#
# With --abi before the build folder: abi.txt, of the first program with this PENSTOCK_ABI_VERSION (1). c_store.c is
# written for the header of version 0.
#
# In the archive, for each codec (split, compact):
#   CODEC/       a training of three steps: configuration, tokens, store, run directory, and the snapshot of step 2
#   CODEC.store  what that program says of the store, every tile's hash included
#   CODEC.kept   and of the snapshot
#   CODEC.log    the log of the same training when it had gone on to step 6
#   CODEC.end    and the store then
# and besides
#   machine      where that was
#   c/           a store of the C library on two devices (c_store.c), left as by a kill
set -euo pipefail

only_abi=
[[ $1 != --abi ]] || { only_abi=1 && shift; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The same bits on every processor: earlier_program_test.cpp runs the new program in the same way.
penstock() {
  env ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE "$build/penstock" "$@"
}

# training NAME FEED_FORWARD CODEC: few parameters, but several tiles in a unit, two devices, and both slots in use.
training() {
  local name=$1
  mkdir "$work/stores/$name"
  cd "$work/stores/$name"
  cat >config.json <<END
{
  "model": {"hidden": 8, "layers": 1, "heads": 2, "feed_forward": $2, "context": 16},
  "data": {"train": "text.tokens"},
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 2,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003, "weight_decay": 0.1}},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "nvme"}},
  "memory": {"host_budget": "4MiB", "tile_elements": 4096, "codec": "$3"},
  "keep": {"every": 2},
  "run": {"directory": "run", "swap_directory": ["swap.0", "swap.1"], "steps": 6, "threads": 1, "sample": {"tokens": 0}}
}
END
  # Words in no order that a model could know, as many as 1 kB has room for.
  awk 'BEGIN { for (i = 0; i < 180; ++i) { n = (n * 1103 + 12345) % 65536; printf "word%d ", n % 17 } }' >text.txt
  penstock prepare --out text.tokens text.txt
  penstock train config.json --steps 3
  penstock ckpt verify swap.0 --also swap.1
  penstock ckpt show swap.0 --json >"../$name.store"
  penstock ckpt show swap.0 step-2 --json >"../$name.kept"

  cp -r . "$work/then"
  penstock train config.json
  penstock ckpt verify swap.0 --also swap.1
  cp run/log.jsonl "../$name.log"
  penstock ckpt show swap.0 --json >"../$name.end"
  cd "$work/stores"
  rm -rf "$name"
  mv "$work/then" "$name"
}

machine() {
  local torch
  torch=$(sed -n 's/^PENSTOCK_TORCH_DIR:PATH=//p' "$build/CMakeCache.txt")
  echo "$(uname -m), torch $(sed -n "s/^__version__ *= *'\([0-9.]*\).*/\1/p" "$torch/version.py")," \
    "glibc $(getconf GNU_LIBC_VERSION | cut -d' ' -f2)"
}

include=(-I"$work/prefix/include/penstock" -I"$here")

abi() {
  c++ -std=c++20 "${include[@]}" -include penstock.h -x c++ - -o "$work/abi" <<'END'
#include "abi.h"
#include <cstdio>
int main() { std::fputs(penstock::testing::abi_text().c_str(), stdout); }
END
  "$work/abi" >"$here/abi.txt"
}

library() {
  local library=$work/prefix/lib
  cc -std=c99 "${include[@]}" "$here/c_store.c" -o "$work/c_store" -L"$library" -Wl,-rpath,"$library" -lpenstock
  mkdir "$work/stores/c"
  "$work/c_store" "$work/stores/c/first" "$work/stores/c/second"
}

cmake --install "$build" --component penstock-lib --prefix "$work/prefix" >/dev/null
if [[ -n $only_abi ]]; then
  abi
  exit
fi
mkdir "$work/stores"
machine >"$work/stores/machine"
training split 248 exact
training compact 16 compact
library
tar -C "$work/stores" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$here/stores.tar.xz" .
ls -l "$here/stores.tar.xz"
