#!/usr/bin/env bash
# One case of ./run's set-up, named by the first argument, on a machine made of stubs: a PATH with nothing but the tools
# below, in which each case replaces what it needs. Nothing is downloaded or installed.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
mkdir -p "$bin" "$work/repo/zero_infinity"
cp -r "$source_dir/run" "$source_dir/tools" "$work/repo/"
cp "$source_dir/zero_infinity/torch.cmake" "$work/repo/zero_infinity/"

for tool in awk bash cat chmod cp cut df dirname env flock grep head id mkdir mv nproc readlink rm sed sort tee timeout touch uname; do
  ln -s "$(command -v "$tool")" "$bin/$tool"
done

fail() {
  echo "FAILED: $*"
  echo "exit status ${status:-}, output:"
  cat "$work/output" 2>/dev/null || true
  exit 1
}

# stub <name> <script>: a program on the PATH, in place of the real one.
stub() {
  rm -f "$bin/$1"
  printf '#!/bin/bash\n%s\n' "$2" >"$bin/$1"
  chmod +x "$bin/$1"
}

# run <arguments>: ./run in the stub machine; leaves status and output.
run() {
  status=0
  env -i PATH="$bin" HOME="$work" CUDA_PATH="$work/no-toolkit" "${extra_env[@]}" "$bin/bash" "$work/repo/run" "$@" >"$work/output" 2>&1 || status=$?
}

says() { grep -q -- "$1" "$work/output" || fail "it does not say: $1"; }
expect_ok() { ((status == 0)) || fail "it should have succeeded"; }
expect_silence() { [[ ! -s $work/output ]] || fail "it should have said nothing"; }
# A clear failure: not zero, and one line that begins with 'run: '.
expect_refusal() {
  ((status != 0)) || fail "it should have failed"
  (($(grep -c '^run: ' "$work/output") == 1)) || fail "it should give exactly one line"
  says "$1"
}

# make_torch <folder> <version>: what ./run looks at in a LibTorch.
make_torch() {
  mkdir -p "$1/lib" "$1/include/torch/csrc/api/include/torch"
  touch "$1/lib/libtorch_cpu.so" "$1/include/torch/csrc/api/include/torch/all.h"
  printf "__all__ = ['__version__']\n__version__ = '%s'\n" "$2" >"$1/version.py"
}

# A python3 without torch, whose venv has a pip that does $1 ($target is the folder to install into).
stub_python_with_pip() {
  cat >"$work/pip" <<END
#!/bin/bash
[[ \$* == *--version* ]] && exit 0
while [[ \$1 != --target ]]; do shift; done
target=\$2
$1
END
  chmod +x "$work/pip"
  stub python3 "if [[ \$2 == venv ]]; then mkdir -p \"\$3/bin\"; cp $work/pip \"\$3/bin/python\"; else exit 1; fi"
}

extra_env=()
stub c++ 'exit 0'
stub lscpu 'echo "Flags: fpu avx512bw amx_bf16"'
stub apt-get 'exit 100'
stub dpkg-query 'printf installed'
stub_python_with_pip 'exit 1'
own=$work/repo/.deps/torch-2.11.0

case_second_setup_is_silent() {
  make_torch "$own/torch" 2.11.0+cu130
  run setup
  expect_ok
  expect_silence
}

case_takes_named_torch() {
  make_torch "$work/site/torch" 2.10.1+cpu
  local named
  for named in "$work/site/torch" "$work/site"; do
    extra_env=("PENSTOCK_TORCH=$named")
    run setup
    expect_ok
    expect_silence
  done
}

case_takes_torch_of_python() {
  make_torch "$work/site/torch" 2.9.0
  stub python3 "echo $work/site/torch"
  run setup
  expect_ok
  [[ ! -e $own ]] || fail "it installed a torch of its own"
}

case_refuses_named_torch_out_of_range() {
  local version
  for version in 2.8.1 2.12.0 2.12.0+cu130 3.0; do
    make_torch "$work/site/torch" "$version"
    extra_env=("PENSTOCK_TORCH=$work/site/torch")
    run setup
    expect_refusal "${version%+*} is outside 2.9 <= version < 2.12"
  done
}

