#!/usr/bin/env bash
# Training against PyTorch's recorded numbers.
# speed: fast
#> Against PyTorch, at least six models (MLP, LeNet, ResNet-18 at 32x32 in training mode, a BERT-like
#> encoder, a tied GPT, a ConvNeXt-like block net), momentum SGD and AdamW, the loss falling by at
#> least 10 % on the way: recorded in double and run in fp64 mode, 20 losses and the final parameters
#> within 1e-8 relative; in fp32 step-1 gradients within 1e-5 normwise and first 3 losses within 1e-5,
#> and 20 losses within 1e-4 for the models without BatchNorm. Recorded numbers are small files; the
#> recording script is committed. The same with tensors renamed, nodes and initializers shuffled,
#> widths odd.
# shellcheck source=tests/claims/lib.sh
. "${HYPER_SOURCE}/tests/claims/lib.sh"

gtest 'fp64: losses, final parameters, running statistics, falling loss' \
  e2e/e2e_parity_test '*Double*' | grep -v '^figure faults_'
gtest 'fp32: gradients and losses' e2e/e2e_parity_test '*Single*' | grep -v '^figure faults_'
gtest 'every optimizer with values changed at the launch trains as with those values compiled in' \
  e2e/e2e_optimizer_test | grep -v '^figure faults_'
