#include "ir/builder.h"

#include <algorithm>
#include <numeric>

#include "base/strings.h"
#include "ir/node_check.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

HostTensor ScalarTensor(DType dtype, double value) {
  // Integers and bool saturate and truncate as a cast does.
  const Scalar scalar = IsFloat(dtype) ? Scalar{RoundFloat(dtype, value), 0}
                                       : CastScalar(DType::kF64, dtype, {value, 0});
  return TensorOf({dtype, {}}, std::span(&scalar, 1));
}

}  // namespace

void Builder::SetContext(Role role, int64_t op_id, std::string source) {
  role_ = role;
  op_id_ = op_id;
  source_ = std::move(source);
}

Result<std::vector<ValueId>> Builder::TryAdd(std::string_view op, std::vector<ValueId> inputs,
                                             Attributes attributes) {
  const OpDef* def = CoreOps().Find(op);
  if (def == nullptr) return NotFound("no core op '" + std::string(op) + "'");
  HYPER_RETURN_IF_ERROR(NormalizeAttributes(*def, &attributes));
  std::vector<TensorType> types;
  for (ValueId v : inputs) {
    HYPER_CHECK(v.valid() && v.index < function_->value_count(),
                "invalid operand of op '" + std::string(op) + "'");
    types.push_back(function_->type(v));
  }
  HYPER_ASSIGN_OR_RETURN(const std::vector<TensorType> outputs,
                         InferChecked(*def, types, attributes));
  const NodeId id = function_->AddNode(def, std::move(inputs), std::move(attributes), outputs);
  Node& node = function_->node(id);
  node.role = role_;
  node.op_id = op_id_;
  node.source = source_;
  return node.outputs;
}

std::vector<ValueId> Builder::Add(std::string_view op, std::vector<ValueId> inputs,
                                  Attributes attributes) {
  auto result = TryAdd(op, std::move(inputs), std::move(attributes));
  HYPER_CHECK(result.ok(), result.status().message());
  return std::move(result).value();
}

ValueId Builder::Add1(std::string_view op, std::vector<ValueId> inputs, Attributes attributes) {
  return Add(op, std::move(inputs), std::move(attributes)).front();
}

ValueId Builder::Constant(HostTensor value) {
  return Add1("constant", {}, {{"value", std::move(value)}});
}

ValueId Builder::ScalarConstant(DType dtype, double value) {
  return Constant(ScalarTensor(dtype, value));
}

ValueId Builder::Splat(DType dtype, Dims dims, double value) {
  return Broadcast(ScalarConstant(dtype, value), std::move(dims), {});
}

ValueId Builder::Map(Expr expr, std::vector<ValueId> inputs) {
  return Add1("map", std::move(inputs), {{"expr", std::move(expr)}});
}

ValueId Builder::Unary(ScalarOp op, ValueId x) {
  ExprBuilder e;
  const int a = e.Input(0, type(x).dtype);
  return Map(e.Build(e.Unary(op, a)), {x});
}

ValueId Builder::Binary(ScalarOp op, ValueId x, ValueId y) {
  ExprBuilder e;
  const int a = e.Input(0, type(x).dtype);
  if (x == y) return Map(e.Build(e.Binary(op, a, a)), {x});
  const int b = e.Input(1, type(y).dtype);
  return Map(e.Build(e.Binary(op, a, b)), {x, y});
}

ValueId Builder::BinaryConstant(ScalarOp op, ValueId x, double constant) {
  ExprBuilder e;
  const int a = e.Input(0, type(x).dtype);
  const Expr expr = e.Build(e.Binary(op, a, e.Constant(type(x).dtype, constant)));
  if (expr.root().op == ScalarOp::kInput) return x;
  return Map(expr, {x});
}

ValueId Builder::Select(ValueId condition, ValueId x, ValueId y) {
  if (x == y) return x;
  ExprBuilder e;
  const int c = e.Input(0, type(condition).dtype);
  const int a = e.Input(1, type(x).dtype);
  const int b = e.Input(2, type(y).dtype);
  return Map(e.Build(e.Select(c, a, b)), {condition, x, y});
}

ValueId Builder::Cast(DType dtype, ValueId x) {
  if (type(x).dtype == dtype) return x;
  ExprBuilder e;
  return Map(e.Build(e.Cast(dtype, e.Input(0, type(x).dtype))), {x});
}

ValueId Builder::Broadcast(ValueId x, Dims shape, Dims dims) {
  if (type(x).dims == shape) return x;
  return Add1("broadcast", {x}, {{"shape", std::move(shape)}, {"dims", std::move(dims)}});
}

ValueId Builder::BroadcastNumpy(ValueId x, const Dims& shape) {
  const int rank = type(x).rank();
  HYPER_CHECK(rank <= static_cast<int>(shape.size()), "broadcast to a lower rank");
  Dims dims(static_cast<size_t>(rank));
  std::iota(dims.begin(), dims.end(), static_cast<int64_t>(shape.size()) - rank);
  return Broadcast(x, shape, std::move(dims));
}

ValueId Builder::Reshape(ValueId x, Dims shape) {
  if (type(x).dims == shape) return x;
  return Add1("reshape", {x}, {{"shape", std::move(shape)}});
}

ValueId Builder::Transpose(ValueId x, Dims perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return Add1("transpose", {x}, {{"perm", std::move(perm)}});
}

ValueId Builder::Reduce(std::string kind, ValueId x, Dims axes) {
  if (axes.empty()) return x;
  return Add1("reduce", {x}, {{"kind", std::move(kind)}, {"axes", std::move(axes)}});
}

ValueId Builder::Dot(std::string spec, ValueId a, ValueId b) {
  return Add1("dot", {a, b}, {{"spec", std::move(spec)}});
}

Result<Dims> BroadcastDims(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // i counts from the last dim
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      return InvalidArgument("shapes " + FormatDims(a) + " and " + FormatDims(b) +
                             " do not broadcast: extents " + std::to_string(x) + " and " +
                             std::to_string(y) + " in dim " + std::to_string(i) + " from the end");
    }
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace hyper::ir
