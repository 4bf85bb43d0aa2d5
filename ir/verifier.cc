#include <set>
#include <tuple>

#include "ir/node_check.h"
#include "ir/op_def.h"
#include "ir/text.h"

namespace hyper::ir {
namespace {

Status Broken(const Function& f, std::string what) {
  return InvalidArgument("function @" + f.name() + ": " + std::move(what));
}

std::string Describe(const Node& node, NodeId id) {
  std::string text = "node " + std::to_string(id.index) + " (" + std::string(node.op->name) + ")";
  if (!node.source.empty()) text += " from '" + node.source + "'";
  return text;
}

class FunctionVerifier {
 public:
  explicit FunctionVerifier(const Function& f) : f_(f) {
    defined_.resize(static_cast<size_t>(f.value_count()), false);
  }
  Status Run() {
    HYPER_RETURN_IF_ERROR(CheckArguments());
    std::vector<bool> seen(static_cast<size_t>(f_.node_count()), false);
    for (NodeId id : f_.order()) {
      if (id.index < 0 || id.index >= f_.node_count()) {
        return Broken(f_, "node id " + std::to_string(id.index) + " is out of range");
      }
      if (seen[static_cast<size_t>(id.index)]) {
        return Broken(f_, "node " + std::to_string(id.index) + " occurs twice in the order");
      }
      seen[static_cast<size_t>(id.index)] = true;
      HYPER_RETURN_IF_ERROR(CheckNode(id));
    }
    return CheckResults();
  }

 private:
  bool InRange(ValueId v) const { return v.index >= 0 && v.index < f_.value_count(); }
  bool Defined(ValueId v) const { return InRange(v) && defined_[static_cast<size_t>(v.index)]; }
  Status Define(ValueId v, const std::string& by) {
    if (!InRange(v)) return Broken(f_, by + " defines a value out of range");
    if (Defined(v)) {
      return Broken(f_, by + " defines value " + std::to_string(v.index) + " again");
    }
    HYPER_RETURN_IF_ERROR(CheckType(f_.type(v)).WithContext("function @" + f_.name()));
    defined_[static_cast<size_t>(v.index)] = true;
    return Status::Ok();
  }

  Status CheckArguments();
  Status CheckNode(NodeId id);
  Status CheckResults();

  const Function& f_;
  std::vector<bool> defined_;
};

Status FunctionVerifier::CheckArguments() {
  std::set<std::tuple<ArgumentKind, std::string, std::string>> names;
  for (const Argument& a : f_.arguments()) {
    const std::string what =
        "argument " + std::string(ArgumentKindName(a.kind)) + " '" + a.name + "'";
    HYPER_RETURN_IF_ERROR(Define(a.value, what));
    if (f_.value(a.value).producer.valid()) return Broken(f_, what + " has a producer");
    if (!names.emplace(a.kind, a.name, a.slot).second) return Broken(f_, what + " occurs twice");
    if (!a.slot.empty() && a.kind != ArgumentKind::kOptimizer) {
      return Broken(f_, what + " has a slot; only optimizer arguments do");
    }
    if (a.kind == ArgumentKind::kRng && f_.type(a.value) != TensorType{DType::kI64, {3}}) {
      return Broken(f_, what + " is " + f_.type(a.value).ToString() + ", expected i64[3]");
    }
  }
  return Status::Ok();
}

Status FunctionVerifier::CheckNode(NodeId id) {
  const Node& node = f_.node(id);
  if (node.op == nullptr) {
    return Broken(f_, "node " + std::to_string(id.index) + " is in the order but was removed");
  }
  if (CoreOps().Find(node.op->name) != node.op) {
    return Broken(f_, "node " + std::to_string(id.index) + " has an op outside the registry");
  }
  const std::string what = Describe(node, id);
  std::vector<TensorType> types;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!Defined(node.inputs[i])) {
      return Broken(f_, what + ": input " + std::to_string(i) + " (value " +
                            std::to_string(node.inputs[i].index) +
                            ") is not defined before its use");
    }
    types.push_back(f_.type(node.inputs[i]));
  }
  for (const AttributeDef& def : node.op->attributes) {
    if (!node.attributes.Has(def.name)) {
      return Broken(f_, what + ": attribute '" + std::string(def.name) + "' is not set");
    }
  }
  for (const auto& [name, value] : node.attributes) {
    const auto* tensor = std::get_if<HostTensor>(&value);
    const auto* expr = std::get_if<Expr>(&value);
    if ((tensor != nullptr && !tensor->defined()) || (expr != nullptr && expr->empty())) {
      return Broken(f_, what + ": attribute '" + name + "' is empty");
    }
  }
  Attributes copy = node.attributes;
  HYPER_RETURN_IF_ERROR(
      NormalizeAttributes(*node.op, &copy).WithContext("function @" + f_.name() + ": " + what));
  Result<std::vector<TensorType>> inferred = InferChecked(*node.op, types, node.attributes);
  if (!inferred.ok()) return inferred.status().WithContext("function @" + f_.name() + ": " + what);
  if (inferred->size() != node.outputs.size()) {
    return Broken(f_, what + " has " + std::to_string(node.outputs.size()) + " outputs, expected " +
                          std::to_string(inferred->size()));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId v = node.outputs[i];
    HYPER_RETURN_IF_ERROR(Define(v, what));
    const Value& value = f_.value(v);
    if (value.producer != id || value.output_index != static_cast<int>(i)) {
      return Broken(f_, what + ": output " + std::to_string(i) + " names another producer");
    }
    if (value.type != (*inferred)[i]) {
      return Broken(f_, what + ": output " + std::to_string(i) + " is " + value.type.ToString() +
                            ", inferred " + (*inferred)[i].ToString());
    }
  }
  return Status::Ok();
}

