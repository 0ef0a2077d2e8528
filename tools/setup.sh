# shellcheck shell=bash
# ./run setup: Debian packages and a compiler; LibTorch by torch.sh. Sourced by run; wants its say, die and have.

readonly debian_packages=(
  g++ cmake ninja-build pkg-config ccache python3 python3-venv
  liburing-dev libaio-dev libspdlog-dev libfmt-dev nlohmann-json3-dev libcli11-dev libxxhash-dev
  libgtest-dev
  libopenmpi-dev openmpi-bin # ranks of the programs; without them a build has none
  e2fsprogs xfsprogs # file systems whose power the tests cut
)
readonly clang_packages=(clang libclang-rt-dev)

# setup [cuda]
setup() {
  [[ ${1:-cuda} == cuda ]] || die "setup knows no '$1'; there is cuda"
  setup_packages
  check_compiler
  setup_torch
  [[ ${1:-} != cuda ]] || setup_torch_cuda
}

# What preset $1 needs.
setup_for() {
  case $1 in
    cuda) setup cuda ;;
    library)
      setup_packages
      check_compiler
      without_torch
      ;;
    dev | tsan | fuzz)
      setup_packages
      setup_clang || die "there is no clang with its sanitizers here; install what Debian calls: ${clang_packages[*]}"
      without_torch
      ;;
    *) setup ;;
  esac
}

setup_packages() {
  if ! have apt-get || ! have dpkg-query; then
    check_tools_by_hand
    return
  fi
  local missing=()
  find_missing "${debian_packages[@]}"
  install_packages "${missing[@]}"
}

# What sanitizers and fuzzers are built with: it takes half of the time that g++ does for it. Whether it is here; tries to
# install what is missing.
setup_clang() {
  clang_is_whole && return
  local missing=()
  if have apt-get && have dpkg-query && can_be_root; then
    find_missing "${clang_packages[@]}"
    (install_packages "${missing[@]}") || return 1
  fi
  clang_is_whole
}

# It may be here without its libraries.
clang_is_whole() {
  have clang++ || return 1
  local probe=build/clang-probe status=0
  mkdir -p build
  clang++ -x c++ -fsanitize=fuzzer,address,undefined -o "$probe" - 2>/dev/null \
    <<<$'#include <cstddef>\n#include <cstdint>\nextern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }' ||
    status=1
  rm -f "$probe"
  return "$status"
}

# install_packages [PACKAGE...]
install_packages() {
  local missing=("$@")
  ((${#missing[@]})) || return 0
  can_be_root || die "there is neither root nor sudo to install what is missing; as root run: apt-get install ${missing[*]}"
  say "installing Debian packages: ${missing[*]}"
  # A stale third-party source fails an update without harm to what is needed here: the installation decides.
  as_root apt-get -qq update >&2 || say "run: apt-get update reported an error; going on with the lists at hand"
  # "Need to get 99.9 MB of archives. After this operation, 403 MB of additional disk space will be used."
  LC_ALL=C apt-get --assume-no --no-install-recommends install "${missing[@]}" 2>/dev/null | grep -E '^(Need|After)' >&2 || true
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
    "${missing[@]}" >/dev/null || die "apt-get could not install ${missing[*]}: check the network and the disk, then try again"
}

# find_missing PACKAGE...: adds to the caller's `missing`.
find_missing() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
}

check_tools_by_hand() {
  local tool
  for tool in cmake ninja pkg-config python3; do
    have "$tool" || die "no apt-get here and $tool is missing; install by hand what Debian calls: ${debian_packages[*]}"
  done
  say "run: no apt-get here; the build needs what Debian calls: ${debian_packages[*]}"
}

can_be_root() { [[ $(id -u) == 0 ]] || have sudo; }

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

check_compiler() {
  local compiler=${CXX:-c++}
  have "$compiler" || die "no C++ compiler '$compiler': install g++ 12 or newer, or set CXX to one"
  "$compiler" -std=c++20 -x c++ -fsyntax-only - <<<$'#include <source_location>\nint main() {}' 2>/dev/null ||
    die "'$compiler' does not compile C++20: install g++ 12 or newer, or set CXX to one"
}
