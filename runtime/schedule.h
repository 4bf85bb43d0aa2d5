// Learning rate over the steps.
// Thread safety: pure functions.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "frontend/strategy/launch_config.h"

namespace hyper::runtime {

// Factor of the learning rate at step s (counted from 0), with warm-up W and total T:
//   s < W:            (s + 1) / W
//   constant:         1
//   s >= W, linear:   1 - (1 - min_ratio) * p
//   s >= W, cosine:   min_ratio + (1 - min_ratio) * (1 + cos(pi * p)) / 2
// where p = min(1, (s - W) / (T - W)), 1 when T <= W: the first step after the warm-up has the
// full rate, step T would have min_ratio. `run_steps` is T where the schedule leaves it open.
double ScheduleFactor(const strategy::ScheduleConfig& schedule, int64_t step, int64_t run_steps);

// Micro-batches per replica and step: `micro_batches` as given, or global_batch over
// micro_batch * replicas. kInvalidArgument when that does not divide, with the replica counts and
// the nearest global batches that would.
Result<int64_t> MicroBatchesPerReplica(const strategy::LaunchTrain& train, int64_t micro_batch,
                                       int replicas);

}  // namespace hyper::runtime
