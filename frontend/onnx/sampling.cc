#include "frontend/onnx/sampling.h"

#include <algorithm>

namespace hyper::onnx_frontend {
namespace {

// One dim of an interpolation under construction.
class AxisExpr {
 public:
  AxisExpr(ExprBuilder& e, DType dtype, int64_t extent, const SampleSpec& spec)
      : e_(e), t_(dtype), extent_(extent), spec_(spec) {}

  // Index (i64, inside the dim) and weight of tap `tap` at coordinate x.
  std::pair<int, int> Tap(int x, int tap) {
    x = Inside(spec_.mode == SampleMode::kNearest ? e_.Unary(ScalarOp::kRound, x) : x);
    const int floor = spec_.mode == SampleMode::kNearest ? x : e_.Unary(ScalarOp::kFloor, x);
    const int offset = spec_.mode == SampleMode::kCubic ? tap - 1 : tap;
    int weight = Number(1);
    const int t = Sub(x, floor);
    if (spec_.mode == SampleMode::kLinear) weight = tap == 0 ? Sub(Number(1), t) : t;
    if (spec_.mode == SampleMode::kCubic) weight = Cubic(t, tap);
    // Far coordinates must not leave the integers; all taps there are outside anyway.
    const int near = e_.Binary(
        ScalarOp::kMax, e_.Binary(ScalarOp::kMin, floor, Number(static_cast<double>(extent_) + 4)),
        Number(-4));
    int i = e_.Binary(ScalarOp::kAdd, e_.Cast(DType::kI64, near), Int(offset));
    if (spec_.padding == SamplePadding::kZeros) {
      const int inside = e_.Binary(ScalarOp::kAnd, e_.Binary(ScalarOp::kGe, i, Int(0)),
                                   e_.Binary(ScalarOp::kLt, i, Int(extent_)));
      weight = e_.Select(inside, weight, Number(0));
    }
    if (spec_.padding == SamplePadding::kReflection) i = Reflect(i);
    i = e_.Binary(ScalarOp::kMax, e_.Binary(ScalarOp::kMin, i, Int(extent_ - 1)), Int(0));
    return {i, weight};
  }

 private:
  int Number(double v) { return e_.Constant(t_, v); }
  int Int(int64_t v) { return e_.ConstantInt(DType::kI64, v); }
  int Add(int a, int b) { return e_.Binary(ScalarOp::kAdd, a, b); }
  int Sub(int a, int b) { return e_.Binary(ScalarOp::kSub, a, b); }
  int Mul(int a, int b) { return e_.Binary(ScalarOp::kMul, a, b); }

  // The coordinate brought back between the borders.
  int Inside(int x) {
    if (spec_.padding == SamplePadding::kZeros) return x;
    const double low = spec_.align_corners ? 0 : -0.5;
    const double last = static_cast<double>(extent_ - 1);
    const double high = last - low;
    const int outside = e_.Binary(ScalarOp::kOr, e_.Binary(ScalarOp::kLt, x, Number(low)),
                                  e_.Binary(ScalarOp::kGt, x, Number(high)));
    int moved = 0;
    if (spec_.padding == SamplePadding::kBorder) {
      moved = e_.Binary(ScalarOp::kMax, e_.Binary(ScalarOp::kMin, x, Number(last)), Number(0));
    } else if (high == low) {
      moved = Number(0);
    } else {
      const int u = e_.Binary(ScalarOp::kMod, Sub(x, Number(low)), Number(2 * (high - low)));
      const int back = e_.Binary(ScalarOp::kGt, u, Number(high - low));
      moved = Add(e_.Select(back, Sub(Number(2 * (high - low)), u), u), Number(low));
    }
    return e_.Select(outside, moved, x);
  }

  int Reflect(int i) {
    if (extent_ == 1) return Int(0);
    const int64_t period = spec_.align_corners ? 2 * (extent_ - 1) : 2 * extent_;
    const int m = e_.Binary(ScalarOp::kMod, i, Int(period));
    const int mirrored = Sub(Int(spec_.align_corners ? period : period - 1), m);
    return e_.Select(e_.Binary(ScalarOp::kGe, m, Int(extent_)), mirrored, m);
  }

