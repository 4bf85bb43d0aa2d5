// Normalizations and Dropout.
#include <fmt/format.h>

#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/lp_norm.h"

namespace hyper::onnx_frontend {
namespace {

// A per-channel vector [C] against x [N, C, ...].
ValueId Channels(NodeContext& c, ValueId vector, const Dims& dims) {
  return c.b().Broadcast(vector, dims, {1});
}

ValueId MulAdd(NodeContext& c, ValueId x, ValueId scale, ValueId bias) {
  return c.MapValues({x, scale, bias}, [](ExprBuilder& e, Args a) {
    return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, a[0], a[1]), a[2]);
  });
}

// (x - mean) / sqrt(var + epsilon) * scale + bias with the statistics given.
ValueId BatchNormFixed(NodeContext& c, double epsilon) {
  const Dims dims = c.Shape(0);
  const ValueId factor = c.MapInputs({1, 4}, [&](ExprBuilder& e, Args a) {
    const int var = e.Binary(ScalarOp::kAdd, a[1], e.Constant(c.Type(4).dtype, epsilon));
    return e.Binary(ScalarOp::kDiv, a[0], e.Unary(ScalarOp::kSqrt, var));
  });
  return c.MapValues(
      {c.In(0), Channels(c, c.In(3), dims), Channels(c, factor, dims), Channels(c, c.In(2), dims)},
      [&](ExprBuilder& e, Args a) {
        const int centered = e.Binary(ScalarOp::kSub, a[0], a[1]);
        return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, centered, a[2]), a[3]);
      });
}

ValueId Blend(NodeContext& c, ValueId old_value, ValueId batch, double momentum) {
  const DType dtype = c.b().type(old_value).dtype;
  return c.MapValues({old_value, batch}, [&](ExprBuilder& e, Args a) {
    return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, a[0], e.Constant(dtype, momentum)),
                    e.Binary(ScalarOp::kMul, a[1], e.Constant(dtype, 1 - momentum)));
  });
}

void BatchNormalization(NodeContext& c) {
  const Dims dims = c.Shape(0);
  if (dims.size() < 2) Fail("the input must have rank 2 or more");
  for (int i : {1, 2, 3, 4}) {
    if (c.Shape(i) != Dims{dims[1]}) {
      Fail(fmt::format("operand {} has shape {}, expected [{}]", i, FormatDims(c.Shape(i)),
                       dims[1]));
    }
    if (c.Type(i).dtype != c.Type(0).dtype) Unsupported("operands of different element types");
  }
  if (c.since() < 9 && c.Int("spatial", 1) == 0) Unsupported("spatial = 0");
  const double epsilon = c.Float("epsilon", 1e-5F);
  const double momentum = c.Float("momentum", 0.9F);
  const bool marked = c.since() < 14 ? c.HasOutput(1) : c.Int("training_mode", 0) != 0;
  // In training, evaluation-mode nodes learn too, unless their own weights are frozen.
  const bool state = c.services().persistent_kind(3) == ir::ArgumentKind::kState &&
                     c.services().persistent_kind(4) == ir::ArgumentKind::kState;
  // Statistics that the file computes cannot be kept: in training mode such a node has only those
  // of the batch, in evaluation too.
  const bool computed = marked && (!c.services().persistent_kind(3).has_value() ||
                                   !c.services().persistent_kind(4).has_value());
  const bool batch = c.mode().literal ? marked : computed || (c.mode().training && state);
  if (!batch) {
    c.Out(0, BatchNormFixed(c, epsilon));
    for (int i = 1; i < c.node().output_size(); ++i) {
      if (c.HasOutput(i)) c.Forward(i, i % 2 == 1 ? 3 : 4);
    }
    return;
  }
  const auto y = c.Add("batch_norm", {c.In(0), c.In(1), c.In(2)}, {{"epsilon", epsilon}});
  c.Out(0, y[0]);
  ValueId variance = y[2];
  const int64_t count = ir::ElementCount(dims) / std::max<int64_t>(1, dims[1]);
  if (c.mode().unbiased_variance) {
    if (count < 2) Fail("the unbiased variance needs at least 2 values per channel");
    variance = c.b().BinaryConstant(ScalarOp::kMul, variance,
                                    static_cast<double>(count) / static_cast<double>(count - 1));
  }
  if (!c.mode().literal && computed) {
    c.events().notes.push_back(
        "is in training mode and its running statistics are no tensors of the file: it normalises "
        "by the batch, in evaluation too");
  }
  if (c.mode().training && state) {
    c.events().statistics.push_back({c.services().persistent_name(3), y[1], momentum});
    c.events().statistics.push_back({c.services().persistent_name(4), variance, momentum});
    if (!marked) {
      c.events().notes.push_back(
          "is in evaluation mode in the file; training uses batch statistics (freeze its weights "
          "to "
          "keep the running ones)");
    }
  }
  if (c.HasOutput(1)) c.Out(1, Blend(c, c.In(3), y[1], momentum));
  if (c.HasOutput(2)) c.Out(2, Blend(c, c.In(4), variance, momentum));
  if (c.HasOutput(3)) c.Out(3, y[1]);
  if (c.HasOutput(4)) c.Out(4, y[2]);
}