case_refuses_folder_without_torch() {
  extra_env=("PENSTOCK_TORCH=$work")
  run setup
  expect_refusal 'lacks the C++ headers'
}

case_passes_over_unfit_torch_of_python() {
  make_torch "$work/site/torch" 2.8.0
  make_torch "$work/wheel" 2.11.0
  stub_python_with_pip "mkdir -p \$target && cp -r $work/wheel \$target/torch"
  sed -i "2i [[ \$1 == -c ]] && { echo $work/site/torch; exit 0; }" "$bin/python3"
  run setup
  expect_ok
  says '2.8.0 is outside'
  [[ -d $own/torch/lib ]] || fail "it did not install its own"
}

case_says_that_the_disk_is_full() {
  stub df 'printf "h\nfs 9000 8900 100 99%% /\n"'
  run setup
  expect_refusal '4096 MiB'
}

case_failed_download_leaves_nothing() {
  stub_python_with_pip 'mkdir -p $target/torch; exit 1'
  run setup
  expect_refusal 'check the network'
  [[ ! -e $own ]] || fail "half an installation was left as a whole one"
}

case_interrupted_install_is_repeated() {
  # The first pip is cut off together with ./run, the second one works.
  stub_python_with_pip 'mkdir -p $target/torch/lib; kill -9 $PPID'
  run setup
  ((status != 0)) || fail "it should have been killed"
  [[ ! -e $own ]] || fail "half an installation was left as a whole one"
  rm -rf "$work/repo/.deps/venv"
  make_torch "$work/wheel" 2.11.0
  stub_python_with_pip "mkdir -p \$target && cp -r $work/wheel \$target/torch"
  run setup
  expect_ok
  [[ -f $own/torch/version.py ]] || fail "LibTorch was not installed"
}

case_downloads_nothing_for_cuda_unasked() {
  make_torch "$own/torch" 2.11.0
  stub nvcc 'exit 0'
  run setup
  expect_ok
  expect_silence
  [[ ! -e $work/repo/.deps/venv ]] || fail "it began to download"
}

case_adds_the_cuda_half_when_asked() {
  make_torch "$own/torch" 2.11.0
  run setup cuda
  expect_refusal "or go on without LibTorch's CUDA half"
  rm -rf "$work/repo/.deps/venv"
  stub_python_with_pip 'mkdir -p $target/nvidia/{cu13,nvshmem,cusparselt}'
  run setup cuda
  expect_ok
  says '350 MB'
  [[ -d $own/nvidia/cu13 && -d $own/nvidia/cusparselt ]] || fail "the packages were not installed"
  run setup cuda
  expect_ok
  expect_silence
  run setup cdua
  expect_refusal "setup knows no 'cdua'"
}

case_says_that_venv_is_missing() {
  stub python3 'exit 1'
  run setup
  ((status != 0)) || fail "it should have failed"
  says 'python3-venv brings it'
}

case_says_which_packages_root_must_install() {
  stub dpkg-query '[[ ${!#} == liburing-dev ]] && exit 1; printf installed'
  stub id 'echo 1000'
  run setup
  expect_refusal 'neither root nor sudo.*apt-get install liburing-dev$'
}

case_says_that_apt_failed() {
  stub dpkg-query '[[ ${!#} == ninja-build ]] && exit 1; printf installed'
  stub id 'echo 0'
  stub apt-get '[[ $* == *install* ]] && exit 100; exit 0'
  run setup
  expect_refusal 'could not install ninja-build'
}

case_goes_on_without_apt_when_the_tools_are_there() {
  rm "$bin/apt-get"
  make_torch "$own/torch" 2.11.0
  local tool
  for tool in cmake ninja pkg-config; do stub "$tool" 'exit 0'; done
  run setup
  expect_ok
  says 'liburing-dev'
  rm "$bin/ninja"
  run setup
  expect_refusal 'ninja is missing'
}

case_says_that_there_is_no_compiler() {
  rm "$bin/c++"
  run setup
  expect_refusal "no C++ compiler 'c++'"
}