  // Keys, Cubic convolution interpolation (1981), A = -0.75.
  int Cubic(int t, int tap) {
    const double a = -0.75;
    const int distance = tap == 0   ? Add(t, Number(1))
                         : tap == 1 ? t
                         : tap == 2 ? Sub(Number(1), t)
                                    : Sub(Number(2), t);
    const int square = Mul(distance, distance);
    if (tap == 1 || tap == 2) {
      return Add(Mul(Sub(Mul(Number(a + 2), distance), Number(a + 3)), square), Number(1));
    }
    const int inner =
        Add(Mul(Sub(Mul(Number(a), distance), Number(5 * a)), distance), Number(8 * a));
    return Sub(Mul(inner, distance), Number(4 * a));
  }

  ExprBuilder& e_;
  DType t_;
  int64_t extent_;
  const SampleSpec& spec_;
};

}  // namespace

DType SampleType(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

ValueId Iota(NodeContext& c, Dims dims, int axis) {
  CheckDims(dims);
  return c.Add1("iota", {},
                {{"shape", std::move(dims)}, {"axis", int64_t{axis}}, {"dtype", DType::kI64}});
}

ValueId SliceDim(NodeContext& c, ValueId x, int dim, int64_t start, int64_t limit) {
  Dims limits = c.b().type(x).dims;
  Dims starts(limits.size(), 0);
  starts[static_cast<size_t>(dim)] = start;
  limits[static_cast<size_t>(dim)] = limit;
  return c.Add1("slice", {x},
                {{"starts", starts}, {"limits", limits}, {"strides", Dims(limits.size(), 1)}});
}

ValueId SampleTerms(NodeContext& c, ValueId rows, ValueId base,
                    const std::vector<ValueId>& coordinates, const Dims& extents,
                    const SampleSpec& spec, ValueId factor) {
  const int rank = static_cast<int>(extents.size());
  const int taps = spec.mode == SampleMode::kNearest ? 1 : spec.mode == SampleMode::kLinear ? 2 : 4;
  int count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= taps;
    if (count > 4096) Unsupported("interpolation over that many dims");
  }
  const DType real = c.b().type(coordinates[0]).dtype;
  const int64_t points = c.b().type(base).elements();
  const int64_t channels = c.b().type(rows).dims[1];
  const Dims strides = ir::RowMajorStrides(extents);
  std::vector<ValueId> operands = coordinates;
  operands.push_back(base);
  if (factor.valid()) operands.push_back(factor);
  std::vector<ValueId> indices;
  std::vector<ValueId> weights;
  for (int k = 0; k < count; ++k) {
    // The two results of every tap share their inner parts; each is one map.
    auto build = [&](bool want_index) {
      return c.MapValues(operands, [&](ExprBuilder& e, Args a) {
        int index = a[static_cast<size_t>(rank)];
        int weight = factor.valid() ? a[static_cast<size_t>(rank) + 1] : e.Constant(real, 1);
        int rest = k;
        for (int d = rank; d-- > 0; rest /= taps) {
          const size_t at = static_cast<size_t>(d);
          AxisExpr axis(e, real, extents[at], spec);
          const auto [i, w] = axis.Tap(a[at], rest % taps);
          const int step = e.Binary(ScalarOp::kMul, i, e.ConstantInt(DType::kI64, strides[at]));
          index = e.Binary(ScalarOp::kAdd, index, step);
          weight = e.Binary(ScalarOp::kMul, weight, w);
        }
        return want_index ? index : weight;
      });
    };
    indices.push_back(c.Reshape(build(true), {1, points}));
    weights.push_back(c.Reshape(build(false), {1, points}));
  }
  const ValueId index = c.Add1("concat", indices, {{"axis", int64_t{0}}});
  const ValueId weight = c.Add1("concat", weights, {{"axis", int64_t{0}}});
  const ValueId elements = c.Add1("gather", {rows, index}, {{"axis", int64_t{0}}});
  const Dims dims = {count, points, channels};
  CheckDims(dims);
  const DType wide = c.b().type(rows).dtype == DType::kF64 ? DType::kF64 : real;
  return c.MapValues({elements, c.b().Broadcast(weight, dims, {0, 1})},
                     [&](ExprBuilder& e, Args a) {
                       return e.Binary(ScalarOp::kMul, e.Cast(wide, a[0]), e.Cast(wide, a[1]));
                     });
}

}  // namespace hyper::onnx_frontend