Status FunctionVerifier::CheckResults() {
  std::set<int> aliased;
  for (const FunctionResult& r : f_.results()) {
    const std::string what = "result '" + r.name + "'";
    if (!Defined(r.value)) return Broken(f_, what + " is not defined");
    if (r.alias_argument < 0) continue;
    if (r.alias_argument >= static_cast<int>(f_.arguments().size())) {
      return Broken(f_, what + " aliases argument " + std::to_string(r.alias_argument) + " of " +
                            std::to_string(f_.arguments().size()));
    }
    if (!aliased.insert(r.alias_argument).second) {
      return Broken(f_, what + " aliases argument " + std::to_string(r.alias_argument) +
                            ", as another result does");
    }
    const Argument& a = f_.arguments()[static_cast<size_t>(r.alias_argument)];
    if (f_.type(a.value) != f_.type(r.value)) {
      return Broken(f_, what + " is " + f_.type(r.value).ToString() + " but aliases '" + a.name +
                            "' of type " + f_.type(a.value).ToString());
    }
  }
  return Status::Ok();
}

}  // namespace

Status Verify(const Function& function) { return FunctionVerifier(function).Run(); }

Status Verify(const Module& module) {
  std::set<std::string> names;
  for (const PersistentTensor& t : module.tensors) {
    const std::string what = "tensor '" + t.name + "'";
    if (!names.insert(t.name).second) return InvalidArgument(what + " is declared twice");
    if (t.kind != ArgumentKind::kParameter && t.kind != ArgumentKind::kFrozen &&
        t.kind != ArgumentKind::kState) {
      return InvalidArgument(what + " is of kind " + std::string(ArgumentKindName(t.kind)) +
                             ", expected parameter, frozen or state");
    }
    HYPER_RETURN_IF_ERROR(CheckType(t.type).WithContext(what));
    // An undefined initial value has the type f32[] and no bytes.
    if (t.initial.defined() && t.initial.type() != t.type) {
      return InvalidArgument(what + " is " + t.type.ToString() + ", its initial value " +
                             t.initial.type().ToString());
    }
  }
  std::set<std::string> functions;
  for (const Function& f : module.functions) {
    if (!functions.insert(f.name()).second) {
      return InvalidArgument("function @" + f.name() + " is defined twice");
    }
    HYPER_RETURN_IF_ERROR(Verify(f));
    for (const Argument& a : f.arguments()) {
      if (a.kind != ArgumentKind::kParameter && a.kind != ArgumentKind::kFrozen &&
          a.kind != ArgumentKind::kState) {
        continue;
      }
      const PersistentTensor* tensor = module.FindTensor(a.name);
      if (tensor != nullptr && tensor->type != f.type(a.value)) {
        return Broken(f, "argument '" + a.name + "' is " + f.type(a.value).ToString() +
                             ", the tensor " + tensor->type.ToString());
      }
    }
  }
  return Status::Ok();
}

}  // namespace hyper::ir
