// Data movement that changes the index space only: broadcast, reshape, transpose, slice, reverse,
// concat, copy, and the sources constant and iota. Padding is in padding.cc.
#include <algorithm>

#include "base/strings.h"
#include "ir/node_check.h"
#include "ir/ops/common.h"
#include "ir/ops/padding.h"

namespace hyper::ir {
namespace {

const CostFunction kMoveCost = ElementCost(0);

InferResult InferBroadcast(Types in, const Attributes& a) {
  const Dims& shape = a.GetDims("shape");
  const Dims& dims = a.GetDims("dims");
  HYPER_RETURN_IF_ERROR(ExpectEach("shape", shape, 0));
  HYPER_RETURN_IF_ERROR(ExpectEntries("dims", dims, in[0].rank()));
  for (size_t d = 0; d < dims.size(); ++d) {
    HYPER_RETURN_IF_ERROR(ExpectAxis("entry " + std::to_string(d) + " of dims", dims[d],
                                     static_cast<int>(shape.size())));
    if (d > 0 && dims[d] <= dims[d - 1]) {
      return InvalidArgument("dims " + FormatDims(dims) + " must increase strictly");
    }
    const int64_t to = shape[static_cast<size_t>(dims[d])];
    if (in[0].dims[d] != to && in[0].dims[d] != 1) {
      return InvalidArgument("dim " + std::to_string(d) + " of input 0 is " +
                             std::to_string(in[0].dims[d]) + ", expected 1 or " +
                             std::to_string(to) + " (dim " + std::to_string(dims[d]) +
                             " of the output)");
    }
  }
  return std::vector<TensorType>{{in[0].dtype, shape}};
}

Status BroadcastGradient(const GradientContext& c) {
  Builder& b = c.builder;
  const Dims& dims = c.node.attributes.GetDims("dims");
  const TensorType x = b.type(c.node.inputs[0]);
  const Dims shape = b.type(c.output_grads[0]).dims;
  Dims axes;
  for (int64_t o = 0; o < static_cast<int64_t>(shape.size()); ++o) {
    const auto at = std::find(dims.begin(), dims.end(), o);
    const bool spread = at == dims.end() || x.dims[static_cast<size_t>(at - dims.begin())] !=
                                                shape[static_cast<size_t>(o)];
    if (spread) axes.push_back(o);
  }
  c.input_grads[0] = b.Reshape(b.Reduce("sum", c.output_grads[0], axes), x.dims);
  return Status::Ok();
}

ShardingFactors BroadcastSharding(Types in, Types out, const Attributes& a) {
  Letters pool;
  ShardingFactors f;
  f.outputs = {pool.Next(out[0].rank())};
  const Dims& dims = a.GetDims("dims");
  std::string input;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (in[0].dims[d] == out[0].dims[static_cast<size_t>(dims[d])]) {
      input += f.outputs[0][static_cast<size_t>(dims[d])];
    } else {
      const std::string fresh = pool.Next(1);
      input += fresh;
      f.replicated += fresh;
    }
  }
  f.inputs = {input};
  return f;
}

InferResult InferReshape(Types in, const Attributes& a) {
  const Dims& shape = a.GetDims("shape");
  HYPER_RETURN_IF_ERROR(ExpectEach("shape", shape, 0));
  HYPER_RETURN_IF_ERROR(CheckType({in[0].dtype, shape}).WithContext("shape"));
  if (ElementCount(shape) != in[0].elements()) {
    return InvalidArgument("input 0 is " + in[0].ToString() + " with " +
                           std::to_string(in[0].elements()) + " elements, but shape " +
                           FormatDims(shape) + " has " + std::to_string(ElementCount(shape)));
  }
  return std::vector<TensorType>{{in[0].dtype, shape}};
}

// Cuts both shapes into the shortest runs of dims with equal products. A run of one dim on each
// side passes through. Of a longer run the outermost dims with extent > 1 share a factor: splitting
// both into p contiguous blocks gives the same elements whenever p divides both extents.
ShardingFactors ReshapeSharding(Types in, Types out, const Attributes&) {
  Letters pool;
  ShardingFactors f;
  const Dims& x = in[0].dims;
  const Dims& y = out[0].dims;
  std::string xs(x.size(), '?');
  std::string ys(y.size(), '?');
  auto replicate = [&](char& letter) {
    letter = pool.Next(1)[0];
    f.replicated += letter;
  };
  size_t i = 0;
  size_t j = 0;
  if (in[0].elements() > 0) {
    while (i < x.size() && j < y.size()) {
      const size_t i0 = i;
      const size_t j0 = j;
      int64_t left = x[i++];
      int64_t right = y[j++];
      while (left != right) {
        if (left < right) {
          left *= x[i++];
        } else {
          right *= y[j++];
        }
      }
      size_t im = i0;
      size_t jm = j0;
      while (im + 1 < i && x[im] == 1) ++im;
      while (jm + 1 < j && y[jm] == 1) ++jm;
      for (size_t k = i0; k < i; ++k) {
        if (k != im) replicate(xs[k]);
      }
      for (size_t k = j0; k < j; ++k) {
        if (k != jm) replicate(ys[k]);
      }
      xs[im] = ys[jm] = pool.Next(1)[0];
    }
  }
  for (; i < x.size(); ++i) replicate(xs[i]);
  for (; j < y.size(); ++j) replicate(ys[j]);
  f.inputs = {xs};
  f.outputs = {ys};
  return f;
}

InferResult InferTranspose(Types in, const Attributes& a) {
  const Dims& perm = a.GetDims("perm");
  HYPER_RETURN_IF_ERROR(ExpectEntries("perm", perm, in[0].rank()));
  HYPER_RETURN_IF_ERROR(ExpectAxes("perm", perm, in[0].rank()));
  TensorType y{in[0].dtype, {}};
  for (int64_t p : perm) y.dims.push_back(in[0].dims[static_cast<size_t>(p)]);
  return std::vector<TensorType>{y};
}

Status TransposeGradient(const GradientContext& c) {
  const Dims& perm = c.node.attributes.GetDims("perm");
  Dims inverse(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) {
    inverse[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  }
  c.input_grads[0] = c.builder.Transpose(c.output_grads[0], inverse);
  return Status::Ok();
}

ShardingFactors TransposeSharding(Types in, Types, const Attributes& a) {
  ShardingFactors f;
  f.inputs = {Letters().Next(in[0].rank())};
  f.outputs = {""};
  for (int64_t p : a.GetDims("perm")) f.outputs[0] += f.inputs[0][static_cast<size_t>(p)];
  return f;
}

InferResult InferSlice(Types in, const Attributes& a) {
  const int rank = in[0].rank();
  const Dims& starts = a.GetDims("starts");
  const Dims& limits = a.GetDims("limits");
  const Dims& strides = a.GetDims("strides");
  HYPER_RETURN_IF_ERROR(ExpectEntries("starts", starts, rank));
  HYPER_RETURN_IF_ERROR(ExpectEntries("limits", limits, rank));
  HYPER_RETURN_IF_ERROR(ExpectEntries("strides", strides, rank));
  HYPER_RETURN_IF_ERROR(ExpectEach("starts", starts, 0));
  HYPER_RETURN_IF_ERROR(ExpectEach("strides", strides, 1));
  TensorType y{in[0].dtype, {}};
  for (size_t d = 0; d < starts.size(); ++d) {
    if (limits[d] < starts[d] || limits[d] > in[0].dims[d]) {
      return InvalidArgument("dim " + std::to_string(d) + " of input 0 is " +
                             std::to_string(in[0].dims[d]) + ", slice [" +
                             std::to_string(starts[d]) + ", " + std::to_string(limits[d]) +
                             ") does not lie inside");
    }
    y.dims.push_back(limits[d] == starts[d] ? 0 : (limits[d] - starts[d] - 1) / strides[d] + 1);
  }
  return std::vector<TensorType>{y};
}

Status SliceGradient(const GradientContext& c) {
  Builder& b = c.builder;
  const Dims x = b.type(c.node.inputs[0]).dims;
  const Dims y = b.type(c.output_grads[0]).dims;
  const Dims& starts = c.node.attributes.GetDims("starts");
  const Dims& strides = c.node.attributes.GetDims("strides");
  PadSpec pad(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    if (y[d] == 0) {  // nothing was taken: all of x is padding
      pad.low[d] = x[d];
      continue;
    }
    pad.low[d] = starts[d];
    pad.interior[d] = strides[d] - 1;
    pad.high[d] = x[d] - starts[d] - (y[d] - 1) * strides[d] - 1;
  }
  c.input_grads[0] = PadZero(b, c.output_grads[0], pad);
  return Status::Ok();
}

ShardingFactors SliceSharding(Types in, Types out, const Attributes& a) {
  Letters pool;
  ShardingFactors f;
  f.inputs = {pool.Next(in[0].rank())};
  f.outputs = {f.inputs[0]};
  for (size_t d = 0; d < in[0].dims.size(); ++d) {
    if (in[0].dims[d] == out[0].dims[d] && a.GetDims("strides")[d] == 1) continue;
    f.outputs[0][d] = pool.Next(1)[0];
    f.replicated += f.inputs[0][d];
    f.replicated += f.outputs[0][d];
  }
  return f;
}

// A dim that is cut is taken whole: its slice ends where the rank's extent does.
Attributes LocalSlice(const Attributes& a, Types in, Types out) {
  Dims limits = a.GetDims("limits");
  for (size_t d = 0; d < limits.size(); ++d) {
    if (limits[d] > in[0].dims[d]) limits[d] = out[0].dims[d];
  }
  Attributes local = a;
  local.Set("limits", limits);
  return local;
}

InferResult InferReverse(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectAxes("axes", a.GetDims("axes"), in[0].rank()));
  return std::vector<TensorType>{in[0]};
}

InferResult InferConcat(Types in, const Attributes& a) {
  const int64_t axis = a.Int("axis");
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, 0, 1));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", axis, in[0].rank()));
  TensorType y = in[0];
  for (int i = 1; i < static_cast<int>(in.size()); ++i) {
    const TensorType& x = in[static_cast<size_t>(i)];
    HYPER_RETURN_IF_ERROR(ExpectDType(in, i, y.dtype, "as input 0"));
    HYPER_RETURN_IF_ERROR(ExpectRank(in, i, y.rank()));
    for (int d = 0; d < y.rank(); ++d) {
      if (d == axis) continue;
      HYPER_RETURN_IF_ERROR(ExpectDim(in, i, d, y.dims[static_cast<size_t>(d)], "as input 0"));
    }
    y.dims[static_cast<size_t>(axis)] += x.dims[static_cast<size_t>(axis)];
  }
  return std::vector<TensorType>{y};
}

