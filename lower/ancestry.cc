#include "lower/ancestry.h"

#include <algorithm>

namespace hyper::lower {

using ir::NodeId;
using ir::ValueId;

Ancestry::Ancestry(const ir::Function& function) {
  const size_t nodes = static_cast<size_t>(function.node_count());
  parent_.resize(nodes);
  first_.assign(nodes, 0);
  size_.assign(nodes, 0);
  std::vector<int> depth(nodes, 0);
  const std::vector<NodeId>& order = function.order();
  for (const NodeId id : order) {
    for (const ValueId v : function.node(id).inputs) {
      const NodeId from = function.value(v).producer;
      if (!from.valid() || depth[I(from)] < depth[I(id)]) continue;
      depth[I(id)] = depth[I(from)] + 1;
      parent_[I(id)] = from;
    }
  }
  // Producers stand before their readers, so sizes are complete from the back.
  for (size_t k = order.size(); k-- > 0;) {
    const NodeId id = order[k];
    size_[I(id)] += 1;
    if (parent_[I(id)].valid()) size_[I(parent_[I(id)])] += size_[I(id)];
  }
  int roots = 0;
  std::vector<int> taken(nodes, 1);  // places below a node that its readers have already
  for (const NodeId id : order) {
    const NodeId up = parent_[I(id)];
    int& at = up.valid() ? taken[I(up)] : roots;
    first_[I(id)] = (up.valid() ? first_[I(up)] : 0) + at;
    at += size_[I(id)];
  }
}

}  // namespace hyper::lower
