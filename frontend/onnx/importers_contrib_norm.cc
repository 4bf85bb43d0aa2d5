// Contributed operators (com.microsoft) that optimizers of transformer models write: normalizations
// with their sums, activations and FusedMatMul. Composed of core ops; gradients follow from those.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

constexpr std::string_view kDomain = "com.microsoft";

ValueId Sum(NodeContext& c, ValueId a, ValueId b) { return c.b().Binary(ScalarOp::kAdd, a, b); }

void ExpectVector(NodeContext& c, int i, int64_t extent) {
  if (c.Has(i) && c.Shape(i) != Dims{extent}) {
    Fail(fmt::format("operand {} has shape {}, expected [{}]", i, FormatDims(c.Shape(i)), extent));
  }
}

// Normalizes the last dim of `x`; the mean (where there is one) and the reciprocal deviation keep
// it with extent 1.
struct Normalized {
  ValueId y, mean, deviation;
};
Normalized LayerNorm(NodeContext& c, ValueId x, ValueId scale, ValueId bias) {
  const Dims dims = c.b().type(x).dims;
  const int64_t axis = static_cast<int64_t>(dims.size()) - 1;
  const double epsilon = c.Float("epsilon", 1e-12F);
  Dims kept = dims;
  kept.back() = 1;
  if (!bias.valid()) bias = c.b().Splat(c.b().type(x).dtype, {dims.back()}, 0);
  const auto y = c.Add("layer_norm", {x, scale, bias}, {{"axis", axis}, {"epsilon", epsilon}});
  return {y[0], c.Reshape(y[1], kept), c.Reshape(y[2], kept)};
}
Normalized RmsNorm(NodeContext& c, ValueId x, ValueId scale) {
  const Dims dims = c.b().type(x).dims;
  const int64_t axis = static_cast<int64_t>(dims.size()) - 1;
  Dims kept = dims;
  kept.back() = 1;
  const auto y =
      c.Add("rms_norm", {x, scale}, {{"axis", axis}, {"epsilon", c.Float("epsilon", 1e-12F)}});
  return {y[0], {}, c.Reshape(y[1], kept)};
}

// input + skip (+ bias), the skip broadcast over the batch where it has none.
ValueId SkipSum(NodeContext& c, int bias) {
  if (c.Type(0).rank() < 2) Fail("the input must have rank 2 or more");
  ValueId sum = Sum(c, c.In(0), c.BroadcastTo(c.In(1), c.Shape(0)));
  if (c.Has(bias)) sum = Sum(c, sum, c.BroadcastTo(c.In(bias), c.Shape(0)));
  return sum;
}

void SkipLayerNormalization(NodeContext& c) {
  const int64_t hidden = c.Shape(0).empty() ? 0 : c.Shape(0).back();
  for (int i : {2, 3, 4}) ExpectVector(c, i, hidden);
  const ValueId sum = SkipSum(c, 4);
  const Normalized n = LayerNorm(c, sum, c.In(2), c.Has(3) ? c.In(3) : ValueId());
  c.Out(0, n.y);
  c.Out(1, n.mean);
  c.Out(2, n.deviation);
  c.Out(3, sum);
}

void SkipSimplifiedLayerNormalization(NodeContext& c) {
  const int64_t hidden = c.Shape(0).empty() ? 0 : c.Shape(0).back();
  for (int i : {2, 3}) ExpectVector(c, i, hidden);
  if (c.HasOutput(1)) Unsupported("the mean output, which this normalization does not have");
  const ValueId sum = SkipSum(c, 3);
  const Normalized n = RmsNorm(c, sum, c.In(2));
  c.Out(0, n.y);
  c.Out(2, n.deviation);
  c.Out(3, sum);
}

