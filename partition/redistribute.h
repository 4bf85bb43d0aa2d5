// From one layout of a tensor to another on the same mesh: the cheapest path over layout states.
// Steps and the order of data within a group: architecture, section 4; a greedy choice would gather
// where two all-to-alls are enough.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "partition/layout.h"

namespace hyper::partition {

enum class StepKind : uint8_t {
  kSlice,          // each rank keeps its part: nothing is sent
  kAllGather,      // parts of `dim` become the whole
  kReduceScatter,  // partial shares are combined, each rank keeps its part of `dim`
  kAllReduce,      // partial shares are combined
  kAllToAll,       // `from_dim` becomes whole, `dim` is cut instead
  kPermute,        // whole slices move to other ranks
};
std::string_view StepKindName(StepKind kind);  // "slice", "all_gather", ...

struct Step {
  StepKind kind = StepKind::kSlice;
  // The ranks that take part differ along these axes only, the outer one first: rank i of the group
  // has, or gets, part i. For a permute: the axes that change place.
  std::vector<AxisId> axes;
  int dim = -1;
  int from_dim = -1;
  Partial reduction = Partial::kNone;
  Layout after;
  // What one rank hands to the collective: its slice before the step. 0 for a slice and among one
  // rank.
  int64_t payload_bytes = 0;
  double seconds = 0;
};

// What a message over an axis costs.
struct LinkCost {
  double latency_seconds = 2e-6;
  double bytes_per_second = 1e10;
};

// Predicted time of a step by ring algorithms (architecture's conventions: all-reduce sends
// 2(P-1)/P of the slice per rank, all-gather P-1 slices, reduce-scatter and all-to-all (P-1)/P) and
// 1 + log2 P latencies: one to begin, so that one collective is cheaper than two.
double StepSeconds(StepKind kind, int64_t group, int64_t slice_bytes, const LinkCost& link);

// `element_bytes` > 0; both layouts have passed CheckLayout for `extents`. Axes that are partial in
// `to` are so in `from`, in the same way: kInvalidArgument otherwise. Of equally cheap paths the
// one with fewer steps, then the first in the order of layouts: the same arguments give the same
// path.
Result<std::vector<Step>> CheapestPath(const Mesh& mesh, std::span<const int64_t> extents,
                                       int64_t element_bytes, const Layout& from, const Layout& to,
                                       const LinkCost& link = {});

}  // namespace hyper::partition
