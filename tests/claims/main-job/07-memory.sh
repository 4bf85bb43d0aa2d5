#!/usr/bin/env bash
# The memory plan, allocations, dispatch.
# speed: fast
#> Memory: the high-water mark of the operand ranges really touched equals the plan to the byte (dead
#> intervals and guards are poisoned and checked in the test mode); the plan is at most 1.1 x the
#> largest sum of live bytes, recomputed from the text IR by a test that shares no planner code. After
#> the first step: no heap allocation on the executor's threads (interposed), no growth of anonymous
#> RSS over 200 steps. Median no-op dispatch on one lane below 1 us.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'touched bytes equal the plan' e2e/e2e_plan_test 'Plan.Touched*'
gtest 'plans of the recipes within 1.1 of the live bytes' e2e/e2e_plan_test 'Plan.Peak*'
gtest 'the bound recomputed by a test of its own' offload/offload_test '*PeakTest*'
echo "not-run allocations inside oneDNN's own calls are counted apart, see library_allocations_per_step"
gtest 'no allocation of ours and no growth in 200 steps' e2e/e2e_plan_test 'Plan.Steady*'
gtest 'no allocation by trainer and reducer' runtime/runtime_allocation_test
gtest 'median dispatch below 1 us' e2e/e2e_dispatch_test