// Operands: input_ids, segment_ids, word, position and segment embedding, gamma, beta, mask,
// position_ids.
void EmbedLayerNormalization(NodeContext& c) {
  if (c.Type(0).rank() != 2) Fail("input_ids must have rank 2");
  const int64_t batch = c.Shape(0)[0];
  const int64_t length = c.Shape(0)[1];
  if (c.Type(2).rank() != 2) Fail("the word embedding must have rank 2");
  const int64_t hidden = c.Shape(2)[1];
  for (int i : {3, 4}) {
    if (c.Has(i) && (c.Type(i).rank() != 2 || c.Shape(i)[1] != hidden)) {
      Fail(fmt::format("embedding {} has shape {}", i, FormatDims(c.Shape(i))));
    }
  }
  ExpectVector(c, 5, hidden);
  ExpectVector(c, 6, hidden);
  const Dims dims = {batch, length, hidden};
  const auto look = [&](int table, ValueId rows) {
    return c.Add1("gather", {c.In(table), rows}, {{"axis", int64_t{0}}});
  };
  ValueId sum = look(2, c.In(0));
  ValueId position;
  if (c.Has(8)) {
    position = look(3, c.In(8));
  } else {
    if (c.Shape(3)[0] < length) {
      Fail(fmt::format("{} position embeddings for {} tokens", c.Shape(3)[0], length));
    }
    position =
        c.Add1("slice", {c.In(3)},
               {{"starts", Dims{0, 0}}, {"limits", Dims{length, hidden}}, {"strides", Dims{1, 1}}});
  }
  sum = Sum(c, sum, c.BroadcastTo(position, dims));
  if (c.Has(1)) sum = Sum(c, sum, look(4, c.In(1)));
  c.Out(0, LayerNorm(c, sum, c.In(5), c.In(6)).y);
  if (c.HasOutput(1)) {  // tokens that the mask keeps, none without a mask
    if (c.Has(7)) {
      const DType dtype = c.Type(7).dtype;
      const ValueId kept = c.MapInputs({7}, [&](ExprBuilder& e, Args a) {
        return e.Cast(DType::kI32, e.Binary(ScalarOp::kEq, a[0], e.ConstantInt(dtype, 1)));
      });
      c.Out(1, c.b().Reduce("sum", kept, {1}));
    } else {
      c.Out(1, c.b().Splat(DType::kI32, {batch}, 0));
    }
  }
  c.Out(2, sum);
}

int GeluOf(ExprBuilder& e, DType t, int x) {
  const int scaled = e.Binary(ScalarOp::kMul, x, e.Constant(t, 1 / std::numbers::sqrt2));
  const int gate = e.Binary(ScalarOp::kAdd, e.Constant(t, 1), e.Unary(ScalarOp::kErf, scaled));
  return e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kMul, e.Constant(t, 0.5), x), gate);
}

// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
int FastGeluOf(ExprBuilder& e, DType t, int x) {
  const auto number = [&](double v) { return e.Constant(t, v); };
  const int square = e.Binary(ScalarOp::kMul, x, x);
  const int inner = e.Binary(
      ScalarOp::kMul, x,
      e.Binary(ScalarOp::kAdd, number(1), e.Binary(ScalarOp::kMul, number(0.044715), square)));
  const int bent = e.Unary(
      ScalarOp::kTanh, e.Binary(ScalarOp::kMul, number(std::sqrt(2 / std::numbers::pi)), inner));
  return e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kMul, number(0.5), x),
                  e.Binary(ScalarOp::kAdd, number(1), bent));
}

void Gelu(NodeContext& c) {
  const DType t = c.Type(0).dtype;
  c.Out(0, c.MapInputs({0}, [&](ExprBuilder& e, Args a) { return GeluOf(e, t, a[0]); }));
}

void BiasGelu(NodeContext& c) {
  const DType t = c.Type(0).dtype;
  ExpectVector(c, 1, c.Shape(0).empty() ? 0 : c.Shape(0).back());
  c.Out(0, c.MapInputs({0, 1}, [&](ExprBuilder& e, Args a) {
    return GeluOf(e, t, e.Binary(ScalarOp::kAdd, a[0], a[1]));
  }));
}

