#!/usr/bin/env bash
# tests/long.sh BUILD [NAME...]: runs the long forms of the harnesses (ctest's label long, penstock_long in
# tests/CMakeLists.txt), all of them or the named ones, and writes what each printed in lines "RESULT name: text" to its
# section of tests/RESULTS.md. The whole output of each is in BUILD/long-NAME.log.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
results=$root/tests/RESULTS.md

say() { printf '%s\n' "$*" >&2; }

all_names() { ctest --test-dir "$build" -C Long -L '^long$' -N | sed -n 's/^ *Test *#[0-9]*: long://p'; }

machine() {
  local model memory
  model=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)
  memory=$(awk '$1 == "MemTotal:" { printf "%.0f", $2 / 1048576 }' /proc/meminfo)
  printf '%s cores (%s), %s GiB, kernel %s' "$(nproc)" "${model:-unknown}" "$memory" "$(uname -r)"
}

# section NAME LOG COMMIT SECONDS VERDICT
section() {
  local command
  command=$(sed -n 's/^[0-9]*: Test command: //p' "$2" | head -n 1)
  printf '## %s\n\n' "$1"
  printf '`%s`\n%s, commit %s, %s; %d seconds: %s\n\n' "${command//"$root/"/}" "$(date -u +%F)" "$3" "$(machine)" "$4" "$5"
  sed -n 's/^[0-9]*: RESULT \([^:]*\): /* \1: /p' "$2"
  printf '\n'
}

# Puts the text of file $2 in the place of section "## $1", or at the end.
replace_section() {
  [[ -f $results ]] || printf '# What the long forms of the tests printed\n\nWritten by `./run test --long [NAME...]`.\n\n' >"$results"
  awk -v title="## $1" -v text="$2" '
    function put(line) { while ((getline line < text) > 0) print line; done = 1 }
    /^## / { inside = $0 == title; if (inside) put() }
    !inside { print }
    END { if (!done) put() }' "$results" >"$results.new"
  mv "$results.new" "$results"
}

run_one() {
  local name=$1 log=$build/long-$1.log verdict=passed start=$SECONDS commit
  # Now, because hours later another one may be checked out.
  commit=$(git -C "$root" describe --always --dirty 2>/dev/null || echo unknown)
  say "--- long form of $name"
  ctest --test-dir "$build" -C Long -R "^long:$name\$" --no-tests=error -V >"$log" 2>&1 || verdict='**failed**'
  section "$name" "$log" "$commit" $((SECONDS - start)) "$verdict" >"$log.section"
  replace_section "$name" "$log.section"
  cat "$log.section"
  [[ $verdict == passed ]] || {
    say "the long form of $name failed: see $log"
    return 1
  }
}

main() {
  build=$(cd "$1" && pwd)
  shift
  local known names name failures=0
  mapfile -t known < <(all_names)
  names=("${known[@]}")
  (($# == 0)) || names=("$@")
  for name in "${names[@]}"; do
    [[ " ${known[*]} " == *" $name "* ]] || {
      say "run: there is no long form '$name'; there are: ${known[*]}"
      exit 2
    }
  done
  for name in "${names[@]}"; do run_one "$name" || failures=$((failures + 1)); done
  say "${#names[@]} long forms, $failures failed"
  ((failures == 0))
}

(($#)) || {
  say 'usage: tests/long.sh BUILD [NAME...]'
  exit 2
}
main "$@"
