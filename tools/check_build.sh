#!/bin/bash
# Builds the tree in another way and runs its tests there: check_build.sh fuzz|tsan|arm64
#   fuzz   clang++, AddressSanitizer and UndefinedBehaviorSanitizer: the unit tests, then each
#          libFuzzer target for KVIKK_FUZZ_SECONDS (default 15)
#   tsan   ThreadSanitizer: the tests of the layers that start threads
#   arm64  cross-compiled for 64-bit Arm: the tests of the kernels under qemu-user
# Warnings are errors in each. What passed is remembered by the content of the sources, so that an
# unchanged tree is not built or tested again.
set -euo pipefail
name=${1:?fuzz, tsan or arm64}
cd -- "$(dirname -- "$(readlink -f -- "$0")")/.."
build=build/$name

case $name in
  fuzz) sources=(src include apps tests fuzz) ;;
  tsan) sources=(src include tests) ;;
  arm64) sources=(include src/base src/kernels src/tensor tests/base tests/kernels tests/tensor) ;;
  *) echo "check_build.sh: '$name' is not one of fuzz, tsan, arm64" >&2; exit 2 ;;
esac
for path in "${!sources[@]}"; do
  [ -e "${sources[path]}" ] || unset "sources[path]"
done
sources+=(cmake CMakeLists.txt CMakePresets.json tools/check_build.sh)

content_hash() {
  {
    find "${sources[@]}" -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
    c++ --version
    clang++ --version
    aarch64-linux-gnu-g++ --version
    echo "${KVIKK_FUZZ_SECONDS-}"
  } | sha256sum
}

hash=$(content_hash)
if [ "$(cat "$build/passed" 2>/dev/null)" = "$hash" ]; then
  echo "$name: unchanged since it passed"
  exit 0
fi

# ThreadSanitizer and AddressSanitizer need the address space that kernels gave before they
# randomized it further.
fixed_addresses=()
if setarch -R true 2>/dev/null; then
  fixed_addresses=(setarch -R)
fi
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

run_fuzzers() {
  local seconds=${KVIKK_FUZZ_SECONDS:-15} program target corpus
  for program in "$build"/fuzz/fuzz_*; do
    [ -x "$program" ] || continue
    target=$(basename "$program" | sed 's/^fuzz_//')
    corpus=$build/corpus/$target  # what it finds goes here, the seeds stay as they are
    mkdir -p "$corpus" "$build/findings"
    seeds=()
    [ -d "fuzz/corpus/$target" ] && seeds+=("fuzz/corpus/$target")
    options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
             -artifact_prefix="$build/findings/$target-" -verbosity=0)
    if [ -f "fuzz/$target.dict" ]; then
      options+=(-dict="fuzz/$target.dict")
    fi
    echo "fuzzing $target for $seconds s"
    "${fixed_addresses[@]}" "$program" "${options[@]}" "$corpus" "${seeds[@]}"
  done
}

cmake --preset "$name" >&2
case $name in
  fuzz)
    cmake --build "$build"
    "${fixed_addresses[@]}" ctest --test-dir "$build" --output-on-failure -j "$(nproc)" \
      -LE '^(real|large)$'
    run_fuzzers
    ;;
  tsan)
    layers=()
    for layer in base tensor kv search engine serving; do
      if compgen -G "tests/$layer/*.cpp" >/dev/null; then layers+=("$layer"); fi
    done
    # Neighbours of these run the same code with threads.
    numbers='\.(IsNearTheExactOne|AgreesWithFloat64|IsTheDefinition)'
    cmake --build "$build" --target "${layers[@]/#/test_}" example
    "${fixed_addresses[@]}" ctest --test-dir "$build" --output-on-failure -j "$(nproc)" \
      -L "^($(IFS='|'; echo "${layers[*]}"))\$" -E "$numbers"
    ;;
  arm64)
    cmake --build "$build"
    ctest --test-dir "$build" --output-on-failure -j "$(nproc)"
    ;;
esac
echo "$hash" >"$build/passed"
