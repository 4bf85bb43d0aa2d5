// Elementwise: one op, a scalar expression applied at every index.
#include <map>

#include "ir/autodiff_expr.h"
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

InferResult InferMap(Types in, const Attributes& a) {
  const Expr& expr = a.GetExpr("expr");
  if (expr.empty()) return InvalidArgument("expr is empty");
  for (size_t i = 1; i < in.size(); ++i) {
    HYPER_RETURN_IF_ERROR(
        ExpectDims(in, static_cast<int>(i), in[0].dims, "operands of map have one shape"));
  }
  for (const ExprNode& n : expr.nodes()) {
    if (n.op != ScalarOp::kInput) continue;
    if (n.input >= static_cast<int>(in.size())) {
      return InvalidArgument("expr reads x" + std::to_string(n.input) + ", but there are " +
                             std::to_string(in.size()) + " inputs");
    }
    HYPER_RETURN_IF_ERROR(ExpectDType(in, n.input, n.dtype, "as expr reads it"));
  }
  return std::vector<TensorType>{{expr.dtype(), in[0].dims}};
}

Status MapGradient(const GradientContext& c) {
  const Expr& expr = c.node.attributes.GetExpr("expr");
  const int count = static_cast<int>(c.node.inputs.size());
  for (int i = 0; i < count; ++i) {
    if (!c.wanted[static_cast<size_t>(i)]) continue;
    HYPER_ASSIGN_OR_RETURN(const std::optional<Expr> d, Differentiate(expr, i, count));
    if (!d) continue;
    std::vector<ValueId> operands = c.node.inputs;
    operands.push_back(c.node.outputs[0]);
    const ValueId x = c.node.inputs[static_cast<size_t>(i)];
    c.input_grads[static_cast<size_t>(i)] =
        MultiplyByDerivative(c.builder, c.output_grads[0], *d, operands, c.builder.type(x).dtype);
  }
  return Status::Ok();
}

}  // namespace

ValueId MultiplyByDerivative(Builder& builder, ValueId g, const Expr& d,
                             std::span<const ValueId> operands, DType dtype) {
  // Only what the derivative reads becomes an operand, each value once.
  std::vector<ValueId> inputs;
  ExprBuilder e;
  auto input_of = [&](ValueId v) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == v) return e.Input(static_cast<int>(i), builder.type(v).dtype);
    }
    inputs.push_back(v);
    return e.Input(static_cast<int>(inputs.size()) - 1, builder.type(v).dtype);
  };
  const int seed = e.Cast(d.dtype(), input_of(g));
  std::map<int, int> slots;
  for (const ExprNode& n : d.nodes()) {
    if (n.op == ScalarOp::kInput) {
      slots[n.input] = input_of(operands[static_cast<size_t>(n.input)]);
    }
  }
  std::vector<int> arguments(static_cast<size_t>(d.input_count()), seed);
  for (const auto& [slot, handle] : slots) arguments[static_cast<size_t>(slot)] = handle;
  const int root = e.Splice(d, arguments);
  // select(c, 1, 0) * g becomes select(c, g, 0): cheaper, and an infinite g times 0 stays 0.
  const std::function<int(int)> multiply = [&](int at) -> int {
    const ExprNode n = e.nodes()[static_cast<size_t>(at)];
    if (n.op == ScalarOp::kSelect) {
      const int yes = multiply(n.args[1]);
      const int no = multiply(n.args[2]);
      return e.Select(n.args[0], yes, no);
    }
    if (n.op == ScalarOp::kConstant) {
      if (n.float_value == 1) return seed;
      if (n.float_value == 0) return at;
      if (n.float_value == -1) return e.Unary(ScalarOp::kNeg, seed);
    }
    if (n.op == ScalarOp::kNeg) return e.Unary(ScalarOp::kNeg, multiply(n.args[0]));
    return e.Binary(ScalarOp::kMul, seed, at);
  };
  const Expr product = e.Build(e.Cast(dtype, multiply(root)));
  if (product.root().op == ScalarOp::kInput) {
    return inputs[static_cast<size_t>(product.root().input)];
  }
  return builder.Map(product, inputs);
}

void RegisterElementwiseOps(OpRegistry& registry) {
  registry.Add({
      .name = "map",
      .family = "elementwise",
      .summary = "y[i] = expr(x0[i], x1[i], ...): one scalar expression at every index",
      .min_inputs = 1,
      .max_inputs = -1,
      .outputs = 1,
      .attributes = {{"expr", AttributeKind::kExpr, "the scalar expression", std::nullopt}},
      .infer = InferMap,
      .gradient = GradientFunction(MapGradient),
      .sharding = ShardingFunction(
          [](Types in, Types out, const Attributes&) { return PassThrough(in, out, {}); }),
      .cost =
          [](Types in, Types out, const Attributes& a) {
            double operators = 0;
            for (const ExprNode& n : a.GetExpr("expr").nodes()) {
              if (n.op != ScalarOp::kInput && n.op != ScalarOp::kConstant) ++operators;
            }
            return MemoryCost(in, out, operators * static_cast<double>(out[0].elements()));
          },
      // An upper bound: what a derivative reads depends on the expression.
      .saved = SavedForBackward{{0}, {0}},
      .in_place = std::vector<InPlaceRule>{{0, 0}},
      .cpu_kernels = {"generated", "reference"},
  });
}

}  // namespace hyper::ir
