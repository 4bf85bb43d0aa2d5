// Indexing: gather and scatter-add (adjoint to each other), their elementwise kin, top-k.
#include "base/strings.h"
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

Status ExpectExtentForIndices(Types in, int64_t axis, int64_t extent, int indices) {
  if (extent > 0 || in[static_cast<size_t>(indices)].elements() == 0) return Status::Ok();
  return InvalidArgument(
      "dim " + std::to_string(axis) + " is 0, but input " + std::to_string(indices) + " holds " +
      std::to_string(in[static_cast<size_t>(indices)].elements()) + " indices into it");
}

Status ExpectSize(const Attributes& a) {
  if (a.Int("size") >= 0) return Status::Ok();
  return InvalidArgument("size is " + std::to_string(a.Int("size")) + ", expected at least 0");
}

InferResult InferGather(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectExtentForIndices(in, axis, in[0].dims[static_cast<size_t>(axis)], 1));
  Dims y(in[0].dims.begin(), in[0].dims.begin() + axis);
  y.insert(y.end(), in[1].dims.begin(), in[1].dims.end());
  y.insert(y.end(), in[0].dims.begin() + axis + 1, in[0].dims.end());
  return std::vector<TensorType>{{in[0].dtype, y}};
}

InferResult InferScatterAdd(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectSize(a));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 1, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[1].rank() - in[0].rank() + 1));
  for (int d = 0; d < in[0].rank(); ++d) {
    HYPER_RETURN_IF_ERROR(ExpectDim(in, 1, static_cast<int>(axis) + d,
                                    in[0].dims[static_cast<size_t>(d)],
                                    "dim " + std::to_string(d) + " of the indices"));
  }
  HYPER_RETURN_IF_ERROR(ExpectExtentForIndices(in, axis, a.Int("size"), 0));
  Dims y(in[1].dims.begin(), in[1].dims.begin() + axis);
  y.push_back(a.Int("size"));
  y.insert(y.end(), in[1].dims.begin() + axis + in[0].rank(), in[1].dims.end());
  return std::vector<TensorType>{{in[1].dtype, y}};
}

Status GatherGradient(const GradientContext& c) {
  if (!c.wanted[0]) return Status::Ok();
  const int64_t axis = c.node.attributes.Int("axis");
  const int64_t size = c.builder.type(c.node.inputs[0]).dims[static_cast<size_t>(axis)];
  c.input_grads[0] = c.builder.Add1("scatter_add", {c.node.inputs[1], c.output_grads[0]},
                                    {{"axis", axis}, {"size", size}});
  return Status::Ok();
}

Status ScatterAddGradient(const GradientContext& c) {
  if (!c.wanted[1]) return Status::Ok();
  c.input_grads[1] = c.builder.Add1("gather", {c.output_grads[0], c.node.inputs[0]},
                                    {{"axis", c.node.attributes.Int("axis")}});
  return Status::Ok();
}

// Letters: outer dims, index dims, inner dims; the indexed dim itself stays whole.
ShardingFactors GatherLetters(int outer, int indices, int inner, std::string* table,
                              std::string* index, std::string* result) {
  Letters pool;
  const std::string before = pool.Next(outer);
  *index = pool.Next(indices);
  const std::string after = pool.Next(inner);
  const std::string indexed = pool.Next(1);
  *table = before + indexed + after;
  *result = before + *index + after;
  ShardingFactors f;
  f.replicated = indexed;
  return f;
}

ShardingFactors GatherSharding(Types in, Types, const Attributes& a) {
  const int axis = static_cast<int>(a.Int("axis"));
  std::string table, index, result;
  ShardingFactors f =
      GatherLetters(axis, in[1].rank(), in[0].rank() - axis - 1, &table, &index, &result);
  f.inputs = {table, index};
  f.outputs = {result};
  return f;
}

// Split indices give partial sums.
ShardingFactors ScatterSharding(Types in, Types out, const Attributes& a) {
  const int axis = static_cast<int>(a.Int("axis"));
  std::string table, index, result;
  ShardingFactors f =
      GatherLetters(axis, in[0].rank(), out[0].rank() - axis - 1, &table, &index, &result);
  f.inputs = {index, result};
  f.outputs = {table};
  f.reduced = index;
  return f;
}

InferResult InferGatherElements(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectRank(in, 1, in[0].rank()));
  for (int d = 0; d < in[0].rank(); ++d) {
    if (d == axis) continue;
    HYPER_RETURN_IF_ERROR(
        ExpectDim(in, 1, d, in[0].dims[static_cast<size_t>(d)], "as input 0 beside the axis"));
  }
  HYPER_RETURN_IF_ERROR(ExpectExtentForIndices(in, axis, in[0].dims[static_cast<size_t>(axis)], 1));
  return std::vector<TensorType>{{in[0].dtype, in[1].dims}};
}

InferResult InferScatterAddElements(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectSize(a));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 1, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[1].rank()));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, in[1].dims, "one index per update"));
  HYPER_RETURN_IF_ERROR(ExpectExtentForIndices(in, axis, a.Int("size"), 0));
  return std::vector<TensorType>{{in[1].dtype, With(in[1].dims, axis, a.Int("size"))}};
}

