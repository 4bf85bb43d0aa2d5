#!/usr/bin/env bash
# Fusion in the plans of the benchmark models.
# speed: slow
#> Fusion: no pair of neighbouring elementwise ops stays unfused in the ResNet-18 and GPT-2 plans
#> without a stated reason; bytes moved by generated kernels at most 1.2 x the lower bound of their
#> groups.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

if ! have_oracle; then
  echo 'not-run the models come from bench/export.py: needs scripts/setup.sh --oracle'
  exit 0
fi
cd "${WORK}"
for model in resnet18 gpt2; do
  "${oracle}" "${HYPER_SOURCE}/bench/export.py" "${model}" "${WORK}/${model}" >export.log 2>&1
  "${hyperc}" compile "${model}/model.onnx" -s "${model}/strategy.yaml" -o job.bundle >compile.log
  "${HYPER_BUILD}/tests/claims/claims_fusion_pairs" job.bundle >pairs.json
  "${oracle}" "${HYPER_SOURCE}/tests/claims/fusion_figures.py" "${model}" job.bundle/plan.json \
    pairs.json "${HYPER_SOURCE}/docs/formats.md" >figures.log
  cat figures.log
  figure() { awk -v name="${model}_$1" '$2 == name { print $3 }' figures.log; }
  # Neighbours come from a walk over the module, not from the plan's list.
  verdict "${model}: neighbours in two kernels are all listed, with a documented reason" \
    [ "$(figure unfused_without_reason)" = 0 ]
  verdict "${model}: a dropped pair and unknown reasons show" \
    holds "$(figure faults_planted) > 0 && $(figure faults_seen) == $(figure faults_planted)"
  verdict "${model}: every call of a generated kernel belongs to a group" \
    [ "$(figure calls_without_group)" = 0 ]
  verdict "${model}: all generated kernels together within 1.2 of the bound" \
    holds "$(figure moved_to_bound) <= 1.2"
  verdict "${model}: every fused group within 1.2 of its bound" [ "$(figure groups_above_1.2)" = 0 ]
  rm -rf job.bundle "${model}"
done
