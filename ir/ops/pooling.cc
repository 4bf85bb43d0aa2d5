// Pooling over N C spatial: maximum with tap numbers, average, and their adjoints.
#include <array>

#include "ir/node_check.h"
#include "ir/ops/common.h"
#include "ir/ops/window.h"

namespace hyper::ir {
namespace {

constexpr std::array<std::string_view, 5> kWindow = {"kernel", "strides", "pads_low", "pads_high",
                                                     "dilations"};
constexpr std::array<std::string_view, 6> kAverage = {
    "kernel", "strides", "pads_low", "pads_high", "dilations", "count_include_pad"};

std::vector<AttributeDef> PoolAttributes() {
  return Extend({{"kernel", AttributeKind::kDims, "window per spatial dim", std::nullopt}},
                WindowAttributes());
}

AttributeDef InputShape() {
  return {"input_shape", AttributeKind::kDims, "dims of the result", std::nullopt};
}

AttributeDef CountIncludePad() {
  return {"count_include_pad", AttributeKind::kBool, "divide by all taps, padding included",
          Attribute(false)};
}

// Tap numbers fit one byte up to 256 taps.
DType IndexType(const Dims& kernel) {
  return ElementCount(kernel) <= 256 ? DType::kU8 : DType::kI32;
}

// `padding_counts`: windows that lie in the padding only have a value.
Result<Dims> PoolDims(const Dims& x, const Attributes& a, bool padding_counts) {
  const Dims& kernel = a.GetDims("kernel");
  HYPER_ASSIGN_OR_RETURN(const Dims spatial, WindowOutput(Spatial(x), kernel, a, 2));
  HYPER_RETURN_IF_ERROR(CheckType({DType::kU8, kernel}).WithContext("kernel"));
  if (ElementCount(kernel) > INT32_MAX) {
    return InvalidArgument("the window has " + std::to_string(ElementCount(kernel)) +
                           " taps, expected at most 2147483647");
  }
  if (!padding_counts) {
    HYPER_RETURN_IF_ERROR(ExpectTapInEachWindow(Spatial(x), kernel, spatial, a));
  }
  return WithSpatial(x, spatial);
}

Result<Dims> CheckedShape(const Attributes& a, bool padding_counts) {
  const Dims& shape = a.GetDims("input_shape");
  HYPER_RETURN_IF_ERROR(CheckType({DType::kF64, shape}).WithContext("input_shape"));
  if (shape.size() < 3) {
    return InvalidArgument("input_shape has " + std::to_string(shape.size()) +
                           " entries, expected N, C and at least one spatial dim");
  }
  return PoolDims(shape, a, padding_counts);
}

InferResult InferMaxPool(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 3));
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_ASSIGN_OR_RETURN(const Dims y, PoolDims(in[0].dims, a, false));
  return std::vector<TensorType>{{in[0].dtype, y}, {IndexType(a.GetDims("kernel")), y}};
}

InferResult InferMaxPoolGrad(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_ASSIGN_OR_RETURN(const Dims y, CheckedShape(a, false));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, y, "the output of max_pool on input_shape"));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 1, IndexType(a.GetDims("kernel")), "tap numbers"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 1, y, "as input 0"));
  return std::vector<TensorType>{{in[0].dtype, a.GetDims("input_shape")}};
}

InferResult InferAvgPool(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 3));
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_ASSIGN_OR_RETURN(const Dims y, PoolDims(in[0].dims, a, a.Bool("count_include_pad")));
  return std::vector<TensorType>{{in[0].dtype, y}};
}

InferResult InferAvgPoolGrad(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_ASSIGN_OR_RETURN(const Dims y, CheckedShape(a, a.Bool("count_include_pad")));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, y, "the output of avg_pool on input_shape"));
  return std::vector<TensorType>{{in[0].dtype, a.GetDims("input_shape")}};
}

Status MaxPoolGradient(const GradientContext& c) {
  Attributes a = Keep(c.node.attributes, kWindow);
  a.Set("input_shape", c.builder.type(c.node.inputs[0]).dims);
  c.input_grads[0] =
      c.builder.Add1("max_pool_grad", {c.output_grads[0], c.node.outputs[1]}, std::move(a));
  return Status::Ok();
}

Status AvgPoolGradient(const GradientContext& c) {
  Attributes a = Keep(c.node.attributes, kAverage);
  a.Set("input_shape", c.builder.type(c.node.inputs[0]).dims);
  c.input_grads[0] = c.builder.Add1("avg_pool_grad", {c.output_grads[0]}, std::move(a));
  return Status::Ok();
}

Status AvgPoolGradGradient(const GradientContext& c) {
  c.input_grads[0] =
      c.builder.Add1("avg_pool", {c.output_grads[0]}, Keep(c.node.attributes, kAverage));
  return Status::Ok();
}

ShardingFactors PoolSharding(Types in, Types out, const Attributes&) {
  Letters pool;
  ShardingFactors f;
  const std::string outer = pool.Next(2);
  const std::string x = pool.Next(in[0].rank() - 2);
  const std::string y = pool.Next(out[0].rank() - 2);
  f.inputs.assign(in.size(), outer + x);
  f.outputs.assign(out.size(), outer + y);
  f.replicated = x + y;
  return f;
}

// One operation per tap of every window.
OpCost PoolCost(Types in, Types out, const Attributes& a) {
  const bool backward = a.Has("input_shape");
  const double windows = static_cast<double>((backward ? in : out)[0].elements());
  return MemoryCost(in, out, windows * static_cast<double>(ElementCount(a.GetDims("kernel"))));
}

OpDef PoolBase(std::string_view name, std::string_view summary) {
  OpDef def;
  def.name = name;
  def.family = "pooling";
  def.summary = summary;
  def.min_inputs = def.max_inputs = 1;
  def.sharding = ShardingFunction(PoolSharding);
  def.cost = PoolCost;
  def.saved = SavedForBackward{};
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

}  // namespace

void RegisterPoolingOps(OpRegistry& registry) {
  OpDef max = PoolBase("max_pool",
                       "largest element of each window and the row-major tap number of the first "
                       "such; index is u8 up to 256 taps, else i32");
  max.outputs = 2;
  max.attributes = PoolAttributes();
  max.infer = InferMaxPool;
  max.gradient = GradientFunction(MaxPoolGradient);
  max.saved = SavedForBackward{{}, {1}};
  registry.Add(std::move(max));

  OpDef max_grad = PoolBase("max_pool_grad", "adds each g to the element that index points at");
  max_grad.min_inputs = max_grad.max_inputs = 2;
  max_grad.attributes = Extend(PoolAttributes(), {InputShape()});
  max_grad.infer = InferMaxPoolGrad;
  max_grad.localize = LocalShape("input_shape");
  max_grad.gradient = NotDifferentiable{"second derivatives are not supported"};
  registry.Add(std::move(max_grad));

  OpDef avg = PoolBase("avg_pool", "mean of each window");
  avg.attributes = Extend(PoolAttributes(), {CountIncludePad()});
  avg.infer = InferAvgPool;
  avg.gradient = GradientFunction(AvgPoolGradient);
  registry.Add(std::move(avg));

  OpDef avg_grad = PoolBase("avg_pool_grad", "adjoint of avg_pool: spreads g over its window");
  avg_grad.attributes = Extend(PoolAttributes(), {CountIncludePad(), InputShape()});
  avg_grad.infer = InferAvgPoolGrad;
  avg_grad.localize = LocalShape("input_shape");
  avg_grad.gradient = GradientFunction(AvgPoolGradGradient);
  registry.Add(std::move(avg_grad));
}

}  // namespace hyper::ir
