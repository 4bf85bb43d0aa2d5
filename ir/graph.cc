#include "ir/graph.h"

#include <algorithm>
#include <array>

namespace hyper::ir {

std::string_view RoleName(Role role) {
  static constexpr std::array<std::string_view, 4> kNames = {"forward", "input_grad", "weight_grad",
                                                             "update"};
  return kNames[static_cast<size_t>(role)];
}

std::string_view ArgumentKindName(ArgumentKind kind) {
  static constexpr std::array<std::string_view, 9> kNames = {"input",     "parameter", "frozen",
                                                             "state",     "gradient",  "statistic",
                                                             "optimizer", "scalar",    "rng"};
  return kNames[static_cast<size_t>(kind)];
}

ValueId Function::AddArgument(TensorType type, ArgumentKind kind, std::string name,
                              std::string slot) {
  const ValueId id{value_count()};
  // output_index of an argument's value is a hint for ArgumentIndex.
  values_.push_back({std::move(type), name, NodeId{}, static_cast<int>(arguments_.size())});
  arguments_.push_back({id, kind, std::move(name), std::move(slot)});
  return id;
}

NodeId Function::AddNode(const OpDef* op, std::vector<ValueId> inputs, Attributes attributes,
                         std::span<const TensorType> output_types) {
  const NodeId id{node_count()};
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
  for (size_t i = 0; i < output_types.size(); ++i) {
    node.outputs.push_back(ValueId{value_count()});
    values_.push_back({output_types[i], {}, id, static_cast<int>(i)});
  }
  nodes_.push_back(std::move(node));
  auto position = order_.end();
  if (insertion_point_.valid()) {
    position = std::find(order_.begin(), order_.end(), insertion_point_);
    HYPER_CHECK(position != order_.end(), "insertion point is not in the function");
  }
  order_.insert(position, id);
  return id;
}

void Function::AddResult(ValueId value, std::string name, int alias_argument) {
  results_.push_back({value, std::move(name), alias_argument});
}

int Function::ArgumentIndex(ValueId id) const {
  const Value& v = value(id);
  if (v.producer.valid()) return -1;
  const auto hint = static_cast<size_t>(v.output_index);
  if (hint < arguments_.size() && arguments_[hint].value == id) return v.output_index;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].value == id) return static_cast<int>(i);
  }
  return -1;
}

int Function::FindArgument(ArgumentKind kind, std::string_view name, std::string_view slot) const {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    if (a.kind == kind && a.name == name && a.slot == slot) return static_cast<int>(i);
  }
  return -1;
}

std::vector<std::vector<NodeId>> Function::ComputeUsers() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (NodeId id : order_) {
    for (ValueId v : node(id).inputs) {
      auto& list = users[static_cast<size_t>(v.index)];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return users;
}

void Function::ReplaceAllUses(ValueId from, ValueId to) {
  for (NodeId id : order_) {
    for (ValueId& v : node(id).inputs) {
      if (v == from) v = to;
    }
  }
  for (FunctionResult& r : results_) {
    if (r.value == from) r.value = to;
  }
}

void Function::RemoveNode(NodeId id) {
  auto position = std::find(order_.begin(), order_.end(), id);
  HYPER_CHECK(position != order_.end(), "removed node is not in the function");
  order_.erase(position);
  nodes_[static_cast<size_t>(id.index)].op = nullptr;
  nodes_[static_cast<size_t>(id.index)].inputs.clear();
}

void Function::RemoveNodes(const std::vector<bool>& dead_by_node_index) {
  auto dead = [&](NodeId id) {
    const auto i = static_cast<size_t>(id.index);
    return i < dead_by_node_index.size() && dead_by_node_index[i];
  };
  for (NodeId id : order_) {
    if (!dead(id)) continue;
    node(id).op = nullptr;
    node(id).inputs.clear();
  }
  std::erase_if(order_, dead);
}

void Function::RemoveUnusedArguments(const std::vector<ArgumentKind>& kinds) {
  std::vector<bool> used(values_.size(), false);
  for (NodeId id : order_) {
    for (ValueId v : node(id).inputs) used[static_cast<size_t>(v.index)] = true;
  }
  std::vector<bool> aliased(arguments_.size(), false);
  for (const FunctionResult& r : results_) {
    used[static_cast<size_t>(r.value.index)] = true;
    if (r.alias_argument >= 0) aliased[static_cast<size_t>(r.alias_argument)] = true;
  }
  std::vector<Argument> kept;
  std::vector<int> new_index(arguments_.size(), -1);
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& a = arguments_[i];
    const bool droppable = std::find(kinds.begin(), kinds.end(), a.kind) != kinds.end();
    if (droppable && !aliased[i] && !used[static_cast<size_t>(a.value.index)]) continue;
    new_index[i] = static_cast<int>(kept.size());
    value(a.value).output_index = new_index[i];
    kept.push_back(a);
  }
  arguments_ = std::move(kept);
  for (FunctionResult& r : results_) {
    if (r.alias_argument >= 0) r.alias_argument = new_index[static_cast<size_t>(r.alias_argument)];
  }
}

Function* Module::Find(std::string_view function_name) {
  for (Function& f : functions) {
    if (f.name() == function_name) return &f;
  }
  return nullptr;
}

const Function* Module::Find(std::string_view function_name) const {
  return const_cast<Module*>(this)->Find(function_name);
}

const PersistentTensor* Module::FindTensor(std::string_view tensor_name) const {
  for (const PersistentTensor& t : tensors) {
    if (t.name == tensor_name) return &t;
  }
  return nullptr;
}

}  // namespace hyper::ir
