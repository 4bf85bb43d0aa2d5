#!/usr/bin/env bash
# libFuzzer with sanitizers.
# speed: slow
#> Fuzzing: 10 minutes per target without a finding, with ASan and UBSan.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

# HYPER_FUZZ_SECONDS: another time per target.
seconds="${HYPER_FUZZ_SECONDS:-600}"
for target in onnx strategy text_ir bundle checkpoint data; do
  code=0
  "${HYPER_SOURCE}/scripts/fuzz.sh" --seconds "${seconds}" "${target}" >"${WORK}/${target}.txt" || code=$?
  # Without its line there was no run: the verdict below says so.
  if read -r _ time _ inputs _ edges _ < <(grep "^${target} " "${WORK}/${target}.txt"); then
    echo "measured-min seconds_per_target ${time}"
    echo "measured inputs_${target} ${inputs}"
    echo "measured edges_${target} ${edges}"
  fi
  verdict "${target}: no finding" [ "${code}" = 0 ]
done
verdict '10 minutes per target' [ "${seconds}" -ge 600 ]