// Scale or bias as the normalized dims want it, or invalid when it must be applied afterwards.
ValueId NormalizedOperand(NodeContext& c, int i, const Dims& dims) {
  const Dims have = c.Shape(i);
  if (have.size() > dims.size()) return {};
  if (OrFail(ir::BroadcastDims(have, dims)) != dims) Fail("scale or bias does not fit the input");
  return c.b().BroadcastNumpy(c.In(i), dims);
}

Dims StatisticDims(const Dims& x, int axis) {
  Dims dims(x.begin(), x.begin() + axis);
  dims.resize(x.size(), 1);
  return dims;
}

void LayerNormalization(NodeContext& c) {
  const Dims x = c.Shape(0);
  const DType dtype = c.Type(0).dtype;
  const int axis = NormalAxis(c.Int("axis", -1), c.Type(0).rank());
  const Dims normalized(x.begin() + axis, x.end());
  ValueId scale = NormalizedOperand(c, 1, normalized);
  ValueId bias = c.Has(2) ? NormalizedOperand(c, 2, normalized) : c.b().Splat(dtype, normalized, 0);
  const bool after = !scale.valid() || !bias.valid();
  const auto y = c.Add("layer_norm",
                       {c.In(0), after ? c.b().Splat(dtype, normalized, 1) : scale,
                        after ? c.b().Splat(dtype, normalized, 0) : bias},
                       {{"axis", int64_t{axis}}, {"epsilon", c.Float("epsilon", 1e-5F)}});
  ValueId result = y[0];
  if (after) {
    const ValueId wide_scale = c.BroadcastTo(c.In(1), x);
    result = c.Has(2) ? MulAdd(c, result, wide_scale, c.BroadcastTo(c.In(2), x))
                      : c.b().Binary(ScalarOp::kMul, result, wide_scale);
  }
  c.Out(0, result);
  for (int i : {1, 2}) {
    if (c.HasOutput(i)) c.Out(i, c.Reshape(y[static_cast<size_t>(i)], StatisticDims(x, axis)));
  }
}

void RmsNormalization(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int axis = NormalAxis(c.Int("axis", -1), c.Type(0).rank());
  const Dims normalized(x.begin() + axis, x.end());
  const ValueId scale = NormalizedOperand(c, 1, normalized);
  const auto y = c.Add(
      "rms_norm", {c.In(0), scale.valid() ? scale : c.b().Splat(c.Type(0).dtype, normalized, 1)},
      {{"axis", int64_t{axis}}, {"epsilon", c.Float("epsilon", 1e-5F)}});
  c.Out(0, scale.valid() ? y[0] : c.b().Binary(ScalarOp::kMul, y[0], c.BroadcastTo(c.In(1), x)));
  if (c.HasOutput(1)) c.Out(1, c.Reshape(y[1], StatisticDims(x, axis)));
}

