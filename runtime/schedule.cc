#include "runtime/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/strings.h"

namespace hyper::runtime {
namespace {

// Replica counts that divide `micro_batches_in_all`, at most 12 of them, the largest included.
std::string UsableReplicas(int64_t micro_batches_in_all) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= micro_batches_in_all; ++d) {
    if (micro_batches_in_all % d != 0) continue;
    divisors.push_back(d);
    if (d * d != micro_batches_in_all) divisors.push_back(micro_batches_in_all / d);
  }
  std::sort(divisors.begin(), divisors.end());
  std::vector<std::string> parts;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (divisors.size() > 12 && i == 11) {
      parts.push_back("...");
      i = divisors.size() - 1;
    }
    parts.push_back(fmt::format("{}", divisors[i]));
  }
  return Join(parts, ", ");
}

}  // namespace

double ScheduleFactor(const strategy::ScheduleConfig& schedule, int64_t step, int64_t run_steps) {
  const int64_t warmup = schedule.warmup;
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.kind == strategy::ScheduleKind::kConstant) return 1;
  const int64_t total = schedule.total.value_or(run_steps);
  double progress = 1;
  if (total > warmup) {
    progress =
        std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(total - warmup));
  }
  const double range = 1 - schedule.min_ratio;
  if (schedule.kind == strategy::ScheduleKind::kLinear) return 1 - range * progress;
  return schedule.min_ratio + range * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

Result<int64_t> MicroBatchesPerReplica(const strategy::LaunchTrain& train, int64_t micro_batch,
                                       int replicas) {
  if (!train.global_batch) return train.micro_batches.value_or(1);
  const int64_t global = *train.global_batch;
  const int64_t unit = micro_batch * replicas;
  if (global > 0 && global % unit == 0) return global / unit;
  if (global % micro_batch != 0) {
    const int64_t below = global / micro_batch * micro_batch;
    return InvalidArgument(fmt::format(
        "train.global_batch {} is no multiple of the compiled micro-batch of {} samples; nearest "
        "that are: {}{}",
        global, micro_batch, below > 0 ? fmt::format("{}, ", below) : "", below + micro_batch));
  }
  const int64_t below = global / unit * unit;
  return InvalidArgument(fmt::format(
      "train.global_batch {} does not divide over {} replicas of micro-batch {}; replica counts "
      "that do: {}; or a global batch of {}{}",
      global, replicas, micro_batch, UsableReplicas(global / micro_batch),
      below > 0 ? fmt::format("{} or ", below) : "", below + unit));
}

}  // namespace hyper::runtime
