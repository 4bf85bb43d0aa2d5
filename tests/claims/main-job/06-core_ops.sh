#!/usr/bin/env bash
# Core ops: kernels, gradients, node tests.
# speed: fast
#> Every core op: result against the reference kernel, gradient by finite differences in double for
#> every float input at once with random cotangents, over shapes that include 1, odd and zero sizes.
#> Reference kernels share no code with the emitter and pass the ONNX node-test data of every op they
#> support.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'every differentiable op has gradient checks and passes them' ir/ir_ops_test
echo "measured gradient_and_op_tests $(passed ir/ir_ops_test)"
echo "figure ops_with_gradient $("${hyperc}" ops --format json | grep -c '"gradient": "yes"')"
echo "figure ops $("${hyperc}" ops --format json | grep -c '{"name": "[a-z0-9_]*", "family"')"
gtest 'every op has a reference kernel with values by hand' ir/ir_core_test 'Reference.*'
gtest 'generated kernels equal the reference for any number of tasks' codegen/codegen_emit_test
gtest 'library kernels equal the reference' runtime/runtime_kernels_library_test
gtest 'node tests of ONNX: all but the listed refusals pass' \
  frontend/onnx/onnx_conformance_test
sed -n 's/^node tests: \([0-9]*\) passed, \([0-9]*\) refused, \([0-9]*\) failed.*/figure node_tests_passed \1\nfigure node_tests_refused \2\nfigure node_tests_failed \3/p' \
  "$(log_of frontend/onnx/onnx_conformance_test)"
# includes FOLDER PATTERN: does a file there include such a header?
includes() { grep -rqE "#include \"($2)" "${HYPER_SOURCE}/$1"; }
shares_code() { includes ir/reference '(codegen|lower)/' || includes codegen/emit 'ir/reference'; }
sees_includes() { includes ir/reference 'ir/' && includes codegen/emit 'ir/'; }
verdict 'the check of includes sees those that are there' sees_includes
verdict 'reference kernels and emitter share no code' eval '! shares_code'
gtest 'op records name the kernels that lowering chooses and the runtime prepares' \
  lower/lower_kernel_names_test
