#!/usr/bin/env bash
# Hostile files, replayed.
# speed: fast
#> Fuzzing: the corpus of broken files in the tests.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

ctests 'every reader answers the corpus and mutations of it by a fixed seed' "${HYPER_BUILD}" \
  -R '^fuzz_(seeds|onnx|strategy|text_ir|bundle|checkpoint|data)$'
