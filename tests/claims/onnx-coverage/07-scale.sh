#!/usr/bin/env bash
# Large graphs.
# speed: slow
#> A 48-layer, 1600-wide GPT-2 XL graph (1.5 B parameters, external data): hyperc compile under 60 s
#> apart from writing the parameters, anonymous memory at most 1 GiB; a 1,000-layer graph of width 64
#> takes at most 4.6 x the time of 250 layers.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'GPT-2 XL compiles under 60 s and 1 GiB' tools/scale_test 'Scale.Gpt2Xl*'
gtest '1,000 layers take at most 4.6 x the time of 250' tools/scale_test 'Scale.Time*'
