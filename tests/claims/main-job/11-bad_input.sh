#!/usr/bin/env bash
# Messages and exit codes for bad input.
# speed: fast
#> Bad input: truncated or hostile ONNX, unknown key / wrong type / duplicate key in YAML (line,
#> column, suggestion), an input whose data has another shape or range, a missing data file, a label
#> outside the classes, a damaged bundle, a bundle of another version: each a message that names the
#> thing, the actual value and what would be accepted; right exit code. Run these under ASan/UBSan.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

ctests 'the programs, given bad input, say what is wrong' "${HYPER_BUILD}" -L '^cli$'
ctests 'strategies: unknown keys, types, duplicates, hostile text' "${HYPER_BUILD}" -R '^strategy_test$'
gtest 'damaged bundles, bundles of other versions, hostile programs' \
  codegen/codegen_bundle_test 'BundleDamageTest.*'
echo "measured damaged_bundle_tests $(passed codegen/codegen_bundle_test 'BundleDamageTest.*')"
gtest 'hostile ONNX files' frontend/onnx/onnx_frontend_test 'Load.*:Load/*:Hostile*:LargeFiles.*:Import.*Refused*'
gtest 'data of another shape, type or range' runtime/runtime_data_test
gtest 'wrong input is refused before the first step' \
  runtime/runtime_job_test 'JobTest.WrongInput*:JobTest.OneRanksFailure*'
