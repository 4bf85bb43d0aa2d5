// Writing by index into a copy: the element-wise scatter of ONNX, from which its relatives are
// built, and its gradients.
#include "base/strings.h"
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

InferResult InferScatterElements(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(
      ExpectOneOf("reduction", a.String("reduction"), {"none", "sum", "prod", "max", "min"}));
  if (a.String("reduction") != "none") HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectRank(in, 1, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 2, in[0].dtype, "as input 0"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 2, in[1].dims, "one update per index"));
  for (int d = 0; d < in[0].rank(); ++d) {
    const auto k = static_cast<size_t>(d);
    if (d == axis || in[1].dims[k] <= in[0].dims[k]) continue;
    return InvalidArgument("dim " + std::to_string(d) + " of input 1 is " +
                           std::to_string(in[1].dims[k]) + ", expected at most " +
                           std::to_string(in[0].dims[k]) + ", as in input 0");
  }
  if (in[0].dims[static_cast<size_t>(axis)] == 0 && in[1].elements() > 0) {
    return InvalidArgument("dim " + std::to_string(axis) + " of input 0 is 0, but input 1 holds " +
                           std::to_string(in[1].elements()) + " indices into it");
  }
  return std::vector<TensorType>{in[0]};
}

// What the gradients are made of. `At` reads a value of the shape of x where the indices point.
class Gradients {
 public:
  explicit Gradients(const GradientContext& c)
      : b_(c.builder),
        x_(c.node.inputs[0]),
        indices_(c.node.inputs[1]),
        updates_(c.node.inputs[2]),
        y_(c.node.outputs[0]),
        axis_(c.node.attributes.Int("axis")),
        type_(c.builder.type(x_)) {}

  ValueId At(ValueId v) {
    Dims limits = b_.type(indices_).dims;
    limits[static_cast<size_t>(axis_)] = type_.dims[static_cast<size_t>(axis_)];
    if (limits != type_.dims) {
      v = b_.Add1("slice", {v},
                  {{"starts", Dims(limits.size(), 0)},
                   {"limits", limits},
                   {"strides", Dims(limits.size(), 1)}});
    }
    return b_.Add1("gather_elements", {v, indices_}, {{"axis", axis_}});
  }

  ValueId Scatter(ValueId x, ValueId updates, const std::string& reduction) {
    return b_.Add1("scatter_elements", {x, indices_, updates},
                   {{"axis", axis_}, {"reduction", reduction}});
  }
  ValueId Zeros(ValueId like) { return b_.Splat(type_.dtype, b_.type(like).dims, 0); }
  ValueId Ones(ValueId like) { return b_.Splat(type_.dtype, b_.type(like).dims, 1); }

  // What is overwritten has no influence.
  void None(const GradientContext& c) {
    const ValueId g = c.output_grads[0];
    if (c.wanted[0]) c.input_grads[0] = Scatter(g, Zeros(updates_), "none");
    if (c.wanted[2]) c.input_grads[2] = At(g);
  }

  void Sum(const GradientContext& c) {
    if (c.wanted[0]) c.input_grads[0] = c.output_grads[0];
    if (c.wanted[2]) c.input_grads[2] = At(c.output_grads[0]);
  }

