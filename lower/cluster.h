// Partitions a function's kernels into clusters (fused groups and single ops) and orders them.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "lower/group.h"

namespace hyper::lower {

struct Cluster {
  Group group;    // fused; empty members: a single op
  ir::NodeId op;  // single op
  bool fused() const { return !group.members.empty(); }
};

struct Clusters {
  std::vector<Cluster> clusters;  // in execution order
  std::vector<std::string> unfused;
};

// `extra[n]`: nodes that must have run before node n (writes into argument buffers after their
// readers).
Result<Clusters> FormClusters(const Analysis& analysis,
                              const std::vector<std::vector<ir::NodeId>>& extra);

}  // namespace hyper::lower
