#!/usr/bin/env bash
# Real files and exports of PyTorch.
# speed: slow
#> Real files compile for training and run 5 steps: the 9 light models of the onnx package; magika's
#> classifier, rapidocr's angle classifier and basic-pitch; PyTorch exports by both exporters of 14
#> architectures. Every float weight on the way to the loss trains and gets a non-zero gradient unless
#> inspect says why not. For the PyTorch ones 10 momentum-SGD steps match PyTorch: recorded in double
#> and run in fp64 mode within 1e-8 relative; in fp32 step-1 gradients within 1e-5 normwise.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'light models train five steps' e2e/e2e_light_models_test
gtest 'files from packages train five steps' e2e/e2e_real_files_test
gtest 'architectures by both exporters match ten recorded steps' e2e/e2e_zoo_test
runs="$(find "${HYPER_SOURCE}/tests/parity/zoo" -name '*.json' | wc -l)"
verdict 'all 14 architectures by both exporters' [ "${runs}" = 28 ]