case_refuses_old_compiler() {
  stub c++ 'exit 1'
  run setup
  expect_refusal 'does not compile C++20'
}

case_refuses_unknown_words() {
  run bulid
  ((status == 2)) || fail "an unknown verb should exit with 2"
  make_torch "$own/torch" 2.11.0
  run build relaese
  expect_refusal "no preset 'relaese'"
  run test --fast
  expect_refusal "no '--fast'"
  run demo --step 3
  expect_refusal "demo knows no '--step'"
  run demo --steps few
  expect_refusal "a number of steps, not 'few'"
  run clean everything
  expect_refusal "clean knows no 'everything'"
}

# By a path, by a link to the tree, and by a link to the door itself.
case_called_from_anywhere() {
  mkdir -p "$work/else/where"
  ln -s "$work/repo" "$work/else/tree"
  ln -s ../../repo/run "$work/else/where/door"
  local path
  for path in ../../repo/run ../tree/run door; do
    mkdir -p "$work/repo/build"
    (cd "$work/else/where" && env -i PATH="$bin" HOME="$work" "$bin/bash" "$path" clean) >"$work/output" 2>&1 || fail "$path"
    expect_silence
    [[ ! -e $work/repo/build ]] || fail "$path did not clean the tree"
  done
}

case_without_a_verb_is_help() {
  run
  expect_ok
  says '^usage: ./run VERB$'
  says '550 MB'
  (($(wc -L <"$work/output") <= 120)) || fail "a line is longer than 120 columns"
}

# A machine on which everything is there: cmake makes a penstock that says what it was asked.
stub_build() {
  make_torch "$own/torch" 2.11.0
  stub cmake 'case $1 in
    --preset) mkdir -p "build/$2"; echo "configured $*" ;;
    --build) echo "built $*"; printf "#!/bin/bash\necho \"penstock \$*\"\n" >"$2/penstock"; chmod +x "$2/penstock" ;;
  esac'
}

case_demo_builds_the_program_alone_and_says_how_long() {
  stub_build
  mkdir -p "$work/repo/.demo/text" "$work/repo/trainer"
  run demo --steps 3
  expect_ok
  says '^  2 build  .*about [0-9]'
  says '^  4 training  200 steps in bf16: about 2 minutes'
  says '^built .*--target penstock$'
  says '^penstock prepare --out .demo/text.tokens .demo/text$'
  says '^penstock train trainer/demo.json --steps 3$'
  says '^took: 1 setup [0-9]* s, 2 build [0-9]* s, 3 text [0-9]* s, 4 training [0-9]* s$'
  says 'penstock ckpt verify .demo/swap$'
}

case_demo_avoids_slow_arithmetic() {
  stub_build
  stub lscpu 'echo "Flags: fpu avx512bw avx512_bf16"'
  mkdir -p "$work/repo/.demo/text" "$work/repo/trainer"
  run demo --steps 3
  expect_ok
  says '^  4 training  60 steps in fp32'
  says '^penstock train trainer/demo.json --set bf16.enabled=false --set memory.host_budget=136MiB --set run.steps=60 --set run.sample.tokens=100 --steps 3$'
}

# A machine without package lists, which an update brings; Debian's linux-doc has no text of its own.
stub_documentation() {
  local program
  stub id 'echo 0'
  stub apt-get "case \$* in
    *update*) touch $work/lists ;;
    *download*) [[ -e $work/lists && \$* == *' linux-doc-6.1' ]] && touch linux-doc-6.1_1_all.deb ;;
  esac"
  stub apt-cache "[[ ! -e $work/lists || \$1 != depends ]] || printf 'linux-doc\n  Depends: linux-doc-6.1\n'"
  stub dpkg-deb 'mkdir -p "$3/doc/Documentation/mm"
    { echo =====; printf "%.0sA line of prose.\n" {1..130000}; } >"$3/doc/Documentation/mm/page.rst"'
  for program in find gzip wc xargs zcat; do ln -sf "$(command -v "$program")" "$bin/"; done
}

