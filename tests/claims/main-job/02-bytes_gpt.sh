#!/usr/bin/env bash
# The byte-level GPT.
# speed: slow
#> `bytes_gpt`: below 2.2 bits per byte on held-out text; state the steps and minutes.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

recipe="${HYPER_SOURCE}/recipes/bytes_gpt"
cd "${WORK}"
"${recipe}/prepare.sh" >prepare.log
"${hyperc}" compile "${recipe}/model.onnx" -s "${recipe}/train.yaml" -o gpt.bundle >compile.log
begin="${SECONDS}"
mpi -n 2 "${hyperrun}" gpt.bundle >run.log
echo "timing minutes $(awk "BEGIN { printf \"%.1f\", ($((SECONDS - begin))) / 60 }")"
# "step 3200: evaluation loss 1.4428, accuracy 59.16 % on 2219 samples in 2.96 s"
steps="$(sed -n 's/^step \([0-9]*\): evaluation .*/\1/p' run.log | tail -1)"
loss="$(sed -n 's/.*evaluation loss \([0-9.]*\).*/\1/p' run.log | tail -1)"
bits="$(awk "BEGIN { printf \"%.4f\", ${loss} / log(2) }")"
echo "figure steps ${steps}"
echo "measured bits_per_byte ${bits}"
verdict 'below 2.2 bits per byte' holds "${bits} < 2.2"
