# shellcheck shell=bash
# ./run fuzz: clang, and the programs of the preset fuzz for tests/fuzz/fuzz.sh. Sourced by run; wants its die and have,
# setup.sh and build.sh.

# Of ./run test --all, too, where they can be had: libFuzzer comes with clang.
readonly fuzz_packages=(clang libclang-rt-dev)

fuzz() {
  setup_fuzz || die "there is no clang with libFuzzer here; install what Debian calls: ${fuzz_packages[*]}"
  without_torch
  build fuzz
  if [[ ${1:-} == keep ]]; then
    tests/fuzz/fuzz.sh build/fuzz "$@"
  else
    tests/fuzz/fuzz.sh build/fuzz run "${1:-600}" "${@:2}"
  fi
}

# Whether a program with libFuzzer can be linked; tries to install what is missing.
setup_fuzz() {
  links_libfuzzer && return
  local missing=()
  if have apt-get && have dpkg-query && can_be_root; then
    find_missing "${fuzz_packages[@]}"
    (install_packages "${missing[@]}") || return 1
  fi
  links_libfuzzer
}

links_libfuzzer() {
  have clang++ || return 1
  local probe=build/fuzz/probe status=0
  mkdir -p build/fuzz
  clang++ -x c++ -fsanitize=fuzzer,address,undefined -o "$probe" - 2>/dev/null \
    <<<$'#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }' ||
    status=1
  rm -f "$probe"
  return "$status"
}
