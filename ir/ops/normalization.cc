// Batch, layer and RMS normalization, softmax and log-softmax.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

Status ExpectAll(Types in, DType dtype) {
  for (int i = 1; i < static_cast<int>(in.size()); ++i) {
    HYPER_RETURN_IF_ERROR(ExpectDType(in, i, dtype, "as input 0"));
  }
  return ExpectFloat(in, 0);
}

Dims Leading(const Dims& dims, int64_t axis) { return Dims(dims.begin(), dims.begin() + axis); }
Dims Trailing(const Dims& dims, int64_t axis) { return Dims(dims.begin() + axis, dims.end()); }

// 1 / number of elements that one statistic covers; 0 where there are none (nothing to scale).
double Share(int64_t elements, int64_t statistics) {
  return elements == 0 ? 0.0 : static_cast<double>(statistics) / static_cast<double>(elements);
}

// ---- batch_norm ----

InferResult InferBatchNorm(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectAll(in, in[0].dtype));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 2));
  const Dims channels = {in[0].dims[1]};
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 1, channels, "one scale per channel"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 2, channels, "one bias per channel"));
  const TensorType statistic{in[0].dtype, channels};
  return std::vector<TensorType>{in[0], statistic, statistic};
}

InferResult InferBatchNormGrad(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectAll(in, in[0].dtype));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 1, 2));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, in[1].dims, "as input 1"));
  const Dims channels = {in[1].dims[1]};
  for (int i = 2; i < 5; ++i) {
    HYPER_RETURN_IF_ERROR(ExpectDims(in, i, channels, "one value per channel"));
  }
  const TensorType statistic{in[0].dtype, channels};
  return std::vector<TensorType>{in[1], statistic, statistic};
}

Dims AllBut(int rank, int64_t kept) {
  Dims axes;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != kept) axes.push_back(d);
  }
  return axes;
}

// d mean / dx = 1/M, d var / dx = 2 (x - mean) / M, with M elements per channel.
ValueId BatchStatisticGradient(const GradientContext& c, const Dims& axes) {
  Builder& b = c.builder;
  const ValueId x = c.node.inputs[0];
  const TensorType type = b.type(x);
  const double share = Share(type.elements(), type.dims[1]);
  ValueId sum;
  if (c.output_grads[1].valid()) {
    sum = BroadcastOver(b, Scale(b, c.output_grads[1], share), type.dims, axes);
  }
  if (c.output_grads[2].valid()) {
    const ValueId centered =
        b.Binary(ScalarOp::kSub, x, BroadcastOver(b, c.node.outputs[1], type.dims, axes));
    const ValueId g = BroadcastOver(b, Scale(b, c.output_grads[2], 2 * share), type.dims, axes);
    sum = AddMaybe(b, sum, b.Binary(ScalarOp::kMul, g, centered));
  }
  return sum;
}

Status BatchNormGradient(const GradientContext& c) {
  const std::vector<ValueId>& in = c.node.inputs;
  if (c.output_grads[0].valid()) {
    const std::vector<ValueId> d = c.builder.Add(
        "batch_norm_grad", {c.output_grads[0], in[0], in[1], c.node.outputs[1], c.node.outputs[2]},
        {{"epsilon", c.node.attributes.Float("epsilon")}});
    for (size_t i = 0; i < 3; ++i) {
      if (c.wanted[i]) c.input_grads[i] = d[i];
    }
  }
  if (c.wanted[0]) {
    const int rank = c.builder.type(in[0]).rank();
    c.input_grads[0] =
        AddMaybe(c.builder, c.input_grads[0], BatchStatisticGradient(c, AllBut(rank, 1)));
  }
  return Status::Ok();
}

