#!/usr/bin/env bash
# bench/spin.sh [--program P] [--config C] [--dir D] [--rounds 5] [--steps 12] [--busy "0 1 2"] [--ways "..."] [-- TRAIN OPTIONS]
#
# What it costs that libgomp's threads spin while they wait, and what it costs that they do not: trains C (the demo's
# model) anew for some steps, the ways by turns, in a reversed order every other round, alone and beside so many busy
# loops. A way is a variable of the environment; "default" is the program's own choice. Prints per way the median time
# of a step, the processor's time of the whole turn, and libgomp's own default's step time ÷ this one's: above 1 is faster
# than with libgomp's default. Only the ratios of one round mean anything on a busy or virtual machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=$here/build/release/penstock
config=$here/trainer/demo.json
dir=${TMPDIR:-/tmp}
rounds=5
steps=12
busy="0 1 $(nproc)"
# The first is what the others are held against: what libgomp does when it is told nothing.
ways="GOMP_SPINCOUNT=300000 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=1000 GOMP_SPINCOUNT=10000 default"
while (($# > 0)); do
  case $1 in
    --program) program=$2 ;;
    --config) config=$2 ;;
    --dir) dir=$2 ;;
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --busy) busy=$2 ;;
    --ways) ways=$2 ;;
    --)
      shift
      break
      ;;
    *)
      printf 'bench/spin.sh: what is %s?\n' "$1" >&2
      exit 2
      ;;
  esac
  shift 2
done
program=$(realpath "$program")

work=$(mktemp -d "$dir/penstock-spin.XXXXXX")
neighbours=()
quiet() {
  ((${#neighbours[@]} == 0)) || kill "${neighbours[@]}" 2>/dev/null || true
  neighbours=()
}
trap 'quiet; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

find "$here" -maxdepth 2 -name '*.md' -exec cat {} + >"$work/text.txt"
"$program" prepare --out "$work/text.tokens" "$work/text.txt" 2>/dev/null

# turn WAY OPTIONS...: trains once; prints the median seconds of a step (the first two are not counted) and the seconds of
# processor time of the process.
turn() {
  local way=$1 setting=()
  shift
  [[ $way == default ]] || setting=("$way")
  rm -rf "$work/swap" "$work/run"
  local TIMEFORMAT='%U %S'
  {
    time env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "${setting[@]}" "$program" train "$config" "$@" \
      --set data.train="$work/text.tokens" --set zero_optimization.offload_param.nvme_path="$work/swap" \
      --set run.directory="$work/run" --set run.sample.tokens=0 --steps "$steps" 2>"$work/errors" ||
      { cat "$work/errors" >&3; exit 1; }
  } 3>&2 2>"$work/cpu" || exit 1
  sed -n 's/.*"seconds":\([0-9.e-]*\).*/\1/p' "$work/run/log.jsonl" | tail -n +3 | sort -g |
    awk '{ x[NR] = $1 } END { printf "%.6f ", (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'
  awk '{ print $1 + $2 }' "$work/cpu"
}

printf '%s, %s cores, load before %s; %s rounds of %s steps%s\n' \
  "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)" \
  "$rounds" "$steps" "${*:+ of $*}"
for count in $busy; do
  for ((i = 0; i < count; ++i)); do
    (while :; do :; done) &
    neighbours+=($!)
  done
  : >"$work/times"
  order=$ways
  for ((round = 1; round <= rounds; ++round)); do
    for way in $order; do
      figures=$(turn "$way" "$@")
      printf '%s %s %s\n' "$round" "$way" "$figures" >>"$work/times"
    done
    order=$(tr ' ' '\n' <<<"$order" | tac | tr '\n' ' ')
  done
  quiet
  printf '\nbeside %s busy loops: median (lowest to highest of the rounds)\n' "$count"
  awk -v first="${ways%% *}" -v ways="$ways" -v rounds="$rounds" '
    function spread(values, n,    i, j, t) {
      for (i = 2; i <= n; ++i)
        for (j = i; j > 1 && values[j] < values[j - 1]; --j) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
      return sprintf("%.3f (%.3f to %.3f)", (values[int((n + 1) / 2)] + values[int(n / 2) + 1]) / 2, values[1], values[n])
    }
    { step[$2, $1] = $3; cpu[$2, $1] = $4 }
    END {
      n = split(ways, way, " ")
      for (w = 1; w <= n; ++w) {
        for (r = 1; r <= rounds; ++r) {
          s[r] = step[way[w], r]; c[r] = cpu[way[w], r]; q[r] = step[first, r] / step[way[w], r]
        }
        printf "%-24s step %s s, cpu %s s, faster by %s\n", way[w], spread(s, rounds), spread(c, rounds), spread(q, rounds)
      }
    }' "$work/times"
done