case_demo_finds_its_text_where_there_are_no_package_lists() {
  stub_build
  stub_documentation
  mkdir -p "$work/repo/trainer"
  run demo
  expect_ok
  says '^downloading the package linux-doc-6.1 for its text'
  says '^penstock prepare --out .demo/text.tokens .demo/text$'
  [[ $(sort -u "$work/repo/.demo/text/mm.txt") == 'A line of prose.' ]] || fail "the text is another one"
  [[ ! -e $work/repo/.demo/partial ]] || fail "it left what it unpacked"
  rm -rf "$work/repo/.demo"
  stub dpkg-deb 'mkdir -p "$3"'
  run demo
  expect_refusal 'no text for the demo'
}

case_demo_compiles_while_torch_is_downloaded() {
  stub_build
  rm -rf "$own"
  make_torch "$work/wheel" 2.11.0
  stub_python_with_pip "mkdir -p \$target && cp -r $work/wheel \$target/torch"
  ln -sf "$(command -v sleep)" "$bin/"
  mkdir -p "$work/repo/.demo/text" "$work/repo/trainer"
  run demo
  expect_ok
  says '^configured .*-DPENSTOCK_TORCH_LAYERS=OFF$'
  says '^built .*--target penstock_core penstock_trainer_core$'
  says "^configured .*-DPENSTOCK_TORCH_DIR=$own/torch -DPENSTOCK_TORCH_LAYERS=ON\$"
  says '^penstock train trainer/demo.json$'
  rm -rf "$own" "$work/repo/.deps"
  stub_python_with_pip 'exit 1'
  run demo
  expect_refusal 'check the network and try again'
}

case_demo_ends_where_a_stage_fails() {
  stub_build
  stub cmake '[[ $1 == --preset ]] && { mkdir -p "build/$2"; exit 0; }; exit 1'
  run demo
  expect_refusal "building 'release' failed"
  ! grep -q -- '^--- 3 text' "$work/output" || fail "it went on"
}

case_warnings_are_errors_when_asked() {
  stub_build
  run build
  expect_ok
  says '^built .*--target penstock penstock-bench penstock_library penstock_python$'
  ! grep -q WERROR "$work/output" || fail "a user gets warnings as errors"
  extra_env=(PENSTOCK_WERROR=1)
  run build
  says '^configured .*-DPENSTOCK_WERROR=ON$'
  run build
  ! grep -q '^configured' "$work/output" || fail "it configures again with nothing changed"
}

case_builds_without_a_cache_that_cannot_be_written() {
  stub_build
  stub cmake 'case $1 in --preset) mkdir -p "build/$2" ;; --build) echo "ccache disabled: ${CCACHE_DISABLE:-no}" ;; esac'
  stub ccache 'exit 0'
  run build
  expect_ok
  says '^ccache disabled: no$'
  stub ccache 'echo "ccache: error: Permission denied" >&2; exit 1'
  run build
  expect_ok
  says '^run: ccache does not work here'
  says '^ccache disabled: 1$'
}

case_presets_without_torch_download_none() {
  stub_build
  rm -rf "$work/repo/.deps"
  run build library
  expect_ok
  says '^configured --preset library -DPENSTOCK_TORCH_DIR=$'
  [[ ! -e $work/repo/.deps ]] || fail "it began to download"
}

case_clean_keeps_the_trained_model() {
  mkdir -p "$work/repo/"{build,.demo/swap,.deps}
  run clean
  expect_ok
  [[ ! -e $work/repo/build && -d $work/repo/.demo/swap ]] || fail "it should remove the build and no more"
  says './run clean demo'
  run clean demo
  [[ ! -e $work/repo/.demo && -d $work/repo/.deps ]] || fail "it should remove the demo and no more"
  expect_silence
  run clean all
  [[ ! -e $work/repo/.deps ]] || fail "it should remove LibTorch"
}

# A machine with a LibTorch and a Python, whose ctest leaves report $1 of tests/tools/reports and ends with $2.
stub_report() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub cmake 'mkdir -p build/release'
  stub ctest "cp $source_dir/tests/tools/reports/$1.xml build/release/junit.xml; echo \"ctest \$*\"; exit $2"
}

# By its own path: what is called python3 may be a script that looks for one.
stub_real_python() { ln -sf "$(python3 -c 'import sys; print(sys.executable)')" "$bin/python3"; }

