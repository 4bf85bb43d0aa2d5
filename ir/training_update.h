// The functions of a training module that run once per step, behind the last micro-batch.
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "ir/training.h"

namespace hyper::ir {

// @stat_weight: every statistic accumulator times momentum^stat_scale[1], in place; runs before the
// accumulators are summed over replicas.
Result<Function> BuildStatWeight(const Module& module,
                                 const std::vector<RunningStatistic>& statistics);
// @grad_norm: "grad_norm_sq.<parameter>", an f64 scalar for each parameter in module order.
Result<Function> BuildGradNorm(const Module& module);
// @update: optimizer step of every parameter and running update of every statistic, in place.
Result<Function> BuildUpdate(const Module& module, const OptimizerSpec& optimizer,
                             const std::vector<RunningStatistic>& statistics);

}  // namespace hyper::ir
