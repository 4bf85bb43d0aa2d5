#!/usr/bin/env bash
# The parity checks can fail.
# speed: fast
#> Parity tests can fail: each has planted-fault twins that turn it red (a gradient x 1.01, one bucket
#> not reduced, another mask seed).
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

# The twins stand beside what they break; a twin that stays green fails the test.
faults() { grep -E '^(figure faults_|pass |FAIL )'; }
gtest 'gradients x 1.01 break every parity run in fp64' e2e/e2e_parity_test '*Double*' | faults
gtest 'gradients x 1.01 break every parity run in fp32' e2e/e2e_parity_test '*Single*' | faults
gtest 'an unreduced bucket and another mask break the replicas check, statistics included' \
  e2e/e2e_replicas_test 'Replicas.Double*' | faults
gtest 'an unreduced bucket breaks the replicas check in fp32' \
  e2e/e2e_replicas_test 'Replicas.Single*' | faults
gtest 'another mask breaks the same-bits check' e2e/e2e_replicas_test 'Replicas.TheSame*' | faults
gtest 'a weight decay x 1.01 breaks the optimizer check' e2e/e2e_optimizer_test | faults
gtest 'the trainer alone shows planted faults' runtime/runtime_trainer_test 'Trainer.PlantedFaultsShow'
