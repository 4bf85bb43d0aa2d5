// Formulas of normalization, softmax and loss ops as map, reduce and broadcast nodes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lower/decompose.h"

namespace hyper::lower {
namespace {

using ir::Builder;
using ir::Dims;
using ir::ScalarOp;
using ir::ValueId;

Dims Range(int64_t from, int64_t to) {
  Dims d(static_cast<size_t>(std::max<int64_t>(to - from, 0)));
  std::iota(d.begin(), d.end(), from);
  return d;
}

int64_t Extent(const Dims& dims, const Dims& axes) {
  int64_t n = 1;
  for (int64_t a : axes) n *= dims[static_cast<size_t>(a)];
  return n;
}

struct Math {
  Builder& b;
  ValueId Add(ValueId x, ValueId y) { return b.Binary(ScalarOp::kAdd, x, y); }
  ValueId Sub(ValueId x, ValueId y) { return b.Binary(ScalarOp::kSub, x, y); }
  ValueId Mul(ValueId x, ValueId y) { return b.Binary(ScalarOp::kMul, x, y); }
  ValueId Scale(ValueId x, double c) { return b.BinaryConstant(ScalarOp::kMul, x, c); }
  ValueId Over(ValueId x, double c) { return b.BinaryConstant(ScalarOp::kDiv, x, c); }
  ValueId Sum(ValueId x, const Dims& axes) { return b.Reduce("sum", x, axes); }
  // 1 / sqrt(v + epsilon)
  ValueId InverseRoot(ValueId v, double epsilon) {
    return b.Unary(ScalarOp::kRsqrt, b.BinaryConstant(ScalarOp::kAdd, v, epsilon));
  }
};

// Spreads a value over `dims` of x's shape.
ValueId Spread(Builder& b, ValueId v, const Dims& shape, const Dims& dims) {
  return b.Broadcast(v, shape, dims);
}

void BatchNorm(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
               std::vector<ValueId>* out) {
  Math m{b};
  const Dims shape = b.type(in[0]).dims;
  const Dims channel = {1};
  Dims axes = Range(0, static_cast<int64_t>(shape.size()));
  axes.erase(axes.begin() + 1);
  const auto count = static_cast<double>(Extent(shape, axes));
  const ValueId mean = m.Over(m.Sum(in[0], axes), count);
  // One node per use: what two kernels need is computed in both, not stored.
  const auto centered = [&] { return m.Sub(in[0], Spread(b, mean, shape, channel)); };
  const ValueId deviation = centered();
  const ValueId var = m.Over(m.Sum(m.Mul(deviation, deviation), axes), count);
  const ValueId rstd = m.InverseRoot(var, node.attributes.Float("epsilon"));
  const ValueId normal = m.Mul(centered(), Spread(b, rstd, shape, channel));
  const ValueId y =
      m.Add(m.Mul(normal, Spread(b, in[1], shape, channel)), Spread(b, in[2], shape, channel));
  *out = {y, mean, var};
}

void BatchNormGrad(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
                   std::vector<ValueId>* out) {
  Math m{b};
  const ValueId g = in[0], x = in[1];
  const Dims shape = b.type(x).dims;
  const Dims channel = {1};
  Dims axes = Range(0, static_cast<int64_t>(shape.size()));
  axes.erase(axes.begin() + 1);
  const auto count = static_cast<double>(Extent(shape, axes));
  const ValueId rstd = m.InverseRoot(in[4], node.attributes.Float("epsilon"));
  const auto normal = [&] {
    return m.Mul(m.Sub(x, Spread(b, in[3], shape, channel)), Spread(b, rstd, shape, channel));
  };
  const ValueId dbias = m.Sum(g, axes);
  const ValueId dscale = m.Sum(m.Mul(g, normal()), axes);
  const ValueId factor = m.Mul(in[2], rstd);
  const ValueId c1 = m.Over(dbias, count), c2 = m.Over(dscale, count);
  const ValueId inside = m.Sub(m.Sub(g, Spread(b, c1, shape, channel)),
                               m.Mul(normal(), Spread(b, c2, shape, channel)));
  *out = {m.Mul(inside, Spread(b, factor, shape, channel)), dscale, dbias};
}

// Shared by layer and rms norm: everything over dims [axis, rank).
struct RowNorm {
  Dims shape, rows, inner;  // rows: leading dims
  double count = 1;
  RowNorm(const Builder& b, ValueId x, int64_t axis) : shape(b.type(x).dims) {
    const auto rank = static_cast<int64_t>(shape.size());
    rows = Range(0, axis);
    inner = Range(axis, rank);
    count = static_cast<double>(Extent(shape, inner));
  }
};

void LayerNorm(Builder& b, const ir::Node& node, const std::vector<ValueId>& in, bool centered,
               std::vector<ValueId>* out) {
  Math m{b};
  const RowNorm n(b, in[0], node.attributes.Int("axis"));
  ValueId x = in[0], mean;
  if (centered) {
    mean = m.Over(m.Sum(x, n.inner), n.count);
    x = m.Sub(x, Spread(b, mean, n.shape, n.rows));
  }
  const ValueId var = m.Over(m.Sum(m.Mul(x, x), n.inner), n.count);
  const ValueId rstd = m.InverseRoot(var, node.attributes.Float("epsilon"));
  ValueId y = m.Mul(m.Mul(x, Spread(b, rstd, n.shape, n.rows)), Spread(b, in[1], n.shape, n.inner));
  if (!centered) {
    *out = {y, rstd};
    return;
  }
  y = m.Add(y, Spread(b, in[2], n.shape, n.inner));
  *out = {y, mean, rstd};
}

void LayerNormGrad(Builder& b, const ir::Node& node, const std::vector<ValueId>& in, bool centered,
                   std::vector<ValueId>* out) {
  Math m{b};
  const RowNorm n(b, in[1], node.attributes.Int("axis"));
  const ValueId g = in[0];
  const ValueId rstd = Spread(b, in[centered ? 4 : 3], n.shape, n.rows);
  ValueId x = in[1];
  if (centered) x = m.Sub(x, Spread(b, in[3], n.shape, n.rows));
  const ValueId normal = m.Mul(x, rstd);
  const ValueId scaled = m.Mul(g, Spread(b, in[2], n.shape, n.inner));
  const ValueId along = m.Over(m.Sum(m.Mul(scaled, normal), n.inner), n.count);
  ValueId inside = scaled;
  if (centered) {
    const ValueId mean = m.Over(m.Sum(scaled, n.inner), n.count);
    inside = m.Sub(inside, Spread(b, mean, n.shape, n.rows));
  }
  inside = m.Sub(inside, m.Mul(normal, Spread(b, along, n.shape, n.rows)));
  const ValueId dscale = m.Sum(m.Mul(g, normal), n.rows);
  *out = {m.Mul(inside, rstd), dscale};
  if (centered) out->push_back(m.Sum(g, n.rows));
}

}  // namespace

bool DecomposeNormalization(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
                            std::vector<ValueId>* out) {
  const std::string_view op = node.op->name;
  if (op == "batch_norm")
    BatchNorm(b, node, in, out);
  else if (op == "batch_norm_grad")
    BatchNormGrad(b, node, in, out);
  else if (op == "layer_norm")
    LayerNorm(b, node, in, true, out);
  else if (op == "rms_norm")
    LayerNorm(b, node, in, false, out);
  else if (op == "layer_norm_grad")
    LayerNormGrad(b, node, in, true, out);
  else if (op == "rms_norm_grad")
    LayerNormGrad(b, node, in, false, out);
  else
    return false;
  return true;
}

namespace {

void CrossEntropy(Builder& b, const ir::Node& node, const std::vector<ValueId>& in, bool gradient,
                  std::vector<ValueId>* out) {
  Math m{b};
  const ValueId logits = in[gradient ? 1 : 0], labels = in[gradient ? 2 : 1];
  const ir::TensorType type = b.type(logits);
  const ir::DType dtype = type.dtype;
  const Dims rows = {0};
  const int64_t classes = type.dims[1];
  const bool has_ignore = node.attributes.Bool("has_ignore");
  const double ignore = static_cast<double>(node.attributes.Int("ignore_index"));
  const ValueId column =
      b.Add1("iota", {}, {{"shape", type.dims}, {"axis", int64_t{1}}, {"dtype", ir::DType::kI32}});
  // 32-bit class numbers keep the vector loop as wide as f32; out-of-range labels are told apart
  // on the original.
  const ValueId narrow = b.Cast(ir::DType::kI32, labels);
  const ValueId hit = b.Binary(ScalarOp::kEq, column, Spread(b, narrow, type.dims, rows));
  if (gradient) {
    const ValueId p = b.Unary(ScalarOp::kExp, m.Sub(logits, Spread(b, in[3], type.dims, rows)));
    const ValueId one = b.Splat(dtype, type.dims, 1), zero = b.Splat(dtype, type.dims, 0);
    const ValueId d = m.Mul(m.Sub(p, b.Select(hit, one, zero)), Spread(b, in[0], type.dims, rows));
    if (!has_ignore) {
      out->push_back(d);
      return;
    }
    const ValueId ignored = b.BinaryConstant(ScalarOp::kEq, labels, ignore);
    out->push_back(b.Select(Spread(b, ignored, type.dims, rows), zero, d));
    return;
  }
  const ValueId top = b.Reduce("max", logits, {1});
  const ValueId e = b.Unary(ScalarOp::kExp, m.Sub(logits, Spread(b, top, type.dims, rows)));
  const ValueId lse = m.Add(b.Unary(ScalarOp::kLog, m.Sum(e, {1})), top);
  const ValueId picked = m.Sum(b.Select(hit, logits, b.Splat(dtype, type.dims, 0)), {1});
  const Dims row_dims = b.type(lse).dims;
  const ValueId low = b.BinaryConstant(ScalarOp::kLt, labels, 0);
  const ValueId high = b.BinaryConstant(ScalarOp::kGe, labels, static_cast<double>(classes));
  ValueId loss = b.Select(b.Binary(ScalarOp::kOr, low, high),
                          b.Splat(dtype, row_dims, std::nan("")), m.Sub(lse, picked));
  if (has_ignore) {
    const ValueId ignored = b.BinaryConstant(ScalarOp::kEq, labels, ignore);
    loss = b.Select(ignored, b.Splat(dtype, row_dims, 0), loss);
  }
  *out = {loss, lse};
}

}  // namespace

bool DecomposeSoftmax(Builder& b, const ir::Node& node, const std::vector<ValueId>& in,
                      std::vector<ValueId>* out) {
  const std::string_view op = node.op->name;
  if (op == "cross_entropy" || op == "cross_entropy_grad") {
    CrossEntropy(b, node, in, op == "cross_entropy_grad", out);
    return true;
  }
  if (op != "softmax" && op != "log_softmax" && op != "softmax_grad" && op != "log_softmax_grad") {
    return false;
  }
  Math m{b};
  const Dims shape = b.type(in[0]).dims;
  const int64_t axis = node.attributes.Int("axis");
  Dims others = Range(0, static_cast<int64_t>(shape.size()));
  others.erase(others.begin() + axis);
  const auto spread = [&](ValueId v) { return Spread(b, v, shape, others); };
  if (op == "softmax_grad") {
    const ValueId s = m.Sum(m.Mul(in[0], in[1]), {axis});
    out->push_back(m.Mul(m.Sub(in[0], spread(s)), in[1]));
  } else if (op == "log_softmax_grad") {
    const ValueId s = m.Sum(in[0], {axis});
    out->push_back(m.Sub(in[0], m.Mul(b.Unary(ScalarOp::kExp, in[1]), spread(s))));
  } else {
    const ValueId centered = m.Sub(in[0], spread(b.Reduce("max", in[0], {axis})));
    const ValueId e = b.Unary(ScalarOp::kExp, centered);
    const ValueId s = m.Sum(e, {axis});
    if (op == "softmax") {
      out->push_back(m.Mul(e, spread(b.Unary(ScalarOp::kReciprocal, s))));
    } else {
      out->push_back(m.Sub(centered, spread(b.Unary(ScalarOp::kLog, s))));
    }
  }
  return true;
}

}  // namespace hyper::lower