// Normalizes x, viewed as [N, groups, rest], over `rest`.
ValueId NormalizeGroups(NodeContext& c, int64_t groups, double epsilon) {
  const Dims x = c.Shape(0);
  if (x.size() < 2) Fail("the input must have rank 2 or more");
  if (groups < 1 || x[1] % groups != 0) {
    Fail(fmt::format("{} channels do not divide into {} groups", x[1], groups));
  }
  const int64_t rest = x[0] * groups == 0 ? 0 : ir::ElementCount(x) / (x[0] * groups);
  const DType dtype = c.Type(0).dtype;
  const auto y = c.Add("layer_norm",
                       {c.Reshape(c.In(0), {x[0], groups, rest}), c.b().Splat(dtype, {rest}, 1),
                        c.b().Splat(dtype, {rest}, 0)},
                       {{"axis", int64_t{2}}, {"epsilon", epsilon}});
  return c.Reshape(y[0], x);
}

void InstanceNormalization(NodeContext& c) {
  const Dims x = c.Shape(0);
  const ValueId y = NormalizeGroups(c, x.size() > 1 ? x[1] : 1, c.Float("epsilon", 1e-5F));
  if (c.Shape(1) != Dims{x[1]} || c.Shape(2) != Dims{x[1]}) Fail("scale and bias must be [C]");
  c.Out(0, MulAdd(c, y, Channels(c, c.In(1), x), Channels(c, c.In(2), x)));
}

void GroupNormalization(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int64_t groups = c.Int("num_groups", 1);
  const ValueId y = NormalizeGroups(c, groups, c.Float("epsilon", 1e-5F));
  const bool per_group = c.since() < 21;  // scale and bias: [groups] before opset 21, then [C]
  auto channels = [&](int i) {
    const int64_t want = per_group ? groups : x[1];
    if (c.Shape(i) != Dims{want}) {
      Fail(fmt::format("operand {} has shape {}, expected [{}]", i, FormatDims(c.Shape(i)), want));
    }
    ValueId v = c.In(i);
    if (per_group) {
      v = c.Reshape(c.b().Broadcast(v, {groups, x[1] / groups}, {0}), {x[1]});
    }
    return Channels(c, v, x);
  };
  c.Out(0, MulAdd(c, y, channels(1), channels(2)));
}

// x / (bias + alpha / size * sum over neighbouring channels of x^2) ^ beta
void Lrn(NodeContext& c) {
  const Dims x = c.Shape(0);
  if (x.size() < 2) Fail("the input must have rank 2 or more");
  const int64_t size = c.Int("size", 1);
  if (size < 1 || size > x[1] * 2 + 1) Unsupported("a window wider than the channels");
  const DType dtype = c.Type(0).dtype;
  const int64_t inner = x[0] * x[1] == 0 ? 0 : ir::ElementCount(x) / (x[0] * x[1]);
  const int64_t low = (size - 1) / 2;
  const ValueId square =
      c.Reshape(c.b().Binary(ScalarOp::kMul, c.In(0), c.In(0)), {x[0], 1, x[1], inner});
  // An average over `size` with counted zero padding is the sum divided by size.
  const ValueId mean = c.Add1("avg_pool", {square},
                              {{"kernel", Dims{size, 1}},
                               {"strides", Dims{1, 1}},
                               {"pads_low", Dims{low, 0}},
                               {"pads_high", Dims{size - 1 - low, 0}},
                               {"dilations", Dims{1, 1}},
                               {"count_include_pad", true}});
  const double alpha = c.Float("alpha", 1e-4F);
  const double beta = c.Float("beta", 0.75);
  const double bias = c.Float("bias", 1);
  c.Out(0, c.MapValues({c.In(0), c.Reshape(mean, x)}, [&](ExprBuilder& e, Args a) {
    const int base = e.Binary(ScalarOp::kAdd, e.Constant(dtype, bias),
                              e.Binary(ScalarOp::kMul, e.Constant(dtype, alpha), a[1]));
    return e.Binary(ScalarOp::kDiv, a[0], e.Binary(ScalarOp::kPow, base, e.Constant(dtype, beta)));
  }));
}

