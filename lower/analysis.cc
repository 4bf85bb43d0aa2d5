#include "lower/analysis.h"

#include <algorithm>
#include <numeric>

#include "ir/op_def.h"
#include "lower/view.h"

namespace hyper::lower {

using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {
size_t I(ValueId v) { return static_cast<size_t>(v.index); }
size_t I(NodeId n) { return static_cast<size_t>(n.index); }
}  // namespace

NodeKind KindOf(const Node& node) {
  const std::string_view op = node.op->name;
  if (op == "broadcast" || op == "transpose" || op == "reshape" || op == "slice") {
    return NodeKind::kView;
  }
  if (op == "constant") {
    // Tensors live in buffers of their own; a single number is written into the kernel.
    return node.attributes.Tensor("value").type().rank() == 0 ? NodeKind::kCheap
                                                              : NodeKind::kOpaque;
  }
  if (op == "iota" || op == "random_uniform") return NodeKind::kCheap;
  if (op == "map" || op == "reduce") return NodeKind::kFusable;
  return NodeKind::kOpaque;
}

std::optional<View> ApplyView(const Node& node, const View& in) {
  const auto& a = node.attributes;
  const std::string_view op = node.op->name;
  if (op == "transpose") return TransposeView(in, a.GetDims("perm"));
  if (op == "reshape") return ReshapeView(in, a.GetDims("shape"));
  if (op == "broadcast") return BroadcastView(in, a.GetDims("shape"), a.GetDims("dims"));
  return SliceView(in, a.GetDims("starts"), a.GetDims("limits"), a.GetDims("strides"));
}

Analysis::Analysis(const ir::Function& function) : f_(function) {
  uses_.assign(static_cast<size_t>(f_.value_count()), 0);
  position_.assign(static_cast<size_t>(f_.node_count()), 0);
  users_ = f_.ComputeUsers();
  int at = 0;
  kind_.assign(static_cast<size_t>(f_.node_count()), NodeKind::kOpaque);
  base_.resize(static_cast<size_t>(f_.value_count()));
  for (const ir::Argument& a : f_.arguments()) base_[I(a.value)] = a.value;
  for (NodeId id : f_.order()) {
    const Node& node = f_.node(id);
    kind_[I(id)] = KindOf(node);
    for (ValueId v : node.outputs) {
      base_[I(v)] = kind_[I(id)] == NodeKind::kView ? base_[I(node.inputs[0])] : v;
    }
    position_[I(id)] = at++;
    for (ValueId v : f_.node(id).inputs) ++uses_[I(v)];
  }
  for (const ir::FunctionResult& r : f_.results()) ++uses_[I(r.value)];
  ComputeLayouts();
}

const Node* Analysis::Producer(ValueId v) const {
  const NodeId id = f_.value(v).producer;
  return id.valid() ? &f_.node(id) : nullptr;
}

std::vector<const Node*> Analysis::Chain(ValueId v) const {
  std::vector<const Node*> chain;
  for (const Node* n = Producer(v); n != nullptr && KindOf(*n) == NodeKind::kView;
       n = Producer(v)) {
    chain.push_back(n);
    v = n->inputs[0];
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

void Analysis::ComputeLayouts() {
  layout_.resize(static_cast<size_t>(f_.value_count()));
  reduce_.assign(static_cast<size_t>(f_.node_count()), ReduceKind::kRow);
  for (const ir::Argument& a : f_.arguments()) layout_[I(a.value)] = DenseView(f_.type(a.value));
  for (NodeId id : f_.order()) {
    const Node& node = f_.node(id);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      layout_[I(node.outputs[i])] = LayoutOf(node, i);
    if (node.op->name == "reduce") reduce_[I(id)] = Classify(node);
  }
}

// Attention puts heads before positions and back: writing the product in the order of the
// transpose that follows makes the reshape after it free.
std::vector<int> Analysis::DotOrder(const Node& node) const {
  const ValueId y = node.outputs[0];
  for (NodeId u : users_[I(y)]) {
    const Node& user = f_.node(u);
    if (user.op->name != "transpose") continue;
    const ir::Dims& perm = user.attributes.GetDims("perm");
    if (perm.back() != static_cast<int64_t>(perm.size()) - 1) continue;
    return std::vector<int>(perm.begin(), perm.end());
  }
  std::vector<int> order(f_.type(y).dims.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

View Analysis::LayoutOf(const Node& node, size_t output) const {
  const ir::TensorType& type = f_.type(node.outputs[output]);
  const std::string_view op = node.op->name;
  if (KindOf(node) == NodeKind::kView) {
    const std::optional<View> v = ApplyView(node, layout_[I(node.inputs[0])]);
    return v ? *v : DenseView(type);
  }
  if (op == "conv" || op == "conv_grad_input") {
    std::vector<int> order = {0};
    for (int d = 2; d < type.rank(); ++d) order.push_back(d);
    order.push_back(1);
    return DenseViewInOrder(type, order);
  }
  if (op == "dot") return DenseViewInOrder(type, DotOrder(node));
  if (op == "max_pool" || op == "avg_pool" || op == "max_pool_grad" || op == "avg_pool_grad") {
    return DenseViewInOrder(type, OrderOf(layout_[I(node.inputs[0])]));
  }
  if (op == "reduce") {
    const std::vector<int> order = OrderOf(layout_[I(node.inputs[0])]);
    const ir::Dims& axes = node.attributes.GetDims("axes");
    std::vector<int> kept;
    for (int d : order) {
      if (std::find(axes.begin(), axes.end(), d) != axes.end()) continue;
      kept.push_back(d - static_cast<int>(std::count_if(axes.begin(), axes.end(),
                                                        [d](int64_t a) { return a < d; })));
    }
    return DenseViewInOrder(type, kept);
  }
  if (op == "map" || op == "concat" || op == "accumulate") {
    const View* largest = nullptr;
    for (ValueId v : node.inputs) {
      const View& view = layout_[I(v)];
      if (largest == nullptr || DistinctElements(view) > DistinctElements(*largest))
        largest = &view;
    }
    return DenseViewInOrder(type, OrderOf(*largest));
  }
  return DenseView(type);
}

ReduceKind Analysis::Classify(const Node& node) const {
  constexpr int64_t kSmall = 8192;  // elements that one task sums at once
  const View& in = layout_[I(node.inputs[0])];
  const ir::Dims& axes = node.attributes.GetDims("axes");
  const std::vector<int> order = OrderOf(in);
  int innermost = -1;
  for (int d : order)
    if (in.type.dims[static_cast<size_t>(d)] != 1) innermost = d;
  const bool inner = innermost < 0 || std::find(axes.begin(), axes.end(), innermost) != axes.end();
  const int64_t kept = f_.type(node.outputs[0]).elements();
  const int64_t reduced = kept == 0 ? 0 : in.type.elements() / kept;
  if (f_.type(node.outputs[0]).rank() == 0 || kept == 1) {
    return f_.type(node.outputs[0]).rank() == 0 && reduced > kSmall ? ReduceKind::kTerminal
                                                                    : ReduceKind::kRow;
  }
  if (in.type.elements() == 0) return ReduceKind::kRow;
  return inner ? ReduceKind::kRow : ReduceKind::kTerminal;
}

}  // namespace hyper::lower
