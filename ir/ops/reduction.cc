// Reductions: reduce, arg_reduce, cumsum, cumprod.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

InferResult InferReduce(Types in, const Attributes& a) {
  const std::string& kind = a.String("kind");
  const Dims& axes = a.GetDims("axes");
  HYPER_RETURN_IF_ERROR(ExpectOneOf("kind", kind, {"sum", "max", "min", "prod", "and", "or"}));
  HYPER_RETURN_IF_ERROR(ExpectAxes("axes", axes, in[0].rank()));
  if (kind == "and" || kind == "or") {
    HYPER_RETURN_IF_ERROR(ExpectDType(in, 0, DType::kBool, "kind " + kind));
  } else {
    HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  }
  TensorType y{in[0].dtype, {}};
  for (int d = 0; d < in[0].rank(); ++d) {
    if (!Contains(axes, d)) y.dims.push_back(in[0].dims[static_cast<size_t>(d)]);
  }
  return std::vector<TensorType>{y};
}

// The gradient goes to all elements equal to the extremum in equal parts, as PyTorch's amax.
ValueId ExtremumGradient(Builder& b, ValueId g, ValueId x, ValueId y, const Dims& axes) {
  const TensorType type = b.type(x);
  ExprBuilder e;
  const int hit = e.Binary(ScalarOp::kEq, e.Input(0, type.dtype), e.Input(1, type.dtype));
  const ValueId mask =
      b.Map(e.Build(e.Cast(type.dtype, hit)), {x, BroadcastOver(b, y, type.dims, axes)});
  const ValueId share = b.Binary(ScalarOp::kDiv, g, b.Reduce("sum", mask, axes));
  return b.Binary(ScalarOp::kMul, mask, BroadcastOver(b, share, type.dims, axes));
}

// d prod / d x_i is the product of the others. With no zero among them that is prod / x_i; with one
// zero only the zero itself has a derivative, the product of the rest; with more, none has.
ValueId ProductGradient(Builder& b, ValueId g, ValueId x, const Dims& axes) {
  const TensorType type = b.type(x);
  const DType t = type.dtype;
  ExprBuilder e;
  const int zero = e.Binary(ScalarOp::kEq, e.Input(0, t), e.Constant(t, 0));
  const ValueId nonzero = b.Map(e.Build(e.Select(zero, e.Constant(t, 1), e.Input(0, t))), {x});
  const ValueId zeros = b.Reduce("sum", b.Map(e.Build(e.Cast(t, zero)), {x}), axes);
  const ValueId rest = b.Binary(ScalarOp::kMul, g, b.Reduce("prod", nonzero, axes));
  ExprBuilder f;
  const int v = f.Input(0, t);
  const int n = f.Input(1, t);
  const int p = f.Input(2, t);
  const int none = f.Constant(t, 0);
  const int here = f.Binary(ScalarOp::kEq, v, none);
  const int at_zero = f.Select(f.Binary(ScalarOp::kEq, n, f.Constant(t, 1)), p, none);
  const int elsewhere =
      f.Select(f.Binary(ScalarOp::kEq, n, none), f.Binary(ScalarOp::kDiv, p, v), none);
  return b.Map(
      f.Build(f.Select(here, at_zero, elsewhere)),
      {x, BroadcastOver(b, zeros, type.dims, axes), BroadcastOver(b, rest, type.dims, axes)});
}

Status ReduceGradient(const GradientContext& c) {
  const std::string& kind = c.node.attributes.String("kind");
  const Dims& axes = c.node.attributes.GetDims("axes");
  const ValueId x = c.node.inputs[0];
  const ValueId g = c.output_grads[0];
  Builder& b = c.builder;
  if (kind == "sum") {
    const Dims shape = b.type(x).dims;
    c.input_grads[0] = BroadcastOver(b, g, shape, axes);
  } else if (kind == "max" || kind == "min") {
    c.input_grads[0] = ExtremumGradient(b, g, x, c.node.outputs[0], axes);
  } else if (kind == "prod") {
    c.input_grads[0] = ProductGradient(b, g, x, axes);
  } else {
    return Internal("gradient of reduce " + kind + " asked for, which is not a float op");
  }
  return Status::Ok();
}

ShardingFactors ReduceSharding(Types in, Types, const Attributes& a) {
  ShardingFactors f;
  f.inputs = {Letters().Next(in[0].rank())};
  f.outputs = {""};
  f.reduction = a.String("kind");
  for (int d = 0; d < in[0].rank(); ++d) {
    const char letter = f.inputs[0][static_cast<size_t>(d)];
    (Contains(a.GetDims("axes"), d) ? f.reduced : f.outputs[0]) += letter;
  }
  return f;
}

InferResult InferArgReduce(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectOneOf("kind", a.String("kind"), {"max", "min"}));
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  const TensorType y{DType::kI64, Without(in[0].dims, axis)};
  if (in[0].dims[static_cast<size_t>(axis)] == 0 && y.elements() > 0) {
    return InvalidArgument("dim " + std::to_string(axis) +
                           " of input 0 is 0, expected at least 1 (an index of nothing)");
  }
  return std::vector<TensorType>{y};
}

ShardingFactors ArgReduceSharding(Types in, Types, const Attributes& a) {
  ShardingFactors f;
  f.inputs = {Letters().Next(in[0].rank())};
  f.outputs = {f.inputs[0]};
  f.outputs[0].erase(static_cast<size_t>(a.Int("axis")), 1);
  f.replicated = f.inputs[0][static_cast<size_t>(a.Int("axis"))];
  return f;
}

