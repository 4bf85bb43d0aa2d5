#!/usr/bin/env bash
# The demo: accuracy, time, the exported file in ONNX Runtime.
# speed: slow
#> Demo: at least 90.0 % test accuracy on Fashion-MNIST with 2 ranks; whole demo, set-up aside,
#> under 5 minutes on 2 cores. The exported file gives the same test accuracy and the same logits
#> (1e-4) in ONNX Runtime (PyPI `onnxruntime`, used by a test).
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

recipe="${HYPER_SOURCE}/recipes/fashion_mnist"
# Build item 2: a second set-up only checks what is there.
begin="$(date +%s.%N)"
if "${HYPER_SOURCE}/scripts/setup.sh" >"${WORK}/setup.log" 2>&1; then
  setup="$(awk "BEGIN { printf \"%.2f\", $(date +%s.%N) - ${begin} }")"
  echo "timing setup_again_s ${setup}"
  verdict 'a second set-up takes under 10 s' holds "${setup} < 10"
else
  echo 'FAIL a second set-up succeeds'
fi
cd "${WORK}"
begin="${SECONDS}"
"${hyperc}" compile "${recipe}/model.onnx" -s "${recipe}/train.yaml" -o demo.bundle >compile.log
mpi -n 2 "${hyperrun}" demo.bundle --export trained.onnx >run.log
seconds=$((SECONDS - begin))
echo "timing demo_seconds ${seconds}"
verdict 'under 5 minutes' [ "${seconds}" -lt 300 ]

# "evaluation loss 0.2443, accuracy 91.62 % on 10000 samples"
accuracy_of() { sed -n 's/.*accuracy \([0-9.]*\) % on.*/\1/p' "$1" | tail -1; }
accuracy="$(accuracy_of run.log)"
echo "measured-min test_accuracy_percent ${accuracy}"
verdict 'at least 90.0 % test accuracy' holds "${accuracy:-0} >= 90"

# The exported file, compiled again for inference and with the recipe's strategy.
"${hyperc}" compile trained.onnx -s "${recipe}/train.yaml" -o again.bundle >compile.log
"${hyperrun}" again.bundle --eval >eval.log
verdict 'the exported file compiled again has the same accuracy' \
  [ "$(accuracy_of eval.log)" = "${accuracy}" ]
printf 'version: 1\nmodel:\n  dims: {batch: 100}\n' >forward.yaml
"${hyperc}" compile trained.onnx -s forward.yaml -o forward.bundle >compile.log
if ! have_oracle; then
  echo 'not-run ONNX Runtime: needs scripts/setup.sh --oracle'
  exit 0
fi
python_check="${HYPER_SOURCE}/tests/claims/onnxruntime_check.py"
"${oracle}" "${python_check}" write trained.onnx images.f32
"${HYPER_BUILD}/tests/claims/claims_outputs" forward.bundle image images.f32 logits logits.f32
"${oracle}" "${python_check}" compare trained.onnx images.f32 logits.f32 >compare.log
grep '^measured ' compare.log
figure() { sed -n "s/^measured $1 //p" compare.log; }
verdict 'ONNX Runtime gives the same logits within 1e-4' holds "$(figure logits_error) <= 1e-4"
verdict 'ONNX Runtime gives the same accuracy' \
  holds "$(figure onnxruntime_accuracy_percent) == ${accuracy}"