// Statistics need all of N and space; channels are independent.
ShardingFactors BatchNormSharding(Types in, Types out, const Attributes&) {
  const TensorType& x = out[0];
  const std::string full = Letters().Next(x.rank());
  ShardingFactors f;
  for (const TensorType& t : in) f.inputs.push_back(t.rank() == 1 ? full.substr(1, 1) : full);
  for (const TensorType& t : out) f.outputs.push_back(t.rank() == 1 ? full.substr(1, 1) : full);
  f.replicated = full.substr(0, 1) + full.substr(2);
  return f;
}

// ---- layer_norm, rms_norm ----

Status ExpectNormAxis(Types in, int i, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, i, 1));
  return ExpectAxis("axis", a.Int("axis"), in[static_cast<size_t>(i)].rank());
}

// layer_norm (x, scale, bias) and rms_norm (x, scale): y and one statistic (two for layer_norm).
InferFunction InferRowNorm(bool centered) {
  return [=](Types in, const Attributes& a) -> InferResult {
    HYPER_RETURN_IF_ERROR(ExpectAll(in, in[0].dtype));
    HYPER_RETURN_IF_ERROR(ExpectNormAxis(in, 0, a));
    const Dims inner = Trailing(in[0].dims, a.Int("axis"));
    for (int i = 1; i < static_cast<int>(in.size()); ++i) {
      HYPER_RETURN_IF_ERROR(ExpectDims(in, i, inner, "the normalized dims of input 0"));
    }
    const TensorType statistic{in[0].dtype, Leading(in[0].dims, a.Int("axis"))};
    std::vector<TensorType> out = {in[0], statistic};
    if (centered) out.push_back(statistic);
    return out;
  };
}

// (g, x, scale, [mean,] rstd) -> dx, dscale [, dbias]
InferFunction InferRowNormGrad(bool centered) {
  return [=](Types in, const Attributes& a) -> InferResult {
    HYPER_RETURN_IF_ERROR(ExpectAll(in, in[0].dtype));
    HYPER_RETURN_IF_ERROR(ExpectNormAxis(in, 1, a));
    HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, in[1].dims, "as input 1"));
    const Dims inner = Trailing(in[1].dims, a.Int("axis"));
    HYPER_RETURN_IF_ERROR(ExpectDims(in, 2, inner, "the normalized dims of input 1"));
    const Dims outer = Leading(in[1].dims, a.Int("axis"));
    for (int i = 3; i < static_cast<int>(in.size()); ++i) {
      HYPER_RETURN_IF_ERROR(ExpectDims(in, i, outer, "the leading dims of input 1"));
    }
    std::vector<TensorType> out = {in[1], in[2]};
    if (centered) out.push_back(in[2]);
    return out;
  };
}

// d mean / dx = 1/n; d rstd / dx = -rstd^3 (x - mean) / n, without mean for rms_norm.
ValueId RowStatisticGradient(const GradientContext& c, bool centered) {
  Builder& b = c.builder;
  const ValueId x = c.node.inputs[0];
  const TensorType type = b.type(x);
  const int64_t axis = c.node.attributes.Int("axis");
  const Dims axes = Sequence(type.rank() - axis, axis);
  const size_t rstd_at = centered ? 2 : 1;
  const double share = Share(type.elements(), ElementCount(Leading(type.dims, axis)));
  ValueId sum;
  if (centered && c.output_grads[1].valid()) {
    sum = BroadcastOver(b, Scale(b, c.output_grads[1], share), type.dims, axes);
  }
  if (!c.output_grads[rstd_at].valid()) return sum;
  ExprBuilder e;
  const int rstd = e.Input(0, type.dtype);
  const int cube = e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kMul, rstd, rstd), rstd);
  const int factor = e.Binary(ScalarOp::kMul, cube, e.Constant(type.dtype, -share));
  const ValueId g = b.Map(e.Build(e.Binary(ScalarOp::kMul, e.Input(1, type.dtype), factor)),
                          {c.node.outputs[rstd_at], c.output_grads[rstd_at]});
  const ValueId deviation =
      centered ? b.Binary(ScalarOp::kSub, x, BroadcastOver(b, c.node.outputs[1], type.dims, axes))
               : x;
  return AddMaybe(b, sum,
                  b.Binary(ScalarOp::kMul, BroadcastOver(b, g, type.dims, axes), deviation));
}