InferResult InferCumulative(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", a.Int("axis"), in[0].rank()));
  return std::vector<TensorType>{in[0]};
}

Status CumsumGradient(const GradientContext& c) {
  Attributes a = c.node.attributes;
  a.Set("reverse", !a.Bool("reverse"));
  c.input_grads[0] = c.builder.Add1("cumsum", {c.output_grads[0]}, std::move(a));
  return Status::Ok();
}

// dx_k sums g_i times the other factors of y_i over all products y_i that x_k is part of. Before
// the first zero of a row that is sum(g y) / x_k; at the first zero the products with 1 in its
// place are what is left; behind it every product has a zero among its other factors.
Status CumprodGradient(const GradientContext& c) {
  Builder& b = c.builder;
  const ValueId x = c.node.inputs[0];
  const ValueId g = c.output_grads[0];
  const DType t = b.type(x).dtype;
  const Attributes& forward = c.node.attributes;
  Attributes counting = forward;
  counting.Set("exclusive", false);
  Attributes back = forward;
  back.Set("reverse", !forward.Bool("reverse"));
  ExprBuilder e;
  const int is_zero = e.Binary(ScalarOp::kEq, e.Input(0, t), e.Constant(t, 0));
  const ValueId zeros =
      b.Add1("cumsum", {b.Map(e.Build(e.Cast(DType::kI64, is_zero)), {x})}, counting);
  const int first =
      e.Binary(ScalarOp::kAnd, is_zero,
               e.Binary(ScalarOp::kEq, e.Input(1, DType::kI64), e.ConstantInt(DType::kI64, 1)));
  const ValueId filled =
      b.Map(e.Build(e.Select(first, e.Constant(t, 1), e.Input(0, t))), {x, zeros});
  const ValueId products = b.Add1("cumprod", {filled}, forward);
  const ValueId before = b.Add1("cumsum", {b.Binary(ScalarOp::kMul, g, c.node.outputs[0])}, back);
  const ValueId at_zero = b.Add1("cumsum", {b.Binary(ScalarOp::kMul, g, products)}, back);
  const int none = e.Binary(ScalarOp::kEq, e.Input(1, DType::kI64), e.ConstantInt(DType::kI64, 0));
  const int quotient = e.Binary(ScalarOp::kDiv, e.Input(2, t), e.Input(0, t));
  const int rest = e.Select(first, e.Input(3, t), e.Constant(t, 0));
  c.input_grads[0] = b.Map(e.Build(e.Select(none, quotient, rest)), {x, zeros, before, at_zero});
  return Status::Ok();
}

// cumsum and cumprod.
OpDef Cumulative(std::string_view name, std::string_view summary) {
  OpDef def;
  def.name = name;
  def.family = "reduction";
  def.summary = summary;
  def.min_inputs = def.max_inputs = def.outputs = 1;
  def.attributes = {
      {"axis", AttributeKind::kInt, "dim to walk along", std::nullopt},
      {"exclusive", AttributeKind::kBool, "leave the element itself out", Attribute(false)},
      {"reverse", AttributeKind::kBool, "walk from the end", Attribute(false)}};
  def.infer = InferCumulative;
  def.sharding = ShardingFunction([](Types in, Types out, const Attributes& a) {
    return PassThrough(in, out, {a.Int("axis")});
  });
  def.cost = ElementCost(1);
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

}  // namespace

void RegisterReductionOps(OpRegistry& registry) {
  registry.Add({
      .name = "reduce",
      .family = "reduction",
      .summary = "combines all elements along axes, which are removed; nothing gives the neutral "
                 "element. Gradient of max and min: equal parts to all equal elements",
      .min_inputs = 1,
      .max_inputs = 1,
      .outputs = 1,
      .attributes = {{"kind", AttributeKind::kString, "sum, max, min, prod, and, or", std::nullopt},
                     {"axes", AttributeKind::kDims, "dims to remove", std::nullopt}},
      .infer = InferReduce,
      .gradient = GradientFunction(ReduceGradient),
      .sharding = ShardingFunction(ReduceSharding),
      .cost = ElementCost(1, true),
      .saved = SavedForBackward{{0}, {0}},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
  registry.Add({
      .name = "arg_reduce",
      .family = "reduction",
      .summary = "i64 index of the largest or smallest element along axis, which is removed",
      .min_inputs = 1,
      .max_inputs = 1,
      .outputs = 1,
      .attributes = {{"kind", AttributeKind::kString, "max or min", std::nullopt},
                     {"axis", AttributeKind::kInt, "dim to remove", std::nullopt},
                     {"last", AttributeKind::kBool, "of equal elements the last wins",
                      Attribute(false)}},
      .infer = InferArgReduce,
      .gradient = ZeroGradient{"the result is an index"},
      .sharding = ShardingFunction(ArgReduceSharding),
      .cost = ElementCost(1, true),
      .saved = SavedForBackward{},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
  OpDef sum = Cumulative("cumsum",
                         "running sum along axis, with or without the element itself, from either "
                         "end");
  sum.gradient = GradientFunction(CumsumGradient);
  sum.saved = SavedForBackward{};
  registry.Add(std::move(sum));
  OpDef product = Cumulative("cumprod",
                             "running product along axis, with or without the element itself, from "
                             "either end; the empty product is 1");
  product.gradient = GradientFunction(CumprodGradient);
  product.saved = SavedForBackward{{0}, {0}};
  registry.Add(std::move(product));
}

}  // namespace hyper::ir
