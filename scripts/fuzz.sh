#!/usr/bin/env bash
# Fuzzes the readers of files with libFuzzer, AddressSanitizer and UBSan (Clang).
#
#   scripts/fuzz.sh [--seconds N] [--jobs N] [TARGET...]     default: 600 seconds per target, all targets,
#                                                           as many at once as there are cores
#
# Targets: onnx strategy text_ir bundle checkpoint data (tests/fuzz). Inputs that were found interesting stay in
# build/fuzz/corpus/TARGET, findings in build/fuzz/findings. Fails when there is a finding.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=600
jobs="$(nproc)"
targets=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seconds) seconds="${2:?--seconds needs a number}"; shift 2 ;;
    --jobs) jobs="${2:?--jobs needs a number}"; shift 2 ;;
    -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done
[ "${#targets[@]}" -gt 0 ] || targets=(onnx strategy text_ir bundle checkpoint data)
for target in "${targets[@]}"; do
  [[ " onnx strategy text_ir bundle checkpoint data " == *" ${target} "* ]] ||
    { echo "fuzz.sh: no target '${target}'; there are: onnx strategy text_ir bundle checkpoint data" >&2; exit 2; }
done

scripts/setup.sh --fuzz
CCACHE_BASEDIR="$(pwd)"
export CCACHE_BASEDIR
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
build="$(pwd)/build/fuzz"
bin="${build}/tests/fuzz"
deps="${HYPER_DEPS:-${XDG_CACHE_HOME:-${HOME}/.cache}/hyper}"
mkdir -p "${build}/findings"
"${bin}/fuzz_seeds" "${build}/seeds"
for target in "${targets[@]}"; do
  mkdir -p "${build}/corpus/${target}"
  if [ -d "${build}/seeds/${target}" ]; then cp "${build}/seeds/${target}"/* "${build}/corpus/${target}/"; fi
done
if [[ " ${targets[*]} " == *" onnx "* ]]; then
  # Small real exports, the smallest light model and the smallest node test of each operator: an input
  # that takes seconds, or one of many alike, takes the time from the others.
  cp tests/parity/zoo/{lstm_classifier,cnn3d,gru_lm}.*.onnx "${build}/corpus/onnx/"
  data="${deps}/onnx-1.22.0/share/onnx-testdata"
  cp "${data}/light/light_bvlc_alexnet.onnx" "${build}/corpus/onnx/"
  find "${data}/node" -name model.onnx -size -20k -printf '%s %h\n' | sort -n | awk '
    { name = $2; sub(/.*\/test_/, "", name); sub(/_.*/, "", name) }
    !seen[name]++ { print $2 }' | while read -r folder; do
    cp "${folder}/model.onnx" "${build}/corpus/onnx/$(basename "${folder}").onnx"
  done
fi
if [[ " ${targets[*]} " == *" strategy "* ]]; then
  cp recipes/fashion_mnist/train.yaml "${build}/corpus/strategy/fashion.yaml"
  cp recipes/bytes_gpt/train.yaml "${build}/corpus/strategy/gpt.yaml"
fi

# Dependencies (ONNX, Protocol Buffers, yaml-cpp, JSON's headers apart) are not instrumented.
export ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=0"
# One target; its line says what came of it.
fuzz() {
  local target="$1" code=0 log="${build}/$1.log" runs coverage verdict='no finding'
  # Not every target has committed inputs: the seeds above do for some.
  local committed=()
  if [ -d "tests/fuzz/corpus/${target}" ]; then committed=("tests/fuzz/corpus/${target}"); fi
  "${bin}/fuzz_${target}" -max_total_time="${seconds}" -timeout=30 -rss_limit_mb=3000 \
    -malloc_limit_mb=512 -max_len=300000 -print_final_stats=1 \
    -artifact_prefix="${build}/findings/${target}-" \
    "${build}/corpus/${target}" "${committed[@]}" >"${log}" 2>&1 || code=$?
  runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "${log}")"
  coverage="$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' "${log}" | tail -1)"
  if [ "${code}" != 0 ]; then verdict="FINDING, see ${log}"; fi
  printf '%-11s %5s s  %9s inputs  %6s edges  %s\n' "${target}" "${seconds}" "${runs:-?}" \
    "${coverage:-?}" "${verdict}"
  return "${code}"
}

failed=0
running=0
for target in "${targets[@]}"; do
  if [ "${running}" -ge "${jobs}" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz "${target}" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || failed=1; done
exit "${failed}"
