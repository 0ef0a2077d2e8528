#!/usr/bin/env bash
# One case of ./run's set-up, named by the first argument, on a machine made of stubs: a PATH with nothing but the tools
# below, in which each case replaces what it needs. Nothing is downloaded or installed.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
mkdir -p "$bin" "$work/repo/zero_infinity"
cp "$source_dir/run" "$work/repo/run"
cp "$source_dir/zero_infinity/torch.cmake" "$work/repo/zero_infinity/"

for tool in awk bash cat cp cut df dirname env flock head id mkdir mv nproc rm sed sort touch uname; do
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

case_adds_the_cuda_half_where_a_toolkit_is() {
  make_torch "$own/torch" 2.11.0
  stub nvcc 'exit 0'
  run setup
  expect_ok
  says "going on without LibTorch's CUDA half"
  rm -rf "$work/repo/.deps/venv"
  stub_python_with_pip 'mkdir -p $target/nvidia/{cu13,nvshmem,cusparselt}'
  run setup
  expect_ok
  [[ -d $own/nvidia/cu13 && -d $own/nvidia/cusparselt ]] || fail "the packages were not installed"
  run setup
  expect_silence
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
}

case_names_what_failed_at_the_end() {
  make_torch "$own/torch" 2.11.0
  stub cmake 'mkdir -p build/release'
  local report=$work/report
  {
    printf '<testsuite name="(empty)"\n\ttests="3"\n\tfailures="2"\n\tdisabled="0"\n\tskipped="0"\n\t>\n'
    printf '\t<testcase name="Good.One" classname="Good.One" time="1" status="run">\n'
    printf '\t\t<system-out>well\n</system-out>\n\t</testcase>\n'
    printf '\t<testcase name="Bad.&lt;One&gt;/7" classname="Bad.&lt;One&gt;/7" time="1" status="fail">\n'
    printf '\t\t<failure message=""/>\n\t\t<system-out>first\n'
    printf 'line %d\n' {1..29}
    printf '1 &lt; 2 &amp;&amp; &quot;last&quot;\n</system-out>\n\t</testcase>\n'
    printf '\t<testcase name="Mute" classname="Mute" time="1" status="fail">\n'
    printf '\t\t<failure message=""/>\n\t\t<system-out></system-out>\n\t</testcase>\n</testsuite>\n'
  } >"$report"
  ln -sf "$(command -v tail)" "$bin/"
  stub ctest "cp $report build/release/junit.xml; exit 8"
  run test --quick
  ((status != 0)) || fail "a failed case should fail"
  tail -n 36 "$work/output" >"$work/end"
  mv "$work/end" "$work/output"
  says '^FAILED in release: Bad.<One>/7$'
  says '^FAILED in release: Mute$'
  says '^    1 < 2 && "last"$'
  ! grep -qE 'well|first' "$work/output" || fail "it tells more than the last lines of what failed"
  says '^1 passed, 2 failed, 0 skipped$'
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