GradientFunction RowNormGradient(bool centered) {
  return [=](const GradientContext& c) {
    if (c.output_grads[0].valid()) {
      std::vector<ValueId> operands = {c.output_grads[0], c.node.inputs[0], c.node.inputs[1],
                                       c.node.outputs[1]};
      if (centered) operands.push_back(c.node.outputs[2]);
      const std::vector<ValueId> d = c.builder.Add(centered ? "layer_norm_grad" : "rms_norm_grad",
                                                   operands, c.node.attributes);
      for (size_t i = 0; i < d.size(); ++i) {
        if (c.wanted[i]) c.input_grads[i] = d[i];
      }
    }
    if (c.wanted[0]) {
      c.input_grads[0] = AddMaybe(c.builder, c.input_grads[0], RowStatisticGradient(c, centered));
    }
    return Status::Ok();
  };
}

ShardingRule RowNormSharding(bool backward) {
  return ShardingFunction([=](Types in, Types out, const Attributes& a) {
    const std::string full = Letters().Next(out[0].rank());
    const auto axis = static_cast<size_t>(a.Int("axis"));
    const std::string rows = full.substr(0, axis);
    const std::string inner = full.substr(axis);
    ShardingFactors f;
    for (size_t i = 0; i < in.size(); ++i) {
      if (backward) {
        f.inputs.push_back(i < 2 ? full : i == 2 ? inner : rows);
      } else {
        f.inputs.push_back(i == 0 ? full : inner);
      }
    }
    f.outputs.push_back(full);
    for (size_t i = 1; i < out.size(); ++i) f.outputs.push_back(backward ? inner : rows);
    f.replicated = inner;
    if (backward) f.reduced = rows;  // in the results that lack them
    return f;
  });
}

// ---- softmax ----

InferResult InferSoftmax(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectNormAxis(in, 0, a));
  return std::vector<TensorType>{in[0]};
}

InferResult InferSoftmaxGrad(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectAll(in, in[0].dtype));
  HYPER_RETURN_IF_ERROR(ExpectNormAxis(in, 0, a));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 1, in[0].dims, "as input 0"));
  return std::vector<TensorType>{in[0]};
}

GradientFunction SoftmaxGradient(std::string op) {
  return [=](const GradientContext& c) {
    c.input_grads[0] =
        c.builder.Add1(op, {c.output_grads[0], c.node.outputs[0]}, c.node.attributes);
    return Status::Ok();
  };
}

constexpr NotDifferentiable kNoSecond{"second derivatives are not supported"};

AttributeDef Epsilon() {
  return {"epsilon", AttributeKind::kFloat, "added to the variance", Attribute(1e-5)};
}

AttributeDef FirstAxis() {
  return {"axis", AttributeKind::kInt, "first normalized dim", std::nullopt};
}

OpDef Norm(std::string_view name, std::string_view summary, int inputs, int outputs) {
  OpDef def;
  def.name = name;
  def.family = "normalization";
  def.summary = summary;
  def.min_inputs = def.max_inputs = inputs;
  def.outputs = outputs;
  def.in_place = std::vector<InPlaceRule>{};
  return def;
}

void RegisterBatchNorm(OpRegistry& registry) {
  OpDef forward = Norm("batch_norm",
                       "y = (x - mean) / sqrt(var + epsilon) * scale + bias with mean and "
                       "population variance over all dims but 1",
                       3, 3);
  forward.attributes = {Epsilon()};
  forward.infer = InferBatchNorm;
  forward.gradient = GradientFunction(BatchNormGradient);
  forward.sharding = ShardingFunction(BatchNormSharding);
  forward.cost = ElementCost(7);
  forward.saved = SavedForBackward{{0, 1}, {1, 2}};
  forward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(forward));

  OpDef backward =
      Norm("batch_norm_grad", "adjoint of batch_norm in x, scale, bias, applied to g", 5, 3);
  backward.attributes = {Epsilon()};
  backward.infer = InferBatchNormGrad;
  backward.gradient = kNoSecond;
  backward.sharding = ShardingFunction(BatchNormSharding);
  backward.cost = ElementCost(11);
  backward.saved = SavedForBackward{};
  backward.in_place = std::vector<InPlaceRule>{{0, 0}};
  backward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(backward));
}

