#!/usr/bin/env bash
# The main job end to end: compiles recipes/fashion_mnist, trains it on 2 ranks and exports the
# trained model.
#
#   scripts/demo.sh [OUTPUT_FOLDER]     default: demo-out
set -euo pipefail
cd "$(dirname "$0")/.."

out="${1:-demo-out}"
scripts/setup.sh
# Clones in other folders share the compiler cache.
CCACHE_BASEDIR="$(pwd)"
export CCACHE_BASEDIR
cmake --preset release >/dev/null
cmake --build --preset release --target hyperc hyperrun
bin=build/release/bin
mkdir -p "${out}"
rm -rf "${out}/fashion_mnist.bundle" "${out}/run"

"${bin}/hyperc" compile recipes/fashion_mnist/model.onnx -s recipes/fashion_mnist/train.yaml \
  -o "${out}/fashion_mnist.bundle"

# As root (containers) OpenMPI wants to be told that this is meant.
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# On a machine with one core two ranks are more than the slots that mpirun sees.
mpirun --oversubscribe -n 2 "${bin}/hyperrun" "${out}/fashion_mnist.bundle" \
  --set "run.dir=${out}/run" --export "${out}/trained.onnx"
printf '\nThe trained model is %s; metrics and the final checkpoint are in %s.\n' \
  "${out}/trained.onnx" "${out}/run"
