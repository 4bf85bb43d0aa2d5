#!/usr/bin/env bash
# Public bug reports.
# speed: fast
#> The bug-report cases: each a small test with the right behaviour.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'bug cases' frontend/onnx/onnx_frontend_test 'BugCases*'
echo "figure bug_case_tests $(passed frontend/onnx/onnx_frontend_test 'BugCases*')"
