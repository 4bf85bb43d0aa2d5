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
gtest 'no allocation on any thread after the first step: 200 steps of the conv nets, 50 of the GPT' \
  e2e/e2e_plan_test 'Plan.SteadyStepsDoNotAllocate'
gtest 'a planted allocation shows, on every thread of the team' \
  e2e/e2e_plan_test 'Plan.APlantedAllocationShows'
gtest 'slabs serve blocks inside library calls alone, from any thread to any thread' \
  runtime/runtime_kernels_library_blocks_test
gtest 'no growth in 200 steps' e2e/e2e_plan_test 'Plan.SteadyStepsDoNotGrow'
gtest 'no allocation by trainer, reducer and loader' runtime/runtime_allocation_test
gtest 'median dispatch below 1 us' e2e/e2e_dispatch_test
