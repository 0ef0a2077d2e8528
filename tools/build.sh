# shellcheck shell=bash
# ./run build, wheel and gpu-kit: CMake's presets, and the scripts that pack. Sourced by run; wants its say, die and have,
# setup.sh, torch.sh, and while_time of test.sh. build reads torch_dir: where it is empty, the build is one without LibTorch.
: "${torch_own:?}"

readonly presets=(release library cuda release-dev dev tsan fuzz)

# build [PRESET [TARGET...]]: without targets the programs for release and fuzz, everything for the others.
build() {
  local preset=${1:-release} folder targets=("${@:2}")
  folder=build/$preset
  [[ " ${presets[*]} " == *" $preset "* ]] || die "no preset '$preset'; there are ${presets[*]}"
  ((${#targets[@]})) || case $preset in
    release) targets=(penstock penstock-bench penstock_library penstock_python) ;;
    fuzz) targets=(penstock_fuzz) ;;
    *) targets=(all) ;;
  esac
  configure "$preset" "$folder"
  cache_works || export CCACHE_DISABLE=1
  local status=0
  while_time cmake --build "$folder" -j "$(jobs_at_once)" --target "${targets[@]}" || status=$?
  ((status != 124)) || exit 124 # as test.sh has it
  ((status == 0)) || die "building '$preset' failed: see above"
}

# configure PRESET FOLDER: where torch_dir is empty, the layers that need no LibTorch, whose objects stay when it comes.
configure() {
  local preset=$1 folder=$2 settings=("-DPENSTOCK_TORCH_DIR=${torch_dir?}")
  if [[ $preset == release ]]; then
    if [[ -n $torch_dir ]]; then settings+=(-DPENSTOCK_TORCH_LAYERS=ON); else settings+=(-DPENSTOCK_TORCH_LAYERS=OFF); fi
  fi
  [[ -z ${PENSTOCK_WERROR:-} ]] || settings+=(-DPENSTOCK_WERROR=ON)
  # Where a preset has another compiler than its folder, CMake begins again without what the preset says.
  if [[ $preset =~ ^(dev|tsan|fuzz)$ ]] && grep -s '^CMAKE_CXX_COMPILER:' "$folder/CMakeCache.txt" | grep -qv clang; then
    rm -rf "$folder"
  fi
  # ninja itself configures again when a CMakeLists.txt has changed; it does not see these.
  if [[ ! -f $folder/configured || CMakePresets.json -nt $folder/configured ||
    $(<"$folder/configured") != "${settings[*]}" ]]; then
    cmake --preset "$preset" "${settings[@]}" >&2 || die "configuring '$preset' failed: see above"
    printf '%s\n' "${settings[*]}" >"$folder/configured"
  fi
}

# ccache ends a build when it cannot write its folder: no home, another owner, a full disk.
cache_works() {
  have ccache || return 0
  local probe=build/cache-probe status=0
  mkdir -p "$probe"
  echo "// $$ $SECONDS $RANDOM" >"$probe/probe.cpp" # what no cache holds yet
  ccache "${CXX:-c++}" -c "$probe/probe.cpp" -o "$probe/probe.o" >/dev/null 2>&1 || status=1
  rm -rf "$probe"
  ((status == 0)) || say "run: ccache does not work here, so nothing is cached (\`ccache -s\` says more)"
  return "$status"
}

# One job per core, but 2 GB for each: a file that includes torch takes up to 1.4 GB to compile.
jobs_at_once() {
  awk -v cores="$(nproc)" '/^MemAvailable/ { n = int($2 / 2e6) } END { print n < 1 ? 1 : n < cores ? n : cores }' /proc/meminfo
}

# wheel [PROCESSOR]
# shellcheck disable=SC2120 # run has the processor
wheel() {
  make_venv || return 1
  python/wheel/make.sh "$@"
}

gpu_kit() {
  local made
  build cuda tests_core penstock penstock-bench
  made=$(wheel | tail -n 1)
  tests/gpu/pack.sh build/cuda "$made"
}

# While LibTorch is on its way, what needs none is compiled.
setup_and_begin() {
  if [[ -n ${PENSTOCK_TORCH:-} || -d $torch_own/torch ]]; then
    setup
    return
  fi
  setup_packages
  check_compiler
  (setup_torch) &
  local download=$!
  without_torch
  (build release penstock_core penstock_trainer_core) || true # the build after it says what is wrong
  wait "$download" || exit 1
  setup_torch
}
