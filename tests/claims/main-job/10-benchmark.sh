#!/usr/bin/env bash
# Step times beside PyTorch's.
# speed: slow
#> Benchmark against PyTorch in `bench/`: newest PyPI `torch`, the faster of contiguous and
#> channels-last, foreach/fused optimizer, same threads and binding, losses compared first, alternating
#> runs, median of at least 10, ratio printed: one training step of ResNet-18 (batch 16, 224x224) and
#> of GPT-2 small (12 layers, 768 wide, batch 4 x 256 tokens), fp32, 2 threads; and 2 ranks x 1 thread
#> against DDP over Gloo. Not slower than PyTorch eager in any of the three; also print torch.compile's
#> ratio and the fraction of this machine's matmul peak.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

if ! have_oracle; then
  echo 'not-run needs scripts/setup.sh --oracle'
  exit 0
fi
# 4 alternating rounds of 5 measured steps each: medians over 20 steps a side.
"${oracle}" "${HYPER_SOURCE}/bench/run.py" --bin "${HYPER_BUILD}/bin" --out "${WORK}/bench" \
  --rounds 4 --compile --ddp >"${WORK}/bench.log"
# Titles stand at the begin of a line, sides below: "  eager   912.3 ms   ratio  1.05".
awk '
  /^[^ ]/ { title = $1; sub(/:$/, "", title); if (/on 2 ranks/) title = title "_2_ranks" }
  / of the matmul peak / { print "measured-min", title "_share_of_matmul_peak", $1 }
  / ms +ratio / {
    side = $0
    sub(/^ +/, "", side)
    sub(/ +[0-9.]+ ms .*/, "", side)
    gsub(/[^A-Za-z0-9.]+/, "_", side)
    print "timing", title "_" side "_ms", $(NF - 3)
    if (side != "hyper") print "measured-min", title "_ratio_to_" side, $NF
  }
  /largest relative difference/ { print "measured", title "_first_losses_difference", $NF }
' "${WORK}/bench.log" | tee "${WORK}/figures"
figure() { awk -v name="$1" '$2 == name { print $3 }' "${WORK}/figures" | grep . || echo "$2"; }
for job in resnet18 gpt2 resnet18_2_ranks gpt2_2_ranks; do
  # That of the initial weights and that behind the first update.
  verdict "${job}: the first two losses are PyTorch's within 1e-5" \
    holds "$(figure "${job}_first_losses_difference" 1) <= 1e-5"
done
for side in resnet18_ratio_to_eager resnet18_ratio_to_eager_channels_last gpt2_ratio_to_eager \
  resnet18_2_ranks_ratio_to_DDP_Gloo_ gpt2_2_ranks_ratio_to_DDP_Gloo_; do
  verdict "not slower: ${side}" holds "$(figure "${side}" 0) >= 1"
done
