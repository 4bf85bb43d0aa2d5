// A spanning forest of a function's data flow that proves "w depends on u" in constant time: every
// node hangs below the producer with the longest way to it. Ways through other producers are not
// seen, so only a positive answer says anything.
// Thread safety: immutable after construction.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace hyper::lower {

class Ancestry {
 public:
  explicit Ancestry(const ir::Function& function);

  // u is w, or lies on the way to w in the forest. Both are live nodes.
  bool Covers(ir::NodeId u, ir::NodeId w) const {
    return first_[I(u)] <= first_[I(w)] && first_[I(w)] < first_[I(u)] + size_[I(u)];
  }
  // The producer that a node hangs below; invalid at a root.
  ir::NodeId Parent(ir::NodeId n) const { return parent_[I(n)]; }

 private:
  static size_t I(ir::NodeId n) { return static_cast<size_t>(n.index); }

  std::vector<ir::NodeId> parent_;
  std::vector<int> first_, size_;  // place in preorder; nodes of the subtree
};

}  // namespace hyper::lower
