#!/usr/bin/env bash
# libFuzzer with sanitizers.
# speed: slow
#> Fuzzing: 10 minutes per target without a finding, with ASan and UBSan.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

# HYPER_FUZZ_SECONDS: another time per target.
seconds="${HYPER_FUZZ_SECONDS:-600}"
targets=(onnx strategy text_ir bundle checkpoint data)
"${HYPER_SOURCE}/scripts/fuzz.sh" --seconds "${seconds}" "${targets[@]}" >"${WORK}/lines.txt" || true
for target in "${targets[@]}"; do
  # Without its line there was no run.
  line="$(grep "^${target} " "${WORK}/lines.txt" || echo "${target} 0 s ? inputs ? edges no run")"
  read -r _ time _ inputs _ edges _ <<<"${line}"
  echo "measured-min seconds_per_target ${time}"
  echo "measured inputs_${target} ${inputs}"
  echo "measured edges_${target} ${edges}"
  verdict "${target}: no finding" grep -q ' no finding$' <<<"${line}"
done
verdict '10 minutes per target' [ "${seconds}" -ge 600 ]
