#!/usr/bin/env bash
# One case of what another program's author does with an installed Penstock, named by the first argument. The build
# folder and the program `restricted` follow. Everything happens beneath a temporary folder.
set -euo pipefail

source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build_dir=$2
restricted=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
prefix=$work/prefix

fail() {
  echo "FAILED: $*"
  cat "$work/output" 2>/dev/null || true
  exit 1
}

install_library() {
  cmake --install "$build_dir" --component penstock-lib --prefix "$prefix" >"$work/output" 2>&1 || fail "the installation"
  cp -r "$prefix/share/doc/penstock/examples" "$work/examples"
}

# as_plain_user <command...>: without privileges and without io_uring. Leaves status and output; skips the test where
# this machine cannot be restricted so.
as_plain_user() {
  local user=()
  [[ $(id -u) != 0 ]] || user=(--user)
  status=0
  (cd "$work/theirs" && "$restricted" --no-io-uring EPERM "${user[@]}" -- "$@") >"$work/output" 2>&1 || status=$?
  if ((status == 77)); then
    cat "$work/output"
    exit 77
  fi
}

# keeps_its_tensor <program>: the second run finds what the first has committed, the third what the second has.
keeps_its_tensor() {
  local program=$1 run
  for run in 1 2 3; do
    as_plain_user "$program" store
    ((status == 0)) || fail "run $run of $program ended with $status"
    grep -qx "run $run" "$work/output" || fail "run $run of $program has not found what the one before committed"
  done
  as_plain_user "$program" /proc/nowhere/store
  ((status == 4)) || fail "$program ended with $status where no directory can be, not with 4"
  grep -q "/proc/nowhere/store" "$work/output" || fail "$program does not say which directory is wrong"
}

# The programs must need neither torch nor CUDA, and the library must be the installed one.
needs_little() {
  ldd "$1" >"$work/output"
  ! awk '{ print $1 }' "$work/output" | grep -Eqi "torch|c10|cuda|cublas|nvidia" || fail "$1 needs torch or CUDA"
  ! grep -q "not found" "$work/output" || fail "$1 does not find its libraries"
  grep -q "libpenstock.so.1 => $prefix/lib/" "$work/output" || fail "$1 does not use the installed library"
}

uses_both() {
  local program
  mkdir -p "$work/theirs"
  for program in "$@"; do
    needs_little "$program"
    rm -rf "$work/theirs"
    mkdir "$work/theirs"
    [[ $(id -u) != 0 ]] || chown 65534:65534 "$work/theirs"
    keeps_its_tensor "$program"
  done
}

case_find_package() {
  install_library
  cmake -S "$work/examples" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
    >"$work/output" 2>&1 || fail "find_package"
  cmake --build "$work/build" >"$work/output" 2>&1 || fail "the build of the examples"
  uses_both "$work/build/tensors_c" "$work/build/tensors_cpp"
}

case_pkg_config() {
  install_library
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  local flags
  read -ra flags <<<"$(pkg-config --cflags --libs penstock)"
  cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$work/examples/tensors.c" -o "$work/tensors_c" "${flags[@]}" \
    >"$work/output" 2>&1 || fail "cc and pkg-config"
  c++ -std=c++20 -Wall -Wextra -Werror "$work/examples/tensors.cpp" \
    -o "$work/tensors_cpp" "${flags[@]}" >"$work/output" 2>&1 || fail "c++ and pkg-config"
  uses_both "$work/tensors_c" "$work/tensors_cpp"
}

# A project without C++ finds the package too, also after the prefix was moved.
case_c_alone() {
  install_library
  mv "$prefix" "$work/moved"
  prefix=$work/moved
  printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(c_alone LANGUAGES C)' \
    'find_package(Penstock 0.1 REQUIRED)' 'add_executable(tensors_c tensors.c)' \
    'target_link_libraries(tensors_c PRIVATE Penstock::penstock)' >"$work/examples/CMakeLists.txt"
  cmake -S "$work/examples" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/output" 2>&1 || fail "find_package"
  cmake --build "$work/build" >"$work/output" 2>&1 || fail "the build of the example"
  uses_both "$work/build/tensors_c"
}

# What is installed is enough: the headers compile with no other include path, and need no header of a dependency.
case_headers() {
  install_library
  (cd "$prefix/include/penstock" && find . -name '*.h' -printf '#include "%P"\n') >"$work/all.cpp"
  (($(wc -l <"$work/all.cpp") >= 20)) || fail "headers are missing"
  c++ -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include/penstock" "$work/all.cpp" >"$work/output" 2>&1 ||
    fail "the installed C++ headers do not compile by themselves"
  cp "$prefix/include/penstock/penstock.h" "$work/one.c"
  cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only "$work/one.c" >"$work/output" 2>&1 || fail "penstock.h as C99"
  ! grep -rnE '#include <(fmt|nlohmann|spdlog|liburing|libaio|xxhash|cuda|torch)' "$prefix/include" >"$work/output" ||
    fail "an installed header includes a dependency's"
}

# Every function of the C header is in the shared library.
case_symbols() {
  install_library
  nm -D --defined-only "$prefix/lib/libpenstock.so" | awk '{ print $3 }' | sort >"$work/output"
  local name count=0
  while read -r name; do
    grep -qx "$name" "$work/output" || fail "libpenstock.so lacks $name"
    count=$((count + 1))
  done < <(sed 's|//.*||' "$prefix/include/penstock/penstock.h" | grep -oE '\bpenstock_[a-z_]+\(' | tr -d '(' | sort -u)
  ((count >= 25)) || fail "only $count functions were found in penstock.h"
}

# The program starts from where it is installed, and finds its companion there.
case_program() {
  [[ -x $build_dir/penstock ]] || {
    echo "skipped: this build has no program penstock"
    exit 77
  }
  cmake --install "$build_dir" --component penstock --prefix "$prefix" >"$work/output" 2>&1 || fail "the installation"
  "$prefix/bin/penstock" --version >"$work/output" 2>&1 || fail "the installed program does not start"
  grep -q '^penstock [0-9]' "$work/output" || fail "it does not say its version"
  [[ -f $prefix/share/doc/penstock/examples/demo.json ]] || fail "the configuration to start from is missing"
  if [[ -x $build_dir/penstock-bench ]]; then
    "$prefix/bin/penstock" bench --help >"$work/output" 2>&1 || fail "the installed program does not find penstock-bench"
  fi
}

# It exports the functions that it did, no more and no fewer.
case_exports() {
  install_library
  nm -D --defined-only "$prefix/lib/libpenstock.so" | awk '$3 ~ /^penstock_/ { print $3 }' | sort >"$work/exports"
  awk '$1 == "function" { print $2 }' "$source_dir/tests/earlier/abi.txt" | sort | diff - "$work/exports" >"$work/output" ||
    fail "other functions than in tests/earlier/abi.txt"
}

# The page that a newcomer copies from shows the very files that the other cases build.
case_readme() {
  local readme file
  readme=$(<"$source_dir/swap/README.md")
  for file in tensors.c tensors.cpp CMakeLists.txt; do
    [[ $readme == *$'\n```'*$'\n'"$(<"$source_dir/examples/$file")"$'\n```'* ]] ||
      fail "swap/README.md does not show examples/$file as it is"
  done
}

"case_$1"
echo "passed: $1"
