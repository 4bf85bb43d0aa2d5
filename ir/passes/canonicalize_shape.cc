// Rules of canonicalize for data movement: chains become one op, no-ops go away.
#include <algorithm>
#include <numeric>

#include "ir/passes/canonicalize.h"

namespace hyper::ir {
namespace {

bool IsIdentity(const Dims& perm) { return std::is_sorted(perm.begin(), perm.end()); }

void TurnInto(Node& node, std::string_view op, Attributes attributes) {
  node.op = CoreOp(op);
  node.attributes = std::move(attributes);
}

// The producer of the first input when it is `op`.
const Node* InputFrom(const Function& f, const Node& node, std::string_view op) {
  if (node.inputs.empty()) return nullptr;
  const NodeId producer = f.value(node.inputs[0]).producer;
  if (!producer.valid() || f.node(producer).op->name != op) return nullptr;
  return &f.node(producer);
}

// The scalar value that fills `v`: found through broadcasts from rank 0 only.
ValueId SplatScalar(const Function& f, ValueId v) {
  const NodeId producer = f.value(v).producer;
  if (!producer.valid() || f.node(producer).op->name != "broadcast") return {};
  const ValueId source = f.node(producer).inputs[0];
  return f.type(source).rank() == 0 ? source : ValueId{};
}

// Dims of a reshape that only adds or drops extents of 1: where each input dim went, or nullopt.
std::optional<Dims> UnitReshapeMap(const Dims& from, const Dims& to) {
  Dims map;
  size_t j = 0;
  for (int64_t extent : from) {
    while (j < to.size() && to[j] != extent && to[j] == 1) ++j;
    if (j == to.size() || to[j] != extent) return std::nullopt;
    map.push_back(static_cast<int64_t>(j++));
  }
  for (; j < to.size(); ++j) {
    if (to[j] != 1) return std::nullopt;
  }
  return map;
}

bool Transpose(const Function& f, Node& node) {
  const Dims& perm = node.attributes.GetDims("perm");
  if (const Node* inner = InputFrom(f, node, "transpose")) {
    const Dims& first = inner->attributes.GetDims("perm");
    Dims combined;
    for (int64_t p : perm) combined.push_back(first[static_cast<size_t>(p)]);
    node.inputs[0] = inner->inputs[0];
    node.attributes.Set("perm", std::move(combined));
    return true;
  }
  // Moving nothing but extents of 1 keeps the order of the elements.
  const Dims& in = f.type(node.inputs[0]).dims;
  int64_t last = -1;
  for (int64_t p : perm) {
    if (in[static_cast<size_t>(p)] == 1) continue;
    if (p < last) return false;
    last = p;
  }
  if (IsIdentity(perm)) return false;
  TurnInto(node, "reshape", {{"shape", f.type(node.outputs[0]).dims}});
  return true;
}

bool Broadcast(const Function& f, Node& node) {
  const Dims& dims = node.attributes.GetDims("dims");
  if (const Node* inner = InputFrom(f, node, "broadcast")) {
    Dims combined;
    for (int64_t d : inner->attributes.GetDims("dims")) {
      combined.push_back(dims[static_cast<size_t>(d)]);
    }
    node.inputs[0] = inner->inputs[0];
    node.attributes.Set("dims", std::move(combined));
    return true;
  }
  if (const Node* inner = InputFrom(f, node, "reshape")) {
    const std::optional<Dims> map =
        UnitReshapeMap(f.type(inner->inputs[0]).dims, f.type(node.inputs[0]).dims);
    if (!map) return false;
    Dims combined;
    for (int64_t d : *map) combined.push_back(dims[static_cast<size_t>(d)]);
    node.inputs[0] = inner->inputs[0];
    node.attributes.Set("dims", std::move(combined));
    return true;
  }
  return false;
}

bool AllZero(const Dims& dims) {
  return std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d == 0; });
}

}  // namespace

bool CanonicalizeShapeOp(const Function& f, Node& node) {
  const std::string_view op = node.op->name;
  const bool moves =
      op == "reshape" || op == "transpose" || op == "slice" || op == "reverse" || op == "broadcast";
  if (!moves) return false;
  const ValueId scalar = SplatScalar(f, node.inputs[0]);
  if (scalar.valid()) {
    node.inputs[0] = scalar;
    TurnInto(node, "broadcast", {{"shape", f.type(node.outputs[0]).dims}, {"dims", Dims{}}});
    return true;
  }
  if (op == "transpose") return Transpose(f, node);
  if (op == "broadcast") return Broadcast(f, node);
  if (op == "reshape") {
    const Node* inner = InputFrom(f, node, "reshape");
    if (inner == nullptr) return false;
    node.inputs[0] = inner->inputs[0];
    return true;
  }
  return false;
}

bool IsNoOp(const Function& f, const Node& node) {
  if (node.inputs.size() != 1 || node.outputs.size() != 1) return false;
  if (f.type(node.inputs[0]) != f.type(node.outputs[0])) return false;
  const std::string_view op = node.op->name;
  const Attributes& a = node.attributes;
  if (op == "reshape" || op == "broadcast" || op == "concat") return true;
  if (op == "transpose") return IsIdentity(a.GetDims("perm"));
  if (op == "slice") return true;  // equal extents: starts 0, strides 1
  if (op == "reverse") {
    const Dims& dims = f.type(node.inputs[0]).dims;
    const Dims& axes = a.GetDims("axes");
    return std::all_of(axes.begin(), axes.end(),
                       [&](int64_t d) { return dims[static_cast<size_t>(d)] <= 1; });
  }
  if (op == "pad") {
    return AllZero(a.GetDims("low")) && AllZero(a.GetDims("high")) &&
           AllZero(a.GetDims("interior"));
  }
  if (op == "reduce") return a.GetDims("axes").empty();
  if (op == "map") return a.GetExpr("expr").root().op == ScalarOp::kInput;
  return false;
}

bool MoveMapAcross(Function& f, Node& map, const std::vector<NodeId>& users,
                   Replacements& replacements) {
  const NodeId first = f.value(map.inputs[0]).producer;
  if (!first.valid() || users.empty()) return false;
  const std::string_view op = f.node(first).op->name;
  if (op != "transpose" && op != "reshape") return false;
  const Dims source_dims = f.type(f.node(first).inputs[0]).dims;
  const Attributes& moved = f.node(first).attributes;
  std::vector<ValueId> sources;
  for (ValueId v : map.inputs) {
    const NodeId producer = f.value(v).producer;
    if (!producer.valid() || f.node(producer).op->name != op) return false;
    const Node& node = f.node(producer);
    if (!(node.attributes == moved) || f.type(node.inputs[0]).dims != source_dims) return false;
    sources.push_back(node.inputs[0]);
  }
  for (NodeId user : users) {
    const Node& node = f.node(user);
    if (node.op->name != op || f.type(node.outputs[0]).dims != source_dims) return false;
    if (op != "transpose") continue;
    const Dims& there = moved.GetDims("perm");
    const Dims& back = node.attributes.GetDims("perm");
    for (size_t d = 0; d < back.size(); ++d) {
      if (there[static_cast<size_t>(back[d])] != static_cast<int64_t>(d)) return false;
    }
  }
  map.inputs = std::move(sources);
  f.value(map.outputs[0]).type.dims = source_dims;
  for (NodeId user : users) replacements.Add(f.node(user).outputs[0], map.outputs[0]);
  return true;
}

}  // namespace hyper::ir