Status ConcatGradient(const GradientContext& c) {
  Builder& b = c.builder;
  const auto axis = static_cast<size_t>(c.node.attributes.Int("axis"));
  const Dims shape = b.type(c.output_grads[0]).dims;
  Dims starts(shape.size(), 0);
  for (size_t i = 0; i < c.node.inputs.size(); ++i) {
    const int64_t extent = b.type(c.node.inputs[i]).dims[axis];
    Dims limits = shape;
    limits[axis] = starts[axis] + extent;
    if (c.wanted[i]) {
      c.input_grads[i] =
          extent == shape[axis]
              ? c.output_grads[0]
              : b.Add1(
                    "slice", {c.output_grads[0]},
                    {{"starts", starts}, {"limits", limits}, {"strides", Dims(shape.size(), 1)}});
    }
    starts[axis] += extent;
  }
  return Status::Ok();
}

ShardingFactors ConcatSharding(Types in, Types out, const Attributes& a) {
  // The letter of the axis stands for other extents in each operand: it is never split.
  return PassThrough(in, out, {a.Int("axis")});
}

InferResult InferConstant(Types, const Attributes& a) {
  if (!a.Tensor("value").defined()) return InvalidArgument("value is undefined");
  return std::vector<TensorType>{a.Tensor("value").type()};
}

