// Facts about one decomposed function that grouping and placement share: which nodes are views,
// which are recomputed in every reader, where values really come from, and in which order a dense
// buffer of each value keeps its dims (the layout).
// Thread safety: immutable after construction.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "lower/lowered.h"

namespace hyper::lower {

enum class NodeKind : uint8_t {
  kView,     // broadcast, transpose, reshape, slice: re-strides, no kernel
  kCheap,    // constant, iota, random_uniform: recomputed where read
  kFusable,  // map, reduce
  kOpaque,   // a kernel of its own
};
NodeKind KindOf(const ir::Node& node);

// How a reduction is computed: inside a row of a fused loop, or as partial sums over chunks of
// rows that a second kernel combines.
enum class ReduceKind : uint8_t { kRow, kTerminal };

class Analysis {
 public:
  explicit Analysis(const ir::Function& function);

  const ir::Function& function() const { return f_; }
  NodeKind Kind(ir::NodeId id) const { return kind_[static_cast<size_t>(id.index)]; }
  // The value that v is a view of (v itself where its producer is no view).
  ir::ValueId Base(ir::ValueId v) const { return base_[static_cast<size_t>(v.index)]; }
  // View nodes from Base(v) to v, in order of application.
  std::vector<const ir::Node*> Chain(ir::ValueId v) const;
  const ir::Node* Producer(ir::ValueId v) const;
  ir::NodeId ProducerId(ir::ValueId v) const { return f_.value(v).producer; }
  int Uses(ir::ValueId v) const { return uses_[static_cast<size_t>(v.index)]; }
  const std::vector<ir::NodeId>& Users(ir::ValueId v) const {
    return users_[static_cast<size_t>(v.index)];
  }
  int Position(ir::NodeId id) const { return position_[static_cast<size_t>(id.index)]; }
  // Layout of v: dense in the chosen order, or what views make of that.
  const View& Layout(ir::ValueId v) const { return layout_[static_cast<size_t>(v.index)]; }
  ReduceKind Reduce(ir::NodeId id) const { return reduce_[static_cast<size_t>(id.index)]; }

 private:
  void ComputeLayouts();
  View LayoutOf(const ir::Node& node, size_t output) const;
  std::vector<int> DotOrder(const ir::Node& node) const;
  ReduceKind Classify(const ir::Node& node) const;

  const ir::Function& f_;
  std::vector<NodeKind> kind_;
  std::vector<ir::ValueId> base_;
  std::vector<int> uses_, position_;
  std::vector<std::vector<ir::NodeId>> users_;
  std::vector<View> layout_;
  std::vector<ReduceKind> reduce_;
};

// What the view node makes of its input's view; nullopt where a reshape needs a copy.
std::optional<View> ApplyView(const ir::Node& node, const View& input);

}  // namespace hyper::lower