void RegisterRowNorm(OpRegistry& registry, bool centered) {
  OpDef forward =
      centered ? Norm("layer_norm",
                      "y = (x - mean) * rstd * scale + bias over the dims from axis on, rstd = "
                      "1 / sqrt(var + epsilon)",
                      3, 3)
               : Norm("rms_norm",
                      "y = x * rstd * scale over the dims from axis on, rstd = 1 / "
                      "sqrt(mean(x^2) + epsilon)",
                      2, 2);
  forward.attributes = {FirstAxis(), Epsilon()};
  forward.infer = InferRowNorm(centered);
  forward.gradient = RowNormGradient(centered);
  forward.sharding = RowNormSharding(false);
  forward.cost = ElementCost(centered ? 7 : 4);
  forward.saved = centered ? SavedForBackward{{0, 1}, {1, 2}} : SavedForBackward{{0, 1}, {1}};
  forward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(forward));

  OpDef backward =
      centered
          ? Norm("layer_norm_grad", "adjoint of layer_norm in x, scale, bias, applied to g", 5, 3)
          : Norm("rms_norm_grad", "adjoint of rms_norm in x, scale, applied to g", 4, 2);
  backward.attributes = {FirstAxis(), Epsilon()};
  backward.infer = InferRowNormGrad(centered);
  backward.gradient = kNoSecond;
  backward.sharding = RowNormSharding(true);
  backward.cost = ElementCost(centered ? 11 : 8);
  backward.saved = SavedForBackward{};
  backward.in_place = std::vector<InPlaceRule>{{0, 0}};
  backward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(backward));
}

void RegisterSoftmax(OpRegistry& registry, bool log) {
  const std::vector<AttributeDef> axis = {
      {"axis", AttributeKind::kInt, "dim that sums to one", std::nullopt}};
  const auto sharding = ShardingFunction([](Types in, Types out, const Attributes& a) {
    return PassThrough(in, out, {a.Int("axis")});
  });
  OpDef forward = log ? Norm("log_softmax", "y = x - log(sum(exp(x))) along axis", 1, 1)
                      : Norm("softmax", "y = exp(x) / sum(exp(x)) along axis", 1, 1);
  forward.attributes = axis;
  forward.infer = InferSoftmax;
  forward.gradient = SoftmaxGradient(log ? "log_softmax_grad" : "softmax_grad");
  forward.sharding = sharding;
  forward.cost = ElementCost(5);
  forward.saved = SavedForBackward{{}, {0}};
  forward.in_place = std::vector<InPlaceRule>{{0, 0}};
  forward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(forward));

  OpDef backward = log ? Norm("log_softmax_grad", "dx = g - exp(y) * sum(g) along axis", 2, 1)
                       : Norm("softmax_grad", "dx = y * (g - sum(g * y)) along axis", 2, 1);
  backward.attributes = axis;
  backward.infer = InferSoftmaxGrad;
  backward.gradient = kNoSecond;
  backward.sharding = sharding;
  backward.cost = ElementCost(4);
  backward.saved = SavedForBackward{};
  backward.in_place = std::vector<InPlaceRule>{{0, 0}};
  backward.cpu_kernels = {"generated", "reference"};
  registry.Add(std::move(backward));
}

}  // namespace

void RegisterNormalizationOps(OpRegistry& registry) {
  RegisterBatchNorm(registry);
  RegisterRowNorm(registry, true);
  RegisterRowNorm(registry, false);
  RegisterSoftmax(registry, false);
  RegisterSoftmax(registry, true);
}

}  // namespace hyper::ir