void FastGelu(NodeContext& c) {
  const DType t = c.Type(0).dtype;
  const bool bias = c.Has(1);
  if (bias) ExpectVector(c, 1, c.Shape(0).empty() ? 0 : c.Shape(0).back());
  c.Out(0, c.MapInputs(
               bias ? std::vector<int>{0, 1} : std::vector<int>{0}, [&](ExprBuilder& e, Args a) {
                 return FastGeluOf(e, t, bias ? e.Binary(ScalarOp::kAdd, a[0], a[1]) : a[0]);
               }));
}

void QuickGelu(NodeContext& c) {
  const DType t = c.Type(0).dtype;
  const double alpha = c.Float("alpha", 1.702F);
  c.Out(0, c.MapInputs({0}, [&](ExprBuilder& e, Args a) {
    const int scaled = e.Binary(ScalarOp::kMul, a[0], e.Constant(t, alpha));
    return e.Binary(ScalarOp::kMul, a[0], e.Unary(ScalarOp::kSigmoid, scaled));
  }));
}

// alpha * A' B', where a transposed batch moves the first dim behind the other batch dims.
void FusedMatMul(NodeContext& c) {
  const auto prepared = [&](int i, const char* trans, const char* trans_batch) {
    const int rank = c.Type(i).rank();
    if (rank < 2) Fail(fmt::format("operand {} must have rank 2 or more", i));
    Dims perm(static_cast<size_t>(rank));
    std::iota(perm.begin(), perm.end(), 0);
    if (c.Int(trans_batch, 0) != 0 && rank > 2) {
      std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
    }
    if (c.Int(trans, 0) != 0) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return c.b().Transpose(c.In(i), perm);
  };
  ValueId a = prepared(0, "transA", "transBatchA");
  ValueId b = prepared(1, "transB", "transBatchB");
  const Dims da = c.b().type(a).dims;
  const Dims db = c.b().type(b).dims;
  if (da.back() != db[db.size() - 2]) {
    Fail(fmt::format("cannot multiply {} by {}", FormatDims(da), FormatDims(db)));
  }
  const Dims batch =
      OrFail(ir::BroadcastDims(Dims(da.begin(), da.end() - 2), Dims(db.begin(), db.end() - 2)));
  if (batch.size() > 20) Unsupported("more than 20 batch dims");
  std::string letters;
  for (size_t i = 0; i < batch.size(); ++i) letters += static_cast<char>('a' + i);
  const auto full = [&](ValueId v) {
    Dims dims = batch;
    const Dims own = c.b().type(v).dims;
    dims.insert(dims.end(), own.end() - 2, own.end());
    return c.BroadcastTo(v, dims);
  };
  // A matrix without batch needs no copy per sample.
  std::string lb = letters + "yz";
  if (db.size() == 2) {
    lb = "yz";
  } else {
    b = full(b);
  }
  a = full(a);
  ValueId y = c.b().Dot(letters + "xy," + lb + "->" + letters + "xz", a, b);
  const double alpha = c.Float("alpha", 1);
  if (alpha != 1) y = c.b().BinaryConstant(ScalarOp::kMul, y, alpha);
  c.Out(0, y);
}

}  // namespace

void RegisterContribNormImporters(ImportTable& t) {
  const auto add = [&](std::string_view op, void (*import)(NodeContext&), std::string_view doc,
                       std::vector<int> weights = {}) {
    t.Add({op, 1, 1, import, doc, {}, std::move(weights), {}, kDomain});
  };
  add("SkipLayerNormalization", SkipLayerNormalization, "maps and layer_norm", {2, 3, 4});
  add("SkipSimplifiedLayerNormalization", SkipSimplifiedLayerNormalization, "maps and rms_norm",
      {2, 3});
  add("EmbedLayerNormalization", EmbedLayerNormalization, "gathers, maps and layer_norm",
      {2, 3, 4, 5, 6});
  add("Gelu", Gelu, "map");
  add("BiasGelu", BiasGelu, "map", {1});
  add("FastGelu", FastGelu, "map", {1});
  add("QuickGelu", QuickGelu, "map");
  add("FusedMatMul", FusedMatMul, "dot", {0, 1});
}

}  // namespace hyper::onnx_frontend
