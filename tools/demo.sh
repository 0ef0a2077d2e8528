# shellcheck shell=bash
# ./run demo: its stages, and the text that it learns. Sourced by run; wants its root, say, die, have and joined, setup.sh,
# torch.sh and build.sh. The variables of a demo are local to demo: its stages see them, nothing else does.
: "${root:?}" "${torch_own:?}" "${torch_download:?}"

# Folders of the kernel's documentation that are mostly prose, not tables and bindings: about 12 MB.
readonly demo_folders=(
  process admin-guide filesystems networking driver-api core-api mm block scheduler locking RCU trace dev-tools
  doc-guide kernel-hacking power security virt maintainer
)
readonly demo_text_min_bytes=2000000

# What the build of the program takes one core: measured, and said beforehand as a guess for this machine.
readonly program_core_seconds=300

# demo [--steps N]
demo() {
  local steps=()
  case ${1:-} in
    '') ;;
    --steps)
      [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "demo --steps wants a number of steps, not '${2:-}'"
      steps=(--steps "$2")
      ;;
    *) die "demo knows no '$1'; there is --steps N" ;;
  esac
  local precision=()
  multiplies_bf16 || precision=(--set bf16.enabled=false --set memory.host_budget=136MiB --set run.steps=60 --set run.sample.tokens=100)
  local stages=()
  say_demo_plan
  stage '1 setup' 'what is missing of packages and LibTorch' setup_and_begin
  stage '2 build' "the program, about $(duration "$(program_seconds)") unless it is there" build release penstock
  stage '3 text' 'what the model reads' demo_tokens
  say "--- 4 training: begins $(duration "$SECONDS") after the start; Ctrl-C stops it, ./run demo goes on"
  stage '4 training' 'the store takes 0.7 GB in .demo' \
    build/release/penstock train trainer/demo.json "${precision[@]}" "${steps[@]}"
  printf '%s\n' '' "took: $(joined ', ' "${stages[@]}")" >&2
  say_demo_next
}

# What a command that sets a variable of this shell has to say is said before; its end with how long it took.
# stage <name> <what is to come> <command...>
stage() {
  local name=$1 start=$SECONDS
  say "--- $name: $2"
  shift 2
  "$@"
  stages+=("$name $(duration $((SECONDS - start)))")
}

# duration <seconds>: "59 s", "4 min 05 s"
duration() {
  if (($1 < 60)); then printf '%d s' "$1"; else printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); fi
}

# LibTorch multiplies bf16 fast by AMX or Arm's bf16 instructions. With AVX-512 alone a step takes 1.4 times as long as in
# fp32, without that twenty times. The gradients of fp32 want more memory.
multiplies_bf16() { lscpu 2>/dev/null | grep -qwE 'amx_bf16|bf16'; }

# With the `precision` of demo.
say_demo_plan() {
  local torch='is here' text='is here' training='200 steps in bf16: about 2'
  ((${#precision[@]} == 0)) || training='60 steps in fp32, for want of AMX: about 3'
  [[ -d $torch_own || -n ${PENSTOCK_TORCH:-} ]] || torch="$torch_download to download unless python3 has a torch that fits, 1.6 GB of disk"
  [[ -d .demo/text ]] || text='about 40 MB to download'
  cat >&2 <<END
demo: a model of 28.6 million parameters learns English text; its weights and states, 327 MiB, stay on disk.
  1 setup     Debian packages and LibTorch: LibTorch $torch; 1 to 3 minutes where all is missing
  2 build     the program: about $(duration "$(program_seconds)") on the cores of this machine, 1 GB of disk
  3 text      the Linux kernel's documentation: $text; 10 s
  4 training  $training minutes on two cores; 0.7 GB of disk
What is there already takes no time.
END
}

program_seconds() { echo $((program_core_seconds / $(jobs_at_once))); }

say_demo_next() {
  cat >&2 <<'END'

Next:
  the stored model, read and verified:   build/release/penstock ckpt verify .demo/swap
  your own text instead (a folder of *.txt, *.md, *.rst):
    build/release/penstock prepare --out .demo/own.tokens FOLDER
    build/release/penstock train trainer/demo.json --set data.train=.demo/own.tokens --set run.directory=.demo/own-run \
      --set zero_optimization.offload_param.nvme_path=.demo/own-swap
  does all of it work on this machine?   ./run test
END
}

demo_tokens() {
  demo_text
  [[ -f .demo/text.tokens ]] || build/release/penstock prepare --out .demo/text.tokens .demo/text
}

# Makes .demo/text/*.txt, once, from a package of documentation; the package is unpacked, not installed.
demo_text() {
  [[ -d .demo/text ]] && return
  if ! have apt-get || ! have dpkg-deb; then
    die "the demo unpacks its text from a Debian package and there is no apt-get here: put text files into $root/.demo/text"
  fi
  rm -rf .demo/partial
  mkdir -p .demo/partial/text
  text_from_kernel ||
    die "no text for the demo: check the network and try again, or put text files into $root/.demo/text"
  mv .demo/partial/text .demo/text
  rm -rf .demo/partial
}

text_from_kernel() {
  local folder
  unpack_documentation || return 1
  for folder in "${demo_folders[@]}"; do
    find .demo/partial/unpacked -type f \( -name '*.rst' -o -name '*.rst.gz' \) -path "*/Documentation/$folder/*" -print0 |
      LC_ALL=C sort -z | xargs -0 -r zcat -f | drop_rulers >".demo/partial/text/$folder.txt"
  done
  text_is_enough
}

# Lines without a letter or digit (underlines, frames of tables) and repeated empty lines teach nothing.
drop_rulers() { LC_ALL=C grep -avE '^[^[:alnum:]]*[^[:alnum:][:space:]]{3}[^[:alnum:]]*$' | cat -s; }

text_is_enough() {
  find .demo/partial/text -type f -empty -delete
  (($(cat .demo/partial/text/* 2>/dev/null | wc -c) >= demo_text_min_bytes))
}

unpack_documentation() {
  mkdir -p .demo/partial/unpacked
  if ! download_documentation; then
    # A fresh image has no package lists.
    can_be_root && as_root apt-get -qq update >&2
    download_documentation || return 1
  fi
  dpkg-deb -x .demo/partial/linux-doc*.deb .demo/partial/unpacked
}

download_documentation() {
  local package
  # Debian's linux-doc only points to the package of the current kernel; Ubuntu's is the documentation itself.
  package=$(apt-cache depends linux-doc 2>/dev/null | sed -n 's/.*Depends: *\(linux-doc-[0-9].*\)/\1/p' | head -n 1)
  package=${package:-linux-doc}
  say "downloading the package $package for its text ($(package_megabytes "$package"))"
  (cd .demo/partial && apt-get -qq -o APT::Sandbox::User=root download "$package" >&2)
}

package_megabytes() {
  apt-cache show --no-all-versions "$1" 2>/dev/null | awk '/^Size:/ { printf "%d MB", $2 / 1e6; found = 1; exit }
    END { if (!found) printf "size unknown" }'
}
