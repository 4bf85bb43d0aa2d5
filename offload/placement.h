// Addresses: every root of a lowered module gets a byte offset in the one arena of its rank.
// Persistent classes lie first, in Storage order; temporaries of all functions share the last
// region, packed by lifetime.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "lower/lowered.h"

namespace hyper::offload {

inline constexpr int64_t kAlignment = 64;  // of every root, bytes

struct PlacementOptions {
  int64_t guard_bytes = 0;          // poisoned gap behind each root (test mode)
  int64_t bucket_bytes = 25 << 20;  // data-parallel bucket size
};

struct FunctionPlan {
  std::string name;
  int64_t temporary_peak = 0;    // bytes used of the temporary region
  int64_t live_lower_bound = 0;  // max over time of the sum of live root bytes
};

struct GradientBucket {  // contiguous piece of the gradient region
  int64_t begin = 0;
  int64_t end = 0;
  ir::DType dtype = ir::DType::kF32;
  std::vector<std::string> parameters;
};

struct RegionPlan {
  lower::Storage storage;
  int64_t begin = 0;
  int64_t end = 0;
};

struct PlacedModule {
  lower::LoweredModule module;   // markers rewritten: one per bucket, at its last gradient
  std::vector<int64_t> offsets;  // bytes, per root
  std::vector<RegionPlan> regions;
  std::vector<FunctionPlan> functions;
  std::vector<GradientBucket> buckets;  // in the order in which they become ready
  int64_t arena_bytes = 0;
};

Result<PlacedModule> Place(lower::LoweredModule module, const PlacementOptions& options);

}  // namespace hyper::offload
