#!/usr/bin/env bash
# Hostile files, replayed.
# speed: fast
#> Fuzzing: the corpus of broken files in the tests.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

readonly targets='^fuzz_(seeds|onnx|strategy|text_ir|bundle|checkpoint|data)$'
verdict 'six targets and the seeds are tests' \
  [ "$(ctest --test-dir "${HYPER_BUILD}" -N -R "${targets}" | sed -n 's/^Total Tests: //p')" = 7 ]
ctests 'every reader answers the corpus and mutations of it by a fixed seed' "${HYPER_BUILD}" \
  -R "${targets}"