case_names_what_failed_at_the_end() {
  stub_report failed 8
  stub nproc 'echo 2'
  run test
  ((status != 0)) || fail "a failed case should fail"
  says '^ctest .* -j 5 '
  says '^ctest .* -L ^(aio|.*|trainer_kill)\$ -E '
  tail -n 33 "$work/output" >"$work/end"
  mv "$work/end" "$work/output"
  says '^FAILED in release: Bad.<One>/7$'
  says '^    1 < 2 && "last"$'
  ! grep -qE 'well|first' "$work/output" || fail "it tells more than the last lines of what failed"
  says '^1 passed, 1 failed, 0 skipped$'
}

case_counts_a_failure_that_no_case_shows() {
  stub_report passed 8
  run test
  ((status != 0)) || fail "a failed ctest should fail"
  says '^1 passed, 1 failed, 0 skipped$'
  stub ctest 'echo "<testsuite>" >build/release/junit.xml'
  run test
  ((status != 0)) || fail "a report that cannot be read should fail"
  says '^test_report: build/release/junit.xml cannot be read'
  says '^0 passed, 1 failed, 0 skipped$'
}

case_names_what_was_skipped_and_why() {
  stub_report skipped 0
  run test
  expect_ok
  sed -n '/^skipped, by reason/,/^$/p' "$work/output" >"$work/list"
  (($(grep -c '^    ' "$work/list") == 5)) || fail "the list of what was skipped is another one"
  says '^    restricted:no_uring:swap: 2 cases, e.g. Ring.Registers$'
  says '^3 passed, 0 failed, 6 skipped$'
}

