#!/usr/bin/env bash
# tests/gpu/pack.sh BUILD WHEEL: makes build/gpu-kit, which a machine with a GPU and a torch needs to run what wants a
# GPU: programs and their libraries, the wheel, the tests, Python packages that such a machine may lack, and kit.sh,
# which runs it all. 64 MiB at most. Called by ./run gpu-kit.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly root build=$1 wheel=$2
readonly kit=$root/build/gpu-kit programs=(tests_core penstock penstock-bench) most_mib=64
readonly python_packages=(pytest transformers==5.23.0)

# Of a program, but those of torch, of the driver, and of every machine.
libraries_of() {
  ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
    grep -vE '/(libtorch|libc10|libcu|libnv|libc\.|libm\.|libdl|libpthread|librt|libstdc\+\+|libgcc_s|libgomp|ld-linux)' || true
}

rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/lib" "$kit/wheels"
cp "$root"/tests/gpu/{kit.sh,test_gpu.py,test_trainer.py,torch_repeats.py} "$root"/bench/peers/{fine_tune,gpu,gpu_engines}.py "$kit/"
cp "$wheel" "$kit/wheels/"
for program in "${programs[@]}"; do
  strip -o "$kit/bin/$program" "$build/$program"
  while read -r library; do cp -L "$library" "$kit/lib/"; done < <(libraries_of "$build/$program")
done
"$root/.deps/venv/bin/python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: \
  --python-version 3.12 --implementation cp --platform "manylinux2014_$(uname -m)" --platform "manylinux_2_28_$(uname -m)" \
  --dest "$kit/wheels" "${python_packages[@]}"
git -C "$root" describe --always --dirty >"$kit/commit"

size=$(du -sm "$kit" | cut -f 1)
((size <= most_mib)) || {
  echo "gpu-kit: $kit has $size MiB; $most_mib are the most" >&2
  exit 1
}
echo "$kit ($size MiB): on the machine with the GPU run build/gpu-kit/kit.sh FOLDER, which leaves its results there"