InferResult InferIota(Types, const Attributes& a) {
  const Dims& shape = a.GetDims("shape");
  HYPER_RETURN_IF_ERROR(ExpectEach("shape", shape, 0));
  HYPER_RETURN_IF_ERROR(ExpectAxis("axis", a.Int("axis"), static_cast<int>(shape.size())));
  if (a.GetDType("dtype") == DType::kBool)
    return InvalidArgument("dtype is bool, expected a number");
  return std::vector<TensorType>{{a.GetDType("dtype"), shape}};
}

InferResult InferSame(Types in, const Attributes&) { return std::vector<TensorType>{in[0]}; }

OpDef Movement(std::string_view name, std::string_view summary) {
  OpDef def;
  def.name = name;
  def.family = "data_movement";
  def.summary = summary;
  def.min_inputs = def.max_inputs = 1;
  def.cost = kMoveCost;
  def.saved = SavedForBackward{};
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

void RegisterViews(OpRegistry& registry) {
  OpDef broadcast =
      Movement("broadcast",
               "input dim d becomes output dim dims[d]; all other dims and those of extent 1 "
               "are repeated");
  broadcast.attributes = {{"shape", AttributeKind::kDims, "output dims", std::nullopt},
                          {"dims", AttributeKind::kDims,
                           "output dim of each input dim, strictly increasing", std::nullopt}};
  broadcast.infer = InferBroadcast;
  broadcast.gradient = GradientFunction(BroadcastGradient);
  broadcast.sharding = ShardingFunction(BroadcastSharding);
  broadcast.localize = LocalShape("shape");
  registry.Add(std::move(broadcast));

  OpDef reshape = Movement("reshape", "the same row-major elements under another shape");
  reshape.attributes = {{"shape", AttributeKind::kDims, "output dims", std::nullopt}};
  reshape.infer = InferReshape;
  reshape.gradient = GradientFunction([](const GradientContext& c) {
    c.input_grads[0] = c.builder.Reshape(c.output_grads[0], c.builder.type(c.node.inputs[0]).dims);
    return Status::Ok();
  });
  reshape.sharding = ShardingFunction(ReshapeSharding);
  reshape.localize = LocalShape("shape");
  reshape.in_place = std::vector<InPlaceRule>{{0, 0}};
  registry.Add(std::move(reshape));

  OpDef transpose = Movement("transpose", "output dim d is input dim perm[d]");
  transpose.attributes = {
      {"perm", AttributeKind::kDims, "a permutation of the dims", std::nullopt}};
  transpose.infer = InferTranspose;
  transpose.gradient = GradientFunction(TransposeGradient);
  transpose.sharding = ShardingFunction(TransposeSharding);
  registry.Add(std::move(transpose));

  OpDef slice = Movement("slice", "y[i] = x[starts + i * strides] for indices below limits");
  slice.attributes = {
      {"starts", AttributeKind::kDims, "first index per dim", std::nullopt},
      {"limits", AttributeKind::kDims, "end index per dim, exclusive", std::nullopt},
      {"strides", AttributeKind::kDims, "step per dim, at least 1", std::nullopt}};
  slice.infer = InferSlice;
  slice.gradient = GradientFunction(SliceGradient);
  slice.sharding = ShardingFunction(SliceSharding);
  slice.localize = LocalSlice;
  registry.Add(std::move(slice));

  OpDef reverse = Movement("reverse", "indices run backwards along axes");
  reverse.attributes = {{"axes", AttributeKind::kDims, "dims to reverse", std::nullopt}};
  reverse.infer = InferReverse;
  reverse.gradient = GradientFunction([](const GradientContext& c) {
    c.input_grads[0] = c.builder.Add1("reverse", {c.output_grads[0]}, c.node.attributes);
    return Status::Ok();
  });
  reverse.sharding = ShardingFunction([](Types in, Types out, const Attributes& a) {
    return PassThrough(in, out, a.GetDims("axes"));
  });
  registry.Add(std::move(reverse));
}

void RegisterSources(OpRegistry& registry) {
  OpDef concat = Movement("concat", "operands one after another along axis");
  concat.max_inputs = -1;
  concat.attributes = {{"axis", AttributeKind::kInt, "dim to join", std::nullopt}};
  concat.infer = InferConcat;
  concat.gradient = GradientFunction(ConcatGradient);
  concat.sharding = ShardingFunction(ConcatSharding);
  registry.Add(std::move(concat));

  OpDef constant = Movement("constant", "a tensor known at compile time");
  constant.min_inputs = constant.max_inputs = 0;
  constant.attributes = {{"value", AttributeKind::kTensor, "the tensor", std::nullopt}};
  constant.infer = InferConstant;
  constant.gradient = ZeroGradient{"it has no inputs"};
  // A rank takes its own piece of the tensor, so every dim may be split.
  // Made whole by every rank: taking a slice of it is free, other values per rank are not.
  constant.sharding = ShardingFunction([](Types in, Types out, const Attributes&) {
    return PassThrough(in, out, Sequence(out[0].rank()));
  });
  registry.Add(std::move(constant));

  OpDef iota = Movement("iota", "y[i] = i[axis]");
  iota.min_inputs = iota.max_inputs = 0;
  iota.attributes = {{"shape", AttributeKind::kDims, "output dims", std::nullopt},
                     {"axis", AttributeKind::kInt, "dim that counts", std::nullopt},
                     {"dtype", AttributeKind::kDType, "element type", std::nullopt}};
  iota.infer = InferIota;
  iota.gradient = ZeroGradient{"it has no inputs"};
  iota.sharding = ShardingFunction([](Types in, Types out, const Attributes& a) {
    return PassThrough(in, out, {a.Int("axis")});
  });
  iota.localize = LocalShape("shape");
  registry.Add(std::move(iota));

  OpDef copy = Movement("copy", "y = x in a fresh buffer");
  copy.infer = InferSame;
  copy.gradient = GradientFunction([](const GradientContext& c) {
    c.input_grads[0] = c.output_grads[0];
    return Status::Ok();
  });
  copy.sharding = ShardingFunction(
      [](Types in, Types out, const Attributes&) { return PassThrough(in, out, {}); });
  registry.Add(std::move(copy));
}

}  // namespace

void RegisterDataMovementOps(OpRegistry& registry) {
  RegisterViews(registry);
  registry.Add(PadOp());
  RegisterSources(registry);
}

}  // namespace hyper::ir
