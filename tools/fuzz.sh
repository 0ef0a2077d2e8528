# shellcheck shell=bash
# ./run fuzz: the programs of the preset fuzz for tests/fuzz/fuzz.sh. Sourced by run; wants setup.sh and build.sh.

fuzz() {
  build fuzz
  if [[ ${1:-} == keep ]]; then
    tests/fuzz/fuzz.sh build/fuzz "$@"
  else
    tests/fuzz/fuzz.sh build/fuzz run "${1:-600}" "${@:2}"
  fi
}
