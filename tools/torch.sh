# shellcheck shell=bash
# LibTorch: found, or installed from wheels into .deps. Sourced by run; wants its root, say and die. Its own variable is
# torch_dir, which setup_torch or without_torch sets and build.sh configures with.
: "${root:?}"

# What is installed when the machine has none that fits. The wheels are taken for one fixed Python, whatever Python is
# here: only their C++ part is used. libtorch_cpu.so finds the two NVIDIA packages by its own RPATH. The range of versions
# that the engine's sources accept is stated in zero_infinity/torch.cmake.
readonly torch_pins=(torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
readonly torch_own=$root/.deps/torch-2.11.0
readonly torch_needs_mib=4096
readonly torch_download='550 MB'
# What libtorch_cuda.so needs and a CUDA 13.0 toolkit does not bring: 350 MB to download, so only when asked for.
readonly torch_cuda_pins=(nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile==1.15.1.6)

without_torch() { torch_dir=; }

# Sets torch_dir. Once installed, our own LibTorch stays the one, so that a Python package that comes or goes does not
# change the build.
setup_torch() {
  if [[ -n ${PENSTOCK_TORCH:-} ]]; then
    torch_dir=$PENSTOCK_TORCH
    [[ -d $torch_dir/torch/lib ]] && torch_dir=$torch_dir/torch
    local reason
    reason=$(torch_unfit "$torch_dir")
    [[ -z $reason ]] || die "PENSTOCK_TORCH=$PENSTOCK_TORCH cannot be used: $reason; name another one or unset it"
    torch_dir=$(cd "$torch_dir" && pwd)
    return
  fi
  torch_dir=$torch_own/torch
  [[ -d $torch_dir ]] || use_python_torch || locked install_torch
}

# Prints why folder $1 cannot serve as LibTorch; nothing when it can.
torch_unfit() {
  local version min below
  min=$(torch_bound MIN)
  below=$(torch_bound BELOW)
  version=$(sed -n "s/^__version__ *= *'\([0-9.]*\).*/\1/p" "$1/version.py" 2>/dev/null || true)
  if [[ ! -f $1/include/torch/csrc/api/include/torch/all.h || ! -f $1/lib/libtorch_cpu.so ]]; then
    echo "it lacks the C++ headers or lib/libtorch_cpu.so"
  elif [[ -z $version ]]; then
    echo "its version.py names no version"
  elif ! version_at_least "$version" "$min" || version_at_least "$version" "$below"; then
    echo "its version $version is outside $min <= version < $below"
  fi
}

torch_bound() { sed -n "s/^set(PENSTOCK_TORCH_$1 \([0-9.]*\))/\1/p" zero_infinity/torch.cmake; }

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

use_python_torch() {
  local found reason
  # The location is asked without importing: an import takes seconds and fails where a GPU's library is missing.
  found=$(python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0])' \
    2>/dev/null) || return 1
  reason=$(torch_unfit "$found")
  if [[ -n $reason ]]; then
    say "run: the torch in $found is not used: $reason"
    return 1
  fi
  torch_dir=$found
}

# Of two set-ups at once, the second waits here and finds the work done.
locked() {
  mkdir -p .deps
  (
    flock 9
    "$@"
  ) 9>.deps/lock
}

install_torch() {
  [[ ! -d $torch_own ]] || return 0
  local free_mib
  free_mib=$(df -Pm .deps | awk 'NR == 2 { print $4 }')
  ((free_mib >= torch_needs_mib)) ||
    die "LibTorch needs $torch_needs_mib MiB and $root/.deps has $free_mib free: free some, or set PENSTOCK_TORCH"
  say "installing LibTorch into .deps ($torch_download to download, 1.6 GB of disk): ${torch_pins[*]}"
  download_wheels "${torch_pins[@]}" ||
    die "could not install ${torch_pins[*]}: check the network and try again, or set PENSTOCK_TORCH to a torch you have"
  # Only what is whole gets the final name, so an interrupted installation is never taken for one.
  mv .deps/partial/whole "$torch_own"
  rm -rf .deps/partial
}

# Only when asked for: without these packages the torch-free layers have their CUDA halves wherever a toolkit is, and
# LibTorch's own kernels are left out.
setup_torch_cuda() {
  [[ $torch_dir == "$torch_own/torch" && ! -d $torch_own/nvidia/cusparselt ]] || return 0
  locked install_torch_cuda
}

install_torch_cuda() {
  [[ ! -d $torch_own/nvidia/cusparselt ]] || return 0
  say "installing what LibTorch's CUDA half needs beside the toolkit (350 MB to download): ${torch_cuda_pins[*]}"
  download_wheels "${torch_cuda_pins[@]}" ||
    die "could not install ${torch_cuda_pins[*]}: check the network and try again, or go on without LibTorch's CUDA half"
  # cusparselt comes last: it is the sign that all are there.
  mv .deps/partial/whole/nvidia/cusparselt .deps/partial/
  cp -a .deps/partial/whole/nvidia "$torch_own/"
  mv .deps/partial/cusparselt "$torch_own/nvidia/"
  rm -rf .deps/partial
}

# Unpacks the wheels $@ into .deps/partial/whole. The platform tags are those that pip would accept on glibc 2.28+.
download_wheels() {
  local minor platforms=(--platform "manylinux2014_$(uname -m)")
  for minor in {17..28}; do
    platforms+=(--platform "manylinux_2_${minor}_$(uname -m)")
  done
  make_venv || return 1
  rm -rf .deps/partial
  mkdir -p .deps/partial/tmp
  TMPDIR=$root/.deps/partial/tmp .deps/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    --only-binary=:all: --python-version 3.12 --implementation cp --abi cp312 --abi none "${platforms[@]}" \
    --target .deps/partial/whole "$@" >&2 && return
  rm -rf .deps/partial
  return 1
}

make_venv() {
  .deps/venv/bin/python -m pip --version >/dev/null 2>&1 && return
  rm -rf .deps/venv
  python3 -m venv .deps/venv >&2 && return
  say "run: python3 -m venv failed; on Debian and Ubuntu python3-venv brings it"
  return 1
}
