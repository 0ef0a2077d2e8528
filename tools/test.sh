# shellcheck shell=bash
# ./run test: phases, what they count, and the ledger of them. Sourced by run; wants its say, die and joined, setup.sh,
# torch.sh, build.sh, fuzz.sh, test_python.sh and test_report.py. The variables of a test are local to test_verb: its phases
# see them, nothing else does.

# The test programs whose success means that Penstock works on this machine: each layer by itself, the crash matrices, and
# the program as a whole. Everything else is for those who change the code (./run test --all).
readonly trusted_tests=(
  aio pinned_pool swap swap_snapshot swap_kill core engine trainer_program trainer_kill
)
# What of them says how refusals are worded.
readonly untrusted_cases='^trainer_program:(BadInput|BenchVerbs)$'

readonly fuzz_seconds_of_test=10 # of each of the programs, as many at once as there are cores: under a minute on two

test_verb() {
  case ${1:-} in
    '' | --release | --all | --python) ;;
    --long)
      test_long "${@:2}"
      return
      ;;
    *) die "test knows no '$1'; there are --release, --all, --python and --long" ;;
  esac
  local ledger=() reports=() passed=0 failed=0 skipped=0 phase_status
  local -A begun=()
  phase 'setup' setup_and_begin
  setup_torch # in this shell as well: the phase's own ended with it
  case ${1:-} in
    --all) test_all ;;
    --release) test_preset release all -- ;;
    --python) test_python ;;
    *) test_trusted ;;
  esac
  print_ledger
  # What this machine does not have is not known to work on it; and after hours of output, the beginning of what failed
  # may be gone.
  python3 tools/test_report.py tell "${reports[@]}"
  printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
  ((failed == 0))
}

# The labels of ctest are the names of the test programs.
test_trusted() {
  test_preset release "${trusted_tests[@]/#/tests_}" -- -L "^($(joined '|' "${trusted_tests[@]}"))\$" \
    -E "$untrusted_cases"
}

# The numbers: what a part wants, at the least, of what the release build and its tests took, on two cores without a
# cache; the package's tests take twice as much. A part that takes longer is cut.
test_all() {
  local release_seconds=$SECONDS
  begin 'python packages' python/tests/venv.sh
  begin 'clang' setup_clang
  test_preset release all --
  release_seconds=$((SECONDS - release_seconds))
  in_time python 45 && test_python
  in_time dev 45 && with_clang dev test_preset dev all --
  in_time tsan 30 && with_clang tsan test_preset tsan all --
  in_time fuzz 10 && with_clang fuzz test_fuzz
  return 0
}

# in_time PART PERCENT: where PENSTOCK_TEST_MINUTES bounds the whole, a part that would not end before is left out, and
# counts as skipped: on a machine that is slow today the rest still comes to an end.
in_time() {
  local limit=$((${PENSTOCK_TEST_MINUTES:-100000} * 60))
  ((SECONDS + ${release_seconds:-0} * $2 / 100 <= limit)) && return
  skip_phase "$1" 0 "left out: it would not end within PENSTOCK_TEST_MINUTES=$PENSTOCK_TEST_MINUTES"
  return 1
}

test_long() {
  setup
  build release all
  tests/long.sh build/release "$@"
}

# test_preset PRESET TARGET... -- [OPTION OF CTEST...]
test_preset() {
  local preset=$1 targets=()
  shift
  while [[ $1 != -- ]]; do
    targets+=("$1")
    shift
  done
  phase "build $preset" build "$preset" "${targets[@]}"
  phase_succeeded || return 0
  rm -f "build/$preset/junit.xml"
  phase "tests $preset" run_cases "$preset" "${@:2}"
  if phase_was_cut; then
    count_failed "build/$preset/cases.log" '\*\*\*(Failed|Timeout)'
  else
    count_cases "build/$preset/junit.xml"
  fi
}

# with_clang PART COMMAND...: or a line why there is none.
with_clang() {
  local start=$SECONDS
  if finish clang setup_clang; then
    "${@:2}"
  else
    skip_phase "$1" $((SECONDS - start)) 'skipped: no clang with its sanitizers here'
  fi
}

# One test to count.
test_fuzz() {
  phase fuzz fuzz "$fuzz_seconds_of_test"
  ! phase_succeeded || passed=$((passed + 1))
}

