# shellcheck shell=bash
# ./run test --python: the Python package over its core, and its wheel in a venv of its own. Sourced by run; wants its root,
# say, die and have, and build.sh; counts and finishes as test.sh does, in the variables of test_verb.
: "${root:?}"

# The wheel is one test to count, pytest counts its own. Without a network there is no torch for Python: then one is skipped.
test_python() {
  local start=$SECONDS
  say '--- python packages'
  if ! finish 'python packages' python/tests/venv.sh >&2; then
    skip_phase python $((SECONDS - start)) 'skipped: its packages could not be installed'
    return 0
  fi
  enter 'python packages' $((SECONDS - start)) ok
  .peers/python/bin/python -m compileall -q python/penstock python/tests # else each process compiles them anew
  phase 'build python' build release penstock_python penstock # whose tests want both
  phase_succeeded || return 0
  pytest_phase python python_cases
  pytest_phase 'python deferred' python_order_cases deferred
  pytest_phase 'python within' python_order_cases within
  pytest_phase 'python deepspeed' python_deepspeed_cases
  pytest_phase 'python device' python_device_cases
  in_time wheel 15 || return 0
  phase wheel wheel_works
  ! phase_succeeded || passed=$((passed + 1))
}

# pytest_phase NAME CASES [ORDER]: what it says is kept in build/NAME.log, with hyphens for blanks.
pytest_phase() {
  local log=build/${1// /-}.log
  phase "$1" "${@:2}"
  ! phase_was_cut || count_failed "$log" '^FAILED '
  ! phase_succeeded || passed=$((passed + $(grep -o '[0-9]* passed' "$log" | tail -n 1 | cut -d ' ' -f 1)))
}

# All but the long ones (python/FILES.md).
python_cases() {
  PENSTOCK_TEST_CORE=native pytest_over_core python -m 'not long' --rootdir python python/tests
}

# python_order_cases ORDER: what trains, once more with units updated then.
python_order_cases() {
  PENSTOCK_TEST_CORE=native PENSTOCK_TEST_ORDER=$1 pytest_over_core "python-$1" -m 'not long' --rootdir python \
    python/tests/test_{units,modules,optimizer,state,transformers,progress}.py
}

# Programs that were written for DeepSpeed (tests/deepspeed), in processes of their own; and the examples.
python_deepspeed_cases() {
  ATEN_CPU_CAPABILITY=default PYTHONPATH=$root/python pytest_over_core python-deepspeed -m 'not long' --rootdir tests \
    -p no:cacheprovider tests/deepspeed tests/examples
}

# What a GPU is tested by, on a device whose memory is apart from the host's.
python_device_cases() {
  PENSTOCK_GPU=emulated PENSTOCK_PROGRAM=$root/build/release/penstock PYTHONPATH=python \
    pytest_over_core python-device --rootdir tests/gpu tests/gpu
}

# pytest_over_core LOG OPTION...
pytest_over_core() {
  OMP_NUM_THREADS=1 PENSTOCK_LIBRARY=$root/build/release/python/libpenstock_python.so while_time .peers/python/bin/python -B \
    -m pytest -n "$(($(nproc) * 3 / 2))" --dist worksteal -rfE "${@:2}" | tee "build/$1.log"
}

# The quick start of python/README.md, with what is installed and nothing of the checkout. Of the wheel of such a name the
# symbols were checked (python/wheel/make.sh).
wheel_works() {
  local made
  made=$(wheel | tail -n 1)
  [[ $made == *-manylinux_2_* ]] || ! have dpkg-deb || die "$made is for this system alone"
  rm -rf build/wheel/venv build/wheel/try
  mkdir -p build/wheel/try
  .peers/python/bin/python -m venv --system-site-packages build/wheel/venv
  # torch is that of the tests' venv, which such a venv does not see by itself.
  printf '%s\n' "$root"/.peers/python/lib/python*/site-packages >"$(echo build/wheel/venv/lib/python*/site-packages)/torch.pth"
  build/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$made"
  awk '/^```python/ { if (seen++) exit; inside = 1; next } /^```/ { inside = 0 } inside' python/README.md |
    sed "s|/nvme/|$root/build/wheel/try/|" >build/wheel/try/quick_start.py
  (cd build/wheel/try && ../venv/bin/python quick_start.py && ../venv/bin/python quick_start.py &&
    PATH=$root/build/wheel/venv/bin:$PATH wheel_commands_work)
}

# Of the package and of the program in it; and the library takes the loops of this processor, not any processor's.
wheel_commands_work() {
  local loops='C library *ok *.*loops '
  ! grep -qw avx2 /proc/cpuinfo || loops+=avx
  penstock --version | grep '^penstock [0-9]' &&
    penstock keys | grep -c memory.host_budget &&
    penstock bench io --help | grep -e --cases &&
    penstock ckpt ls quick-start &&
    penstock doctor --dir . | tr '\n' ' ' | grep -o "${loops}[a-z0-9]*" &&
    wheel_refuses train x.json && wheel_refuses plan x.json && wheel_refuses bench step
}

# wheel_refuses WORD...: in one line, which says what has it.
wheel_refuses() {
  local said status=0
  said=$(penstock "$@" 2>&1) || status=$?
  ((status == 2)) && [[ $said == 'penstock: error: '*'./run build'* && $said != *$'\n'* ]] && return
  echo "penstock $* ended with $status: $said"
  return 1
}
