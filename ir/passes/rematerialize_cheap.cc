// rematerialize_cheap: clones constants, iotas, random draws and broadcasts next to far consumers
// (above all from forward into backward), so that their results need not live in between.
// Before: op ids assigned, autodiff done. After: the same values, computed where they are read; a
// clone has the stream number of its original, hence draws the same numbers.
// Place: late, just before lowering. cse would undo it and must not run afterwards.
#include <algorithm>
#include <charconv>

#include "ir/op_def.h"
#include "ir/passes/passes.h"

namespace hyper::ir {
namespace {

bool IsCheap(const Function& f, const Node& node) {
  const std::string_view op = node.op->name;
  if (op == "constant" || op == "iota" || op == "random_uniform") return true;
  // A broadcast that grows: its source is the smaller thing to keep.
  return op == "broadcast" && f.type(node.inputs[0]).bytes() < f.type(node.outputs[0]).bytes();
}

class Rematerializer {
 public:
  Rematerializer(Function& f, int64_t distance) : f_(f), distance_(distance) {
    order_ = f.order();
    position_.resize(static_cast<size_t>(f.node_count()), -1);
    users_ = f.ComputeUsers();
    before_.resize(order_.size());
    dead_.resize(position_.size(), false);
    for (size_t i = 0; i < order_.size(); ++i) {
      position_[static_cast<size_t>(order_[i].index)] = static_cast<int64_t>(i);
    }
  }

  int64_t Run() {
    const std::vector<bool> result = ResultValues(f_);
    // Backwards, so that a clone of a broadcast is a consumer of the constant below it.
    for (size_t i = order_.size(); i-- > 0;) {
      const Node node = f_.node(order_[i]);
      if (node.outputs.size() != 1 || !IsCheap(f_, node)) continue;
      CloneForFarUsers(order_[i], node, result[static_cast<size_t>(node.outputs[0].index)]);
    }
    if (clones_ == 0) return 0;
    std::vector<NodeId> order;
    for (size_t i = 0; i < order_.size(); ++i) {
      // Collected from the outermost operator to its operands: operands go first.
      order.insert(order.end(), before_[i].rbegin(), before_[i].rend());
      order.push_back(order_[i]);
    }
    f_.SetOrder(std::move(order));
    f_.RemoveNodes(dead_);
    return clones_;
  }

 private:
  void CloneForFarUsers(NodeId id, const Node& node, bool is_result) {
    const ValueId value = node.outputs[0];
    int64_t available = position_[static_cast<size_t>(id.index)];
    ValueId current = value;
    bool original_used = is_result;
    for (NodeId user : SortedUsers(value)) {
      const int64_t at = position_[static_cast<size_t>(user.index)];
      if (at - available > distance_) {
        current = Clone(node, user, at);
        ++clones_;
      }
      available = at;  // it lives until here at least
      original_used = original_used || current == value;
      for (ValueId& v : f_.node(user).inputs) {
        if (v == value) v = current;
      }
    }
    if (!original_used && current != value) dead_[static_cast<size_t>(id.index)] = true;
  }

  // A copy: cloning changes the lists. Readers that died themselves do not count.
  std::vector<NodeId> SortedUsers(ValueId value) const {
    std::vector<NodeId> nodes = users_[static_cast<size_t>(value.index)];
    std::erase_if(nodes, [&](NodeId n) {
      const auto i = static_cast<size_t>(n.index);
      return i < dead_.size() && dead_[i];
    });
    std::stable_sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) {
      return position_[static_cast<size_t>(a.index)] < position_[static_cast<size_t>(b.index)];
    });
    return nodes;
  }

  ValueId Clone(const Node& node, NodeId user, int64_t at) {
    const TensorType type = f_.type(node.outputs[0]);
    const std::string name = f_.value(node.outputs[0]).name;
    const NodeId id = f_.AddNode(node.op, node.inputs, node.attributes, std::span(&type, 1));
    Node& clone = f_.node(id);
    clone.op_id = node.op_id;
    clone.source = node.source;
    clone.role = f_.node(user).role;
    f_.value(clone.outputs[0]).name = name;
    position_.push_back(at);
    before_[static_cast<size_t>(at)].push_back(id);
    users_.emplace_back();  // of the clone's value
    users_.resize(static_cast<size_t>(f_.value_count()));
    for (ValueId v : clone.inputs) users_[static_cast<size_t>(v.index)].push_back(id);
    return clone.outputs[0];
  }

  Function& f_;
  int64_t distance_;
  std::vector<NodeId> order_;      // before the pass
  std::vector<int64_t> position_;  // by node; a clone has that of the node it stands before
  std::vector<std::vector<NodeId>> users_;
  std::vector<std::vector<NodeId>> before_;  // clones to place before order_[i]
  std::vector<bool> dead_;                   // by node: originals whose readers all got clones
  int64_t clones_ = 0;
};

Status Run(Module& module, PassContext& context) {
  const std::string& text = context.options.at("distance");
  int64_t distance = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), distance);
  if (error != std::errc() || end != text.data() + text.size() || distance < 1) {
    return InvalidArgument("distance is '" + text + "', expected a number of nodes of at least 1");
  }
  int64_t clones = 0;
  for (Function& f : module.functions) clones += Rematerializer(f, distance).Run();
  context.statistics["clones"] = clones;
  context.changed = clones > 0;
  return Status::Ok();
}

}  // namespace

Pass RematerializeCheapPass() {
  return {.name = "rematerialize_cheap",
          .summary = "recomputes constants, iotas, random draws and broadcasts next to far readers",
          .options = {{"distance", "8", "clone for a reader more than this many nodes away"}},
          .run = Run};
}

}  // namespace hyper::ir