# run_cases PRESET [OPTION OF CTEST...]
run_cases() {
  local launcher=()
  # ThreadSanitizer cannot place its shadow under the address randomisation of newer kernels. Containers may
  # forbid to switch it off.
  if [[ $1 == tsan ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
    launcher=(setarch "$(uname -m)" -R)
  fi
  while_time "${launcher[@]}" ctest --test-dir "build/$1" --output-on-failure --no-tests=error -j "$(tests_at_once)" \
    --timeout 300 --test-output-size-passed 1000000 --output-junit junit.xml "${@:2}" | tee "build/$1/cases.log"
}

# while_time COMMAND...: where PENSTOCK_TEST_MINUTES bounds the whole it is interrupted at their end, with status 124.
while_time() {
  local left=$((${PENSTOCK_TEST_MINUTES:-0} * 60 - SECONDS))
  if [[ -z ${PENSTOCK_TEST_MINUTES:-} ]]; then
    "$@"
  else
    timeout --signal=INT --kill-after=30 "$((left > 0 ? left : 1))" "$@"
  fi
}

# Half of their time tests wait: for disks, for deadlines, for a program that they started.
tests_at_once() { echo $(($(nproc) * 5 / 2)); }

# begin NAME COMMAND...: runs it beside what comes next, as a download beside a build. finish NAME COMMAND... waits for it and
# then prints what it printed; where it was not begun, it runs it. Of what nobody waits for nothing is left at the end.
begin() {
  mkdir -p build
  set -m # a process group, which ends as one
  "${@:2}" >"build/${1// /-}.log" 2>&1 </dev/null &
  set +m
  begun[$1]=$!
  trap end_begun EXIT
}

end_begun() {
  local group
  for group in $(jobs -rp); do kill -- "-$group"; done
}

finish() {
  if [[ -z ${begun[$1]:-} ]]; then
    "${@:2}"
    return
  fi
  local status=0
  wait "${begun[$1]}" || status=$?
  unset "begun[$1]"
  cat "build/${1// /-}.log" >&2
  return "$status"
}

# Runs "$2"... in a shell of its own, so that its end by die is a failure to count and not the end of the ledger.
phase() {
  local name=$1 start=$SECONDS
  shift
  say "--- $name"
  set +e
  (
    set -e
    "$@"
  )
  phase_status=$?
  set -e
  local verdict=ok
  if phase_was_cut; then
    verdict="left out from here: PENSTOCK_TEST_MINUTES=$PENSTOCK_TEST_MINUTES were over"
    skipped=$((skipped + 1))
  elif ((phase_status)); then
    verdict=FAILED
    # Failed cases are counted one by one; a phase without any counts as one.
    [[ $1 == run_cases ]] || failed=$((failed + 1))
  fi
  enter "$name" $((SECONDS - start)) "$verdict"
}

# Whether the last phase did.
phase_succeeded() { ((phase_status == 0)); }
phase_was_cut() { [[ -n ${PENSTOCK_TEST_MINUTES:-} ]] && ((phase_status == 124)); }

# skip_phase NAME SECONDS WHY: the seconds that it took to find out.
skip_phase() {
  enter "$@"
  skipped=$((skipped + 1))
}

# enter NAME SECONDS VERDICT: a line of the ledger.
enter() { ledger+=("$(printf '%-16s %6d s  %s' "$@")"); }

# Adds the numbers of ctest's report $1. One that cannot be read is a failure.
count_cases() {
  local numbers=(0 1 0) printed
  if printed=$(python3 tools/test_report.py count "$1" "$phase_status"); then
    read -ra numbers <<<"$printed"
    reports+=("$1")
  fi
  passed=$((passed + numbers[0]))
  failed=$((failed + numbers[1]))
  skipped=$((skipped + numbers[2]))
}

# Of a phase that was cut: the lines of its log that tell of a failure.
count_failed() {
  failed=$((failed + $(grep -aEc "$2" "$1" || true)))
}

print_ledger() {
  printf '\n%-16s %8s\n' phase seconds
  printf '%s\n' "${ledger[@]}" "$(printf '%-16s %6d s' total "$SECONDS")" ''
}
