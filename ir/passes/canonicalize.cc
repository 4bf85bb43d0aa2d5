// canonicalize: one form for equal computations: chains of data movement become one op, no-ops and
// pairs that cancel disappear, maps of constants are computed, exact double casts drop.
// Before: any valid module. After: a fixpoint of the rules (or the iteration limit); dead nodes may
// remain for dce. Place: after the front end and after autodiff; nothing undoes it.
#include <algorithm>
#include <charconv>

#include "ir/passes/canonicalize.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

class Canonicalizer {
 public:
  Canonicalizer(Function& f, int64_t fold_limit) : f_(f), fold_limit_(fold_limit) {}

  // One walk over the function; number of changes.
  int64_t Sweep() {
    users_ = f_.ComputeUsers();
    result_ = ResultValues(f_);
    Replacements replacements(f_);
    std::vector<bool> dead(static_cast<size_t>(f_.node_count()), false);
    int64_t changes = 0;
    const std::vector<NodeId> order = f_.order();  // a copy: folding inserts constants
    for (NodeId id : order) {
      if (Replaced(replacements, f_.node(id))) {  // by MoveMapAcross
        dead[static_cast<size_t>(id.index)] = true;
        continue;
      }
      for (ValueId& v : f_.node(id).inputs) v = replacements.Resolve(v);
      if (f_.node(id).op->has_side_effects) continue;
      if (CanonicalizeShapeOp(f_, f_.node(id))) ++changes;
      if (f_.node(id).op->name == "map" && Map(id, replacements)) ++changes;
      const Node& node = f_.node(id);
      if (!IsNoOp(f_, node)) continue;
      ++changes;
      if (NeedsOwnBuffer(node)) {
        Node& copy = f_.node(id);
        copy.op = CoreOp("copy");
        copy.attributes = {};
        continue;
      }
      replacements.Add(node.outputs[0], node.inputs[0]);
      if (IsResult(node.outputs[0])) result_[Index(node.inputs[0])] = true;
      dead[static_cast<size_t>(id.index)] = true;
    }
    f_.RemoveNodes(dead);
    if (!replacements.empty()) replacements.Apply(f_);
    return changes;
  }

 private:
  static size_t Index(ValueId v) { return static_cast<size_t>(v.index); }
  bool IsResult(ValueId v) const { return Index(v) < result_.size() && result_[Index(v)]; }
  static bool Replaced(const Replacements& r, const Node& node) {
    return node.outputs.size() == 1 && r.Resolve(node.outputs[0]) != node.outputs[0];
  }
  // A result is a buffer of its own: neither an argument nor another result.
  bool NeedsOwnBuffer(const Node& node) const {
    if (!IsResult(node.outputs[0])) return false;
    return !f_.value(node.inputs[0]).producer.valid() || IsResult(node.inputs[0]);
  }

  bool Map(NodeId id, Replacements& replacements);
  bool TidyInputs(Node& node);
  bool CombineCasts(Node& node);
  bool FoldConstants(NodeId id);
  ValueId ConstantBefore(NodeId id, HostTensor value);

  Function& f_;
  int64_t fold_limit_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<bool> result_;
};

bool Canonicalizer::Map(NodeId id, Replacements& replacements) {
  if (FoldConstants(id)) return true;
  bool changed = TidyInputs(f_.node(id));
  changed = CombineCasts(f_.node(id)) || changed;
  const ValueId output = f_.node(id).outputs[0];
  if (!IsResult(output)) {
    const auto& users = users_[Index(output)];
    const bool result = std::any_of(users.begin(), users.end(), [&](NodeId u) {
      return f_.node(u).outputs.empty() || IsResult(f_.node(u).outputs[0]);
    });
    changed = (!result && MoveMapAcross(f_, f_.node(id), users, replacements)) || changed;
  }
  return changed;
}

// Drops inputs that the expression does not read and reads equal inputs once.
bool Canonicalizer::TidyInputs(Node& node) {
  const Expr& expr = node.attributes.GetExpr("expr");
  std::vector<bool> read(node.inputs.size(), false);
  for (const ExprNode& n : expr.nodes()) {
    if (n.op == ScalarOp::kInput) read[static_cast<size_t>(n.input)] = true;
  }
  if (std::find(read.begin(), read.end(), true) == read.end()) read[0] = true;
  ExprBuilder e;
  std::vector<ValueId> kept;
  std::vector<int> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    auto at = std::find(kept.begin(), kept.end(), node.inputs[i]);
    if (at == kept.end() && read[i]) at = kept.insert(kept.end(), node.inputs[i]);
    const int index = static_cast<int>(at - kept.begin());
    operands.push_back(e.Input(index, f_.type(node.inputs[i]).dtype));
  }
  if (kept.size() == node.inputs.size()) return false;
  const int root = e.Splice(expr, operands);
  node.attributes.Set("expr", e.Build(root));
  node.inputs = std::move(kept);
  return true;
}

