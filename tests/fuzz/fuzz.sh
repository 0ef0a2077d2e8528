#!/usr/bin/env bash
# Runs the libFuzzer programs of a build of the preset fuzz. ./run fuzz calls it.
#
#   fuzz.sh BUILD run SECONDS [NAME...]   each for that long, as many at once as there are cores; a line RESULT for each
#   fuzz.sh BUILD keep [NAME...]          adds to the kept inputs what reaches code that they do not reach
#   fuzz.sh BUILD add NAME FILE...        adds these files to the kept inputs
#
# The kept inputs lie in BUILD/kept, unpacked by the build from tests/fuzz/corpus.tar.xz, which keep and add pack again.
# What runs reach lies in BUILD/corpus and is taken up by the next run; an input that breaks a promise in BUILD/findings.
set -euo pipefail
shopt -s nullglob

archive=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/corpus.tar.xz
build=$(cd "$1" && pwd)
kept=$build/kept
verb=$2
shift 2

# malloc: no parser takes more at once, whatever its input says; timeout: none takes longer for an input.
readonly flags=(-rss_limit_mb=2048 -malloc_limit_mb=32 -timeout=20 -max_len=65536 -print_final_stats=1 -verbosity=1)

names_or_all() {
  if (($#)); then
    printf '%s\n' "$@"
  else
    (cd "$build" && printf '%s\n' fuzz_*[a-z] | grep -v '\.' | sed 's/^fuzz_//')
  fi
}

number() { sed -n "s/^stat::$2: *//p" "$1" | tail -n 1; }

# run_one SECONDS NAME
run_one() {
  local seconds=$1 name=$2 log=$build/fuzz_$2.log begin=$SECONDS status=0
  mkdir -p "$build/corpus/$name" "$build/findings/$name" "$kept/$name"
  "$build/fuzz_$name" "${flags[@]}" -max_total_time="$seconds" -artifact_prefix="$build/findings/$name/" \
    "$build/corpus/$name" "$kept/$name" >"$log" 2>&1 || status=$?
  local runs coverage findings=0
  runs=$(number "$log" number_of_executed_units)
  coverage=$(grep -ao 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2 || true)
  ((status == 0)) || findings=1
  printf 'RESULT fuzz %s: %s runs, %s seconds, coverage %s, findings %s\n' "$name" "${runs:-0}" $((SECONDS - begin)) \
    "${coverage:-0}" "$findings"
  ((status == 0)) && return
  grep -aE 'check failed|ERROR|SUMMARY|runtime error|Test unit' "$log" | cut -c1-300 | sed "s/^/  $name: /"
  return 1
}

run_all() {
  local seconds=$1
  shift
  local names
  names=$(names_or_all "$@")
  export -f run_one number
  export build kept
  # Arrays are not exported: the flags travel as one word.
  flags_text="${flags[*]}" xargs -P "$(nproc)" -I{} bash -c 'read -ra flags <<<"$flags_text"; run_one "$0" {}' "$seconds" \
    <<<"$names"
}

keep_one() {
  local name=$1 smaller
  smaller=$(mktemp -d "$build/keep.XXXXXX")
  # Lines reached, not how often: dozens of inputs instead of thousands.
  "$build/fuzz_$name" "${flags[@]}" -set_cover_merge=1 -use_counters=0 "$smaller" "$kept/$name" "$build/corpus/$name" \
    >"$build/fuzz_$name.keep.log" 2>&1
  # The kept inputs are in the repository: what is longer stays in BUILD/corpus.
  find "$smaller" -type f -size +12k -delete
  rm -rf "${kept:?}/$name"
  mkdir "$kept/$name"
  mv "$smaller"/* "$kept/$name/"
  rmdir "$smaller"
  printf '%s: %s inputs, %s bytes\n' "$name" "$(find "$kept/$name" -type f | wc -l)" \
    "$(cat "$kept/$name"/* | wc -c)"
}

# The same inputs give the same file: sorted, and without their times.
pack() {
  [[ -d $kept ]] || { echo "fuzz.sh: there is no $kept to pack; build first" >&2; exit 1; }
  find "$kept" -exec touch -d @0 {} +
  (cd "$kept" && LC_ALL=C find . -mindepth 2 -type f -printf '%P\n' | LC_ALL=C sort >"$build/kept.list" &&
    cmake -E tar cJf "$archive" --format=gnutar --files-from="$build/kept.list")
}

case $verb in
  run) run_all "$@" ;;
  keep)
    for name in $(names_or_all "$@"); do
      mkdir -p "$build/corpus/$name" "$kept/$name"
      keep_one "$name"
    done
    pack
    ;;
  add)
    mkdir -p "$kept/$1"
    cp -- "${@:2}" "$kept/$1/"
    pack
    ;;
  *)
    echo "fuzz.sh: no verb '$verb'" >&2
    exit 2
    ;;
esac