  // The product of the others: with no zero among the updates of a place that is their product
  // divided by this one; with one zero only the zero itself has a derivative; with more, none has.
  void Product(const GradientContext& c) {
    const DType t = type_.dtype;
    ExprBuilder e;
    const int zero = e.Binary(ScalarOp::kEq, e.Input(0, t), e.Constant(t, 0));
    const ValueId rest =
        b_.Map(e.Build(e.Select(zero, e.Constant(t, 1), e.Input(0, t))), {updates_});
    const ValueId is_zero = b_.Map(e.Build(e.Cast(t, zero)), {updates_});
    const ValueId product = Scatter(Ones(x_), rest, "prod");
    const ValueId zeros = Scatter(Zeros(x_), is_zero, "sum");
    const ValueId scaled = b_.Binary(ScalarOp::kMul, c.output_grads[0], product);
    ExprBuilder f;
    const int none = f.Constant(t, 0);
    if (c.wanted[0]) {
      const int clean = f.Binary(ScalarOp::kEq, f.Input(0, t), none);
      c.input_grads[0] = b_.Map(f.Build(f.Select(clean, f.Input(1, t), none)), {zeros, scaled});
    }
    if (c.wanted[2]) {
      ExprBuilder h;
      const int u = h.Input(0, t);
      const int n = h.Input(1, t);
      const int p = h.Input(2, t);
      const int nothing = h.Constant(t, 0);
      const int at_zero = h.Select(h.Binary(ScalarOp::kEq, n, h.Constant(t, 1)), p, nothing);
      const int elsewhere =
          h.Select(h.Binary(ScalarOp::kEq, n, nothing), h.Binary(ScalarOp::kDiv, p, u), nothing);
      c.input_grads[2] =
          b_.Map(h.Build(h.Select(h.Binary(ScalarOp::kEq, u, nothing), at_zero, elsewhere)),
                 {updates_, At(zeros), At(b_.Binary(ScalarOp::kMul, scaled, x_))});
    }
  }

  // To all that equal the extremum in equal parts, as reduce does.
  void Extremum(const GradientContext& c) {
    const DType t = type_.dtype;
    ExprBuilder e;
    const Expr hit = e.Build(e.Cast(t, e.Binary(ScalarOp::kEq, e.Input(0, t), e.Input(1, t))));
    const ValueId of_x = b_.Map(hit, {x_, y_});
    const ValueId of_updates = b_.Map(hit, {updates_, At(y_)});
    const ValueId share =
        b_.Binary(ScalarOp::kDiv, c.output_grads[0], Scatter(of_x, of_updates, "sum"));
    if (c.wanted[0]) c.input_grads[0] = b_.Binary(ScalarOp::kMul, share, of_x);
    if (c.wanted[2]) c.input_grads[2] = b_.Binary(ScalarOp::kMul, At(share), of_updates);
  }

 private:
  Builder& b_;
  ValueId x_, indices_, updates_, y_;
  int64_t axis_;
  TensorType type_;
};

Status ScatterElementsGradient(const GradientContext& c) {
  const std::string& reduction = c.node.attributes.String("reduction");
  Gradients gradients(c);
  if (reduction == "none") {
    gradients.None(c);
  } else if (reduction == "sum") {
    gradients.Sum(c);
  } else if (reduction == "prod") {
    gradients.Product(c);
  } else {
    gradients.Extremum(c);
  }
  return Status::Ok();
}

// Shorter indices stand at the beginning of their dims: those stay whole.
ShardingFactors ScatterElementsSharding(Types in, Types out, const Attributes& a) {
  Dims whole = {a.Int("axis")};
  for (int d = 0; d < in[0].rank(); ++d) {
    const auto k = static_cast<size_t>(d);
    if (d != a.Int("axis") && in[1].dims[k] != in[0].dims[k]) whole.push_back(d);
  }
  return PassThrough(in, out, whole);
}

}  // namespace

void RegisterScatterOps(OpRegistry& registry) {
  OpDef def;
  def.name = "scatter_elements";
  def.family = "indexing";
  def.summary =
      "x with updates combined into y[..,indices[..,i,..],..] along axis, in the order of i; none: "
      "the last one stays. Other dims of the indices may be shorter than those of x. Gradient of "
      "max and min: equal parts to all equal elements; of none: to every update, overwritten or "
      "not";
  def.min_inputs = def.max_inputs = 3;
  def.attributes = {
      {"axis", AttributeKind::kInt, "the indexed dim", std::nullopt},
      {"reduction", AttributeKind::kString, "none, sum, prod, max, min", std::nullopt}};
  def.infer = InferScatterElements;
  def.gradient = GradientFunction(ScatterElementsGradient);
  def.sharding = ShardingFunction(ScatterElementsSharding);
  def.cost = ElementCost(1);
  def.saved = SavedForBackward{{0, 1, 2}, {0}};
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(def));
}

}  // namespace hyper::ir