// cast(cast(x)) where the first one lost nothing.
bool Canonicalizer::CombineCasts(Node& node) {
  const Expr& outer = node.attributes.GetExpr("expr");
  if (node.inputs.size() != 1 || !outer.IsSingleOp(ScalarOp::kCast)) return false;
  const NodeId producer = f_.value(node.inputs[0]).producer;
  if (!producer.valid() || f_.node(producer).op->name != "map") return false;
  const Node& inner = f_.node(producer);
  const Expr& first = inner.attributes.GetExpr("expr");
  if (inner.inputs.size() != 1 || !first.IsSingleOp(ScalarOp::kCast)) return false;
  ExprBuilder e;
  const int x = e.Input(0, f_.type(inner.inputs[0]).dtype);
  const int once = e.Splice(first, std::span(&x, 1));
  Expr both = e.Build(e.Splice(outer, std::span(&once, 1)));
  if (both.nodes().size() > outer.nodes().size()) return false;
  node.inputs[0] = inner.inputs[0];
  node.attributes.Set("expr", std::move(both));
  return true;
}

ValueId Canonicalizer::ConstantBefore(NodeId id, HostTensor value) {
  const TensorType type = value.type();
  f_.SetInsertionPoint(id);
  const NodeId constant =
      f_.AddNode(CoreOp("constant"), {}, {{"value", std::move(value)}}, std::span(&type, 1));
  f_.SetInsertionPoint({});
  f_.node(constant).role = f_.node(id).role;
  f_.node(constant).op_id = f_.node(id).op_id;
  f_.node(constant).source = f_.node(id).source;
  return f_.node(constant).outputs[0];
}

bool Canonicalizer::FoldConstants(NodeId id) {
  const Node& node = f_.node(id);
  const TensorType type = f_.type(node.outputs[0]);
  const Expr expr = node.attributes.GetExpr("expr");
  auto evaluate = [&](std::span<const HostTensor> inputs, int64_t index) {
    ExprBuilder e;  // folds every operator on constants as it goes
    std::vector<int> operands;
    for (const HostTensor& t : inputs) {
      const Scalar v = ElementOf(t, index);
      const DType dtype = t.type().dtype;
      operands.push_back(IsFloat(dtype) ? e.Constant(dtype, v.f) : e.ConstantInt(dtype, v.i));
    }
    const ExprNode root = e.nodes()[static_cast<size_t>(e.Splice(expr, operands))];
    return Scalar{root.float_value, root.int_value};
  };
  std::vector<HostTensor> splats;
  std::vector<HostTensor> constants;
  for (ValueId v : node.inputs) {
    if (std::optional<HostTensor> s = SplatValue(f_, v)) splats.push_back(std::move(*s));
    const NodeId producer = f_.value(v).producer;
    if (producer.valid() && f_.node(producer).op->name == "constant") {
      constants.push_back(f_.node(producer).attributes.Tensor("value"));
    }
  }
  const size_t inputs = node.inputs.size();
  if (splats.size() == inputs) {
    const Scalar value = evaluate(splats, 0);
    const ValueId scalar = ConstantBefore(id, TensorOf({type.dtype, {}}, std::span(&value, 1)));
    Node& folded = f_.node(id);
    folded.op = CoreOp("broadcast");
    folded.attributes = Attributes{{"shape", type.dims}, {"dims", Dims{}}};
    folded.inputs = {scalar};
    return true;
  }
  if (constants.size() != inputs || type.elements() > fold_limit_) return false;
  std::vector<Scalar> values;
  for (int64_t i = 0; i < type.elements(); ++i) values.push_back(evaluate(constants, i));
  Node& folded = f_.node(id);
  folded.op = CoreOp("constant");
  folded.attributes = Attributes{{"value", TensorOf(type, values)}};
  folded.inputs.clear();
  return true;
}

Result<int64_t> Number(const PassContext& context, const std::string& option, int64_t least) {
  const std::string& text = context.options.at(option);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    return InvalidArgument(option + " is '" + text + "', expected a number of at least " +
                           std::to_string(least));
  }
  return value;
}

Status Run(Module& module, PassContext& context) {
  HYPER_ASSIGN_OR_RETURN(const int64_t iterations, Number(context, "iterations", 1));
  HYPER_ASSIGN_OR_RETURN(const int64_t fold_limit, Number(context, "fold_limit", 0));
  int64_t total = 0;
  for (Function& f : module.functions) {
    for (int64_t i = 0; i < iterations; ++i) {
      const int64_t changes = Canonicalizer(f, fold_limit).Sweep();
      total += changes;
      if (changes == 0) break;
    }
  }
  context.statistics["changes"] = total;
  context.changed = total > 0;
  return Status::Ok();
}

}  // namespace

Pass CanonicalizePass() {
  return {.name = "canonicalize",
          .summary = "combines chains of data movement, drops no-ops, folds maps of constants",
          .options = {{"iterations", "10", "walks over a function at most"},
                      {"fold_limit", "1024", "elements of a map of constants that is computed"}},
          .run = Run};
}

}  // namespace hyper::ir
