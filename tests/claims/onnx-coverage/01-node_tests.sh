#!/usr/bin/env bash
# Node tests of ONNX on the cpu target.
# speed: fast
#> The ONNX backend node tests of onnx 1.22.0 (1765 cases): a runner executes all of them through the
#> same path as hyperc + hyperrun on the cpu target with the default kernels. Only shape-deciding
#> inputs may be bound; the others arrive at run time, and the runner asserts that the tested op was
#> executed, not folded. At least 1,350 pass; every other one is refused for a reason from a short
#> closed list ("not implemented" is a failure); none gives a wrong number, crashes or hangs.
#> docs/onnx-support.md is generated and a test fails when it is stale. The training-domain cases and
#> all SoftmaxCrossEntropyLoss / NegativeLogLikelihoodLoss / BatchNormalization training cases pass.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'every case passes or is refused as listed' onnx_backend/onnx_backend_test
log="$(log_of onnx_backend/onnx_backend_test)"
# One line per case that was refused.
refused="${HYPER_SOURCE}/tests/onnx_backend/refused.txt"
awk -F '\t' '!/^#/ { name = $2; gsub(/[^A-Za-z0-9]+/, "_", name); print "figure refused_" name, 1 }' \
  "${refused}"
passes="$(sed -n 's/^figure node_tests_passed \([0-9]*\)$/\1/p' "${log}")"
executed="$(awk -F '\t' '/^count / && $2 == "passed, executed" { split($1, w, " "); n += w[2] } END { print n + 0 }' "${log}")"
echo "figure node_tests_passed_and_executed ${executed}"
verdict 'at least 1,350 cases pass' [ "${passes:-0}" -ge 1350 ]
verdict 'no case is refused as not implemented' eval "! grep -q 'not implemented' '${refused}'"

# refused_of PATTERN: how many cases with such names are refused.
refused_of() { grep -vE '^#' "${refused}" | cut -f1 | grep -cE "$1" || true; }
verdict 'training domain, losses and BatchNormalization in training pass' \
  [ "$(refused_of '^test_(adam|adagrad|momentum|nesterov|sce_|nllloss_|batchnorm)')" = 0 ]
gtest 'cases of the training domain, losses and norms exist' onnx_backend/onnx_support_test \
  'OnnxSupport.CasesOfTrainingExist'
gtest 'docs/onnx-support.md is what records and lists say' onnx_backend/onnx_support_test \
  'OnnxSupport.DocsAreUpToDate'
