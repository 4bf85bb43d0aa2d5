#!/usr/bin/env bash
# Sets up, builds and runs all tests that need neither a GPU nor much time.
#
#   scripts/test.sh            everything but the labels `slow` and `gpu`
#   scripts/test.sh --slow     the tests labelled `slow`
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh "$@"
# Clones in other folders share the compiler cache.
CCACHE_BASEDIR="$(pwd)"
export CCACHE_BASEDIR
preset=ci
cmake --preset "${preset}" >/dev/null
cmake --build --preset "${preset}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ "${1:-}" = --slow ]; then
  exec ctest --preset slow
fi
exec ctest --preset "${preset}" --timeout 600
