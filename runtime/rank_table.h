// Placement: rank -> (model, module, replica, coordinates). The one place that computes ranks.
// Replicas are outermost: rank = replica * ranks_per_replica + position in the replica.
// Thread safety: immutable after creation.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hyper::runtime {

struct RankPlace {
  std::string model;
  std::string module;  // empty: the model's only one
  int replica = 0;
  std::vector<int> coordinates;  // in the compiled mesh, outermost axis first; empty: one position
};

class RankTable {
 public:
  // kInvalidArgument when `ranks` is no multiple of `ranks_per_replica`, with counts that are.
  static Result<RankTable> Create(const std::string& model, int ranks, int ranks_per_replica);

  int ranks() const { return static_cast<int>(places_.size()); }
  int replicas() const { return replicas_; }
  const RankPlace& place(int rank) const { return places_[static_cast<size_t>(rank)]; }

 private:
  std::vector<RankPlace> places_;
  int replicas_ = 0;
};

}  // namespace hyper::runtime
