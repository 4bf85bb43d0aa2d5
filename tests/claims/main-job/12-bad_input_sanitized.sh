#!/usr/bin/env bash
# The same with sanitizers.
# speed: slow
#> Bad input: … Run these under ASan/UBSan.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

# HYPER_ASAN_BUILD: a build of the preset asan-ubsan.
build="${HYPER_ASAN_BUILD:-${HYPER_SOURCE}/build/asan-ubsan}"
if [ ! -x "${build}/bin/hyperc" ]; then
  echo 'not-run needs a build of the preset asan-ubsan (cmake --preset asan-ubsan)'
  exit 0
fi
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
ctests 'bad input under ASan and UBSan' "${build}" \
  -R '^(cli_.*|strategy_test|codegen_bundle_test|onnx_frontend_test|runtime_data_test|runtime_checkpoint_test|runtime_job_test)$'