void Dropout(NodeContext& c) {
  const double ratio = c.since() < 12 ? c.Float("ratio", 0.5)
                       : c.Has(1)     ? c.Scalar(1, "the ratio")
                                      : 0.5;
  if (!(ratio >= 0 && ratio < 1)) Fail(fmt::format("ratio {}; 0 <= ratio < 1 is expected", ratio));
  const bool marked = c.since() >= 12 && c.Has(2) && c.Scalar(2, "training_mode") != 0;
  const bool drop = (c.mode().literal ? marked : c.mode().training) && ratio > 0;
  const Dims dims = c.Shape(0);
  const DType dtype = c.Type(0).dtype;
  if (!drop) {
    c.Forward(0, 0);
    if (c.HasOutput(1)) {
      // Before opset 10 the mask has the type of the data.
      const bool typed = c.since() < 10;
      c.Out(1, c.b().Splat(typed ? dtype : DType::kBool, dims, 1));
    }
    return;
  }
  if (c.since() >= 12 && c.Has(2) && !marked) {
    c.events().notes.push_back(
        "is switched off in the file (training_mode is false); training drops out all the same");
  }
  const ValueId uniform =
      c.Add1("random_uniform", {c.services().rng()}, {{"shape", dims}, {"dtype", dtype}});
  c.Out(0, c.MapValues({c.In(0), uniform}, [&](ExprBuilder& e, Args a) {
    const int keep = e.Binary(ScalarOp::kGe, a[1], e.Constant(dtype, ratio));
    const int scaled = e.Binary(ScalarOp::kMul, a[0], e.Constant(dtype, 1 / (1 - ratio)));
    return e.Select(keep, scaled, e.Constant(dtype, 0));
  }));
  if (c.HasOutput(1)) c.Out(1, c.b().BinaryConstant(ScalarOp::kGe, uniform, ratio));
}

// x / |x|_p along an axis; 0 with gradient 0 where the norm is 0.
void LpNormalization(NodeContext& c) {
  const int64_t p = c.Int("p", 2);
  if (p != 1 && p != 2) Fail(fmt::format("p is {}; 1 and 2 are possible", p));
  const Dims dims = c.Shape(0);
  const int axis = NormalAxis(c.Int("axis", -1), c.Type(0).rank());
  const auto order = static_cast<double>(p);
  const ValueId norm =
      LpRoot(c, c.b().Reduce("sum", LpPowers(c, c.In(0), order), {int64_t{axis}}), order);
  Dims others(dims.size());
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + axis);
  const DType dtype = c.b().type(norm).dtype;
  c.Out(0, c.MapValues({c.In(0), c.b().Broadcast(norm, dims, others)}, [&](ExprBuilder& e, Args a) {
    const int zero = e.Constant(dtype, 0);
    const int empty = e.Binary(ScalarOp::kEq, a[1], zero);
    const int y = e.Binary(ScalarOp::kDiv, e.Cast(dtype, a[0]), a[1]);
    return e.Cast(c.Type(0).dtype, e.Select(empty, zero, y));
  }));
}

}  // namespace

void RegisterNormalizationImporters(ImportTable& t) {
  t.Add({"LpNormalization", 1, 22, LpNormalization, "map, reduce sum and map"});
  t.Add({"BatchNormalization",
         7,
         15,
         BatchNormalization,
         "batch_norm in training, map with the running statistics otherwise",
         {},
         {1, 2}});
  // Exporters wrote it under this name before opset 17 had it.
  t.Add({"LayerNormalization", 1, 17, LayerNormalization, "layer_norm", {}, {1, 2}});
  t.Add({"LayerNormalization",
         1,
         1,
         LayerNormalization,
         "layer_norm",
         {},
         {1, 2},
         {},
         "com.microsoft"});
  t.Add({"RMSNormalization", 23, 23, RmsNormalization, "rms_norm", {}, {1}});
  t.Add({"SimplifiedLayerNormalization", 1, 1, RmsNormalization, "rms_norm", {}, {1}});
  t.Add({"SimplifiedLayerNormalization",
         1,
         1,
         RmsNormalization,
         "rms_norm",
         {},
         {1},
         {},
         "com.microsoft"});
  t.Add({"InstanceNormalization",
         6,
         22,
         InstanceNormalization,
         "layer_norm per channel, map",
         {},
         {1, 2}});
  t.Add(
      {"GroupNormalization", 18, 21, GroupNormalization, "layer_norm per group, map", {}, {1, 2}});
  t.Add({"LRN", 1, 13, Lrn, "avg_pool over channels, map"});
  t.Add(
      {"Dropout", 7, 22, Dropout, "random_uniform and map in training, nothing otherwise", {1, 2}});
}

}  // namespace hyper::onnx_frontend