Status GatherElementsGradient(const GradientContext& c) {
  if (!c.wanted[0]) return Status::Ok();
  const int64_t axis = c.node.attributes.Int("axis");
  const int64_t size = c.builder.type(c.node.inputs[0]).dims[static_cast<size_t>(axis)];
  c.input_grads[0] = c.builder.Add1("scatter_add_elements", {c.node.inputs[1], c.output_grads[0]},
                                    {{"axis", axis}, {"size", size}});
  return Status::Ok();
}

Status ScatterAddElementsGradient(const GradientContext& c) {
  if (!c.wanted[1]) return Status::Ok();
  c.input_grads[1] = c.builder.Add1("gather_elements", {c.output_grads[0], c.node.inputs[0]},
                                    {{"axis", c.node.attributes.Int("axis")}});
  return Status::Ok();
}

// Extents along the axis differ between operands; all other dims pass through.
ShardingRule AlongAxis() {
  return ShardingFunction([](Types in, Types out, const Attributes& a) {
    return PassThrough(in, out, {a.Int("axis")});
  });
}

InferResult InferTopK(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectNumeric(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  const int64_t extent = in[0].dims[static_cast<size_t>(axis)];
  if (a.Int("k") < 0 || a.Int("k") > extent) {
    return InvalidArgument("k is " + std::to_string(a.Int("k")) + ", expected 0 to " +
                           std::to_string(extent) + " (dim " + std::to_string(axis) +
                           " of input 0)");
  }
  const Dims y = With(in[0].dims, axis, a.Int("k"));
  return std::vector<TensorType>{{in[0].dtype, y}, {DType::kI64, y}};
}

Status TopKGradient(const GradientContext& c) {
  const int64_t axis = c.node.attributes.Int("axis");
  const int64_t size = c.builder.type(c.node.inputs[0]).dims[static_cast<size_t>(axis)];
  c.input_grads[0] = c.builder.Add1("scatter_add_elements", {c.node.outputs[1], c.output_grads[0]},
                                    {{"axis", axis}, {"size", size}});
  return Status::Ok();
}

AttributeDef Axis() { return {"axis", AttributeKind::kInt, "the indexed dim", std::nullopt}; }
AttributeDef Size() {
  return {"size", AttributeKind::kInt, "extent of the indexed dim of the result", std::nullopt};
}

OpDef Indexing(std::string_view name, std::string_view summary, bool gathers) {
  OpDef def;
  def.name = name;
  def.family = "indexing";
  def.summary = summary;
  def.min_inputs = def.max_inputs = 2;
  def.attributes = {Axis()};
  if (!gathers) def.attributes.push_back(Size());
  def.cost = ElementCost(gathers ? 0 : 1);
  def.saved = SavedForBackward{{gathers ? 1 : 0}, {}};
  def.in_place = std::vector<InPlaceRule>{};
  def.accumulates = !gathers;
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

}  // namespace

void RegisterIndexingOps(OpRegistry& registry) {
  OpDef gather = Indexing("gather",
                          "takes the slices of x along axis that indices name; negative ones "
                          "count from the end. y dims: x before axis, indices, x after axis",
                          true);
  gather.infer = InferGather;
  gather.gradient = GradientFunction(GatherGradient);
  gather.sharding = ShardingFunction(GatherSharding);
  registry.Add(std::move(gather));

  OpDef scatter = Indexing("scatter_add",
                           "adjoint of gather: zeros of extent size along axis plus the updates "
                           "at their indices, in index order",
                           false);
  scatter.infer = InferScatterAdd;
  scatter.gradient = GradientFunction(ScatterAddGradient);
  scatter.sharding = ShardingFunction(ScatterSharding);
  registry.Add(std::move(scatter));

  OpDef elements =
      Indexing("gather_elements", "y[..,i,..] = x[..,indices[..,i,..],..] along axis", true);
  elements.infer = InferGatherElements;
  elements.gradient = GradientFunction(GatherElementsGradient);
  elements.sharding = AlongAxis();
  registry.Add(std::move(elements));

  OpDef scatter_elements = Indexing(
      "scatter_add_elements", "adjoint of gather_elements: zeros plus updates at indices", false);
  scatter_elements.infer = InferScatterAddElements;
  scatter_elements.gradient = GradientFunction(ScatterAddElementsGradient);
  scatter_elements.sharding = AlongAxis();
  scatter_elements.accumulates = false;
  registry.Add(std::move(scatter_elements));

  OpDef top_k = Indexing("top_k",
                         "the k largest or smallest elements along axis in order, and their i64 "
                         "indices; of equal elements the first comes first",
                         true);
  top_k.min_inputs = top_k.max_inputs = 1;
  top_k.outputs = 2;
  top_k.attributes = {{"k", AttributeKind::kInt, "how many", std::nullopt},
                      Axis(),
                      {"largest", AttributeKind::kBool, "largest, else smallest", Attribute(true)}};
  top_k.infer = InferTopK;
  top_k.gradient = GradientFunction(TopKGradient);
  top_k.sharding = AlongAxis();
  top_k.saved = SavedForBackward{{}, {1}};
  registry.Add(std::move(top_k));
}

}  // namespace hyper::ir
