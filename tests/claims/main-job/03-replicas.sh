#!/usr/bin/env bash
# The same numbers on 1, 2 and 4 replicas.
# speed: fast
#> The numbers do not depend on how many replicas share the work: the same global batch as 1 replica
#> x 4 micro-batches, 2 x 2 and 4 x 1, by one and the same bundle, Dropout on: in fp64 mode 50 losses
#> within 1e-9 relative and BatchNorm running statistics within 1e-7 (combined as if the micro-batches
#> had been seen one after another); in fp32 step-1 gradients within 1e-5 normwise, first 3 losses
#> within 1e-6, and 50 losses within 1e-5 for the models without BatchNorm. Same launch twice:
#> bit-identical.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

# Planted faults are another check's.
without_faults() { grep -v '^figure faults_'; }
gtest 'fp64: losses and running statistics on 1, 2 and 4 replicas' \
  e2e/e2e_replicas_test 'Replicas.Double*' | without_faults
gtest 'fp32: gradients and losses on 1, 2 and 4 replicas' \
  e2e/e2e_replicas_test 'Replicas.Single*' | without_faults
gtest 'the same launch twice gives the same bits' \
  e2e/e2e_replicas_test 'Replicas.TheSame*' | without_faults