# A Python of the tests whose pytest passes four cases, but for those of tests/gpu: of them one fails. The wheel fails.
stub_pytest() {
  local program
  mkdir -p "$work/repo/"{python/tests,python/wheel,.peers/python/bin,.deps/venv/bin}
  printf '#!/bin/bash\nexit 0\n' >"$work/repo/python/tests/venv.sh"
  printf '#!/bin/bash\nexit 1\n' >"$work/repo/python/wheel/make.sh"
  printf '#!/bin/bash\n[[ $* != *tests/gpu ]] || { echo "== 1 failed, 3 passed in 1s =="; exit 1; }\n%s\n' \
    'echo "== 4 passed, 1 skipped in 2s =="' >"$work/repo/.peers/python/bin/python"
  cp "$work/repo/python/tests/venv.sh" "$work/repo/.deps/venv/bin/python"
  chmod +x "$work/repo/"{python/*/*.sh,.peers/python/bin/python,.deps/venv/bin/python}
  for program in tail tee; do ln -sf "$(command -v "$program")" "$bin/"; done
}

case_counts_what_pytest_counts() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub_pytest
  stub cmake 'mkdir -p build/release'
  run test --python
  ((status != 0)) || fail "a failed phase should fail"
  local phase
  for phase in 'python packages' python 'python deferred' 'python within' 'python deepspeed'; do says "^$phase  *[0-9]* s  ok$"; done
  for phase in 'python device' wheel; do says "^$phase  *[0-9]* s  FAILED$"; done
  says '^16 passed, 2 failed, 0 skipped$'
}

case_skips_python_where_its_packages_cannot_be_had() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub_pytest
  printf '#!/bin/bash\nsleep 2\nexit 1\n' >"$work/repo/python/tests/venv.sh"
  ln -sf "$(command -v sleep)" "$bin/"
  run test --python
  expect_ok
  says '^python  *[1-9] s  skipped: its packages could not be installed$'
  says '^0 passed, 0 failed, 1 skipped$'
}

# The tests of the release take longer than there is; what they had told of failures counts.
case_leaves_out_what_would_not_end_in_time() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub cmake 'mkdir -p build/release build/dev build/tsan'
  stub ctest 'echo "1/2 Test #1: aio:Ring.Turns ...***Failed  0.1 sec"; sleep 9'
  ln -sf "$(command -v sleep)" "$bin/"
  extra_env=(PENSTOCK_TEST_MINUTES=0)
  run test --all
  ((status != 0)) || fail "a failure counts in what is cut, too"
  says '^tests release  *[1-3] s  left out from here: PENSTOCK_TEST_MINUTES=0 were over$'
  for part in python dev tsan fuzz; do says "^$part  *0 s  left out: .* PENSTOCK_TEST_MINUTES=0$"; done
  ! grep -q '^tests dev' "$work/output" || fail "a part began that was left out"
  says '^0 passed, 1 failed, 5 skipped$'
}

# The build waits for their download to begin.
case_downloads_packages_while_the_release_is_built() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub_pytest
  printf '#!/bin/bash\ntouch %s/begun\necho "pip: no network" >&2\nexit 1\n' "$work" >"$work/repo/python/tests/venv.sh"
  stub cmake "mkdir -p build/release build/dev build/tsan; [[ \$1 != --build ]] || until [[ -e $work/begun ]]; do sleep 0.1; done"
  stub ctest :
  ln -sf "$(command -v sleep)" "$bin/"
  run test --all
  says '^pip: no network$'
  says '^python  *[01] s  skipped: its packages could not be installed$'
  for part in dev tsan fuzz; do says "^$part  *[01] s  skipped: no clang with its sanitizers here$"; done
}

case_ends_a_download_that_nobody_waits_for() {
  make_torch "$own/torch" 2.11.0
  stub_real_python
  stub_pytest
  printf '#!/bin/bash\necho $$ >%s/begun\nsleep 50 &\necho $! >>%s/begun\nwait\n' "$work" "$work" >"$work/repo/python/tests/venv.sh"
  stub cmake "mkdir -p build/release"
  stub ctest 'sleep 1'
  ln -sf "$(command -v sleep)" "$bin/"
  extra_env=(PENSTOCK_TEST_MINUTES=0)
  run test --all
  local process
  (($(grep -c . "$work/begun") == 2)) || fail "nothing was begun"
  sleep 0.2
  while read -r process; do
    ! grep -qs '^State:.[^ZX]' "/proc/$process/status" || fail "process $process is still there"
  done <"$work/begun"
}

# A ctest that knows two long forms, and whose run of one prints what $work/says holds.
stub_long_forms() {
  mkdir -p "$work/repo/tests" "$work/build"
  cp "$source_dir/tests/long.sh" "$work/repo/tests/"
  ln -sf "$(command -v date)" "$bin/"
  stub ctest "[[ \$* == *' -N'* ]] && { printf '  Test #7: long:cuts\\n  Test #8: long:kills\\n'; exit 0; }
cat $work/says; exit \$(cat $work/verdict)"
  stub git 'echo 1234abc'
  echo 0 >"$work/verdict"
}

long() {
  status=0
  env -i PATH="$bin" "$bin/bash" "$work/repo/tests/long.sh" "$work/build" "$@" >"$work/output" 2>&1 || status=$?
}

case_long_forms_keep_a_section_each() {
  stub_long_forms
  local results=$work/repo/tests/RESULTS.md
  printf '8: Test command: %s/repo/x --runs=9\n8: RESULT kills: 9 kills, none lost anything\n' "$work" >"$work/says"
  long
  expect_ok
  printf '8: RESULT kills: 10 kills & one lost\n' >"$work/says"
  echo 1 >"$work/verdict"
  long cuts
  ((status != 0)) || fail "a failed long form should fail"
  cp "$results" "$work/output"
  (($(grep -c '^## ' "$results") == 2)) || fail "there should be two sections"
  [[ $(grep '^## ' "$results" | head -n 1) == '## cuts' ]] || fail "the sections should keep their order"
  says '^`x --runs=9`$'
  says 'commit 1234abc, .* seconds: passed$'
  says '^\* kills: 9 kills, none lost anything$'
  says 'seconds: \*\*failed\*\*$'
  says '^\* kills: 10 kills & one lost$'
}

case_long_refuses_unknown_names() {
  stub_long_forms
  long kilsl
  expect_refusal "no long form 'kilsl'; there are: cuts kills"
  [[ ! -e $work/repo/tests/RESULTS.md ]] || fail "it wrote a section"
}

"case_$1"
echo ok
