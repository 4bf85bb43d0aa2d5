#!/usr/bin/env bash
# Gradients through the importer.
# speed: fast
#> Every differentiable ONNX op: gradient by finite differences in double through the importer, all
#> since-versions, every attribute variant that the node tests show, all float inputs at once, random
#> cotangents on all outputs.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'gradients of node tests agree with differences or the list says why there is none' \
  onnx_backend/onnx_gradients_test
gtest 'gradients of further attribute variants agree, wrong ones do not' \
  onnx_backend/onnx_gradient_variants_test
gtest 'every version of every differentiable operator has a checked gradient or a stated reason' \
  onnx_backend/onnx_gradient_versions_test
