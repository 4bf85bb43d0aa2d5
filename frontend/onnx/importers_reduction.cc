// Reductions, sums along an axis, positions of extremes.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/lp_norm.h"

namespace hyper::onnx_frontend {
namespace {

struct Reduced {
  Dims axes;
  Dims kept;          // result with the reduced dims as 1
  int64_t count = 1;  // elements per result
  bool identity = false;
};

Reduced ReadAxes(NodeContext& c) {
  const int rank = c.Type(0).rank();
  Reduced r;
  r.kept = c.Shape(0);
  std::optional<std::vector<int64_t>> axes = c.Axes(1);
  if (!axes.has_value() || axes->empty()) {
    r.identity = c.Int("noop_with_empty_axes", 0) != 0;
    axes = std::vector<int64_t>(static_cast<size_t>(rank));
    std::iota(axes->begin(), axes->end(), 0);
  }
  for (int axis : NormalAxes(*axes, rank)) {
    r.axes.push_back(axis);
    r.count *= r.kept[static_cast<size_t>(axis)];
    r.kept[static_cast<size_t>(axis)] = 1;
  }
  if (r.identity) r = {{}, c.Shape(0), 1, true};
  return r;
}

ValueId Finish(NodeContext& c, ValueId y, const Reduced& r) {
  return c.Int("keepdims", 1) != 0 ? c.Reshape(y, r.kept) : y;
}

template <ScalarOp before>
ValueId Before(NodeContext& c) {
  return c.MapInputs({0}, [](ExprBuilder& e, Args x) {
    return before == ScalarOp::kMul ? e.Binary(before, x[0], x[0]) : e.Unary(before, x[0]);
  });
}

void Sum(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  c.Out(0, Finish(c, c.b().Reduce("sum", c.In(0), r.axes), r));
}
void Mean(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  const ValueId sum = c.b().Reduce("sum", c.In(0), r.axes);
  const DType dtype = c.Type(0).dtype;
  const ValueId mean = c.MapValues({sum}, [&](ExprBuilder& e, Args x) {
    return e.Binary(ScalarOp::kDiv, x[0],
                    ir::IsFloat(dtype) ? e.Constant(dtype, static_cast<double>(r.count))
                                       : e.ConstantInt(dtype, r.count));
  });
  c.Out(0, Finish(c, mean, r));
}
void Extreme(NodeContext& c, std::string kind) {
  const Reduced r = ReadAxes(c);
  if (c.Type(0).dtype == DType::kBool) kind = kind == "max" ? "or" : "and";
  c.Out(0, Finish(c, c.b().Reduce(kind, c.In(0), r.axes), r));
}
void Max(NodeContext& c) { Extreme(c, "max"); }
void Min(NodeContext& c) { Extreme(c, "min"); }
void Prod(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  c.Out(0, Finish(c, c.b().Reduce("prod", c.In(0), r.axes), r));
}
void L1(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  c.Out(0, Finish(c, c.b().Reduce("sum", Before<ScalarOp::kAbs>(c), r.axes), r));
}
ValueId SquareRoot(NodeContext& c, ValueId x) {
  const DType dtype = c.b().type(x).dtype;
  if (ir::IsFloat(dtype)) return c.b().Unary(ScalarOp::kSqrt, x);
  return c.b().Cast(dtype, c.b().Unary(ScalarOp::kSqrt, c.b().Cast(DType::kF64, x)));
}
void L2(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  const ValueId sum = c.b().Reduce("sum", Before<ScalarOp::kMul>(c), r.axes);
  // 0 with gradient 0 where the norm is 0: the root's slope there would make training stop.
  const bool floats = ir::IsFloat(c.b().type(sum).dtype);
  c.Out(0, Finish(c, floats ? LpRoot(c, sum, 2) : SquareRoot(c, sum), r));
}
void SumSquare(NodeContext& c) {
  const Reduced r = ReadAxes(c);
  c.Out(0, Finish(c, c.b().Reduce("sum", Before<ScalarOp::kMul>(c), r.axes), r));
}
void RequireFloat(NodeContext& c) {
  if (!ir::IsFloat(c.Type(0).dtype)) Unsupported("integer operands");
}
void LogSum(NodeContext& c) {
  RequireFloat(c);
  const Reduced r = ReadAxes(c);
  c.Out(0, Finish(c, c.b().Unary(ScalarOp::kLog, c.b().Reduce("sum", c.In(0), r.axes)), r));
}
// log(sum(exp(x - m))) + m with m the (finite) maximum.
void LogSumExp(NodeContext& c) {
  RequireFloat(c);
  const Reduced r = ReadAxes(c);
  const DType dtype = c.Type(0).dtype;
  const ValueId x = c.In(0);
  const ValueId max = c.MapValues({c.b().Reduce("max", x, r.axes)}, [&](ExprBuilder& e, Args a) {
    return e.Select(e.Unary(ScalarOp::kIsInf, a[0]), e.Constant(dtype, 0), a[0]);
  });
  const ValueId wide = c.BroadcastTo(c.Reshape(max, r.kept), c.Shape(0));
  const ValueId exp = c.MapValues({x, wide}, [](ExprBuilder& e, Args a) {
    return e.Unary(ScalarOp::kExp, e.Binary(ScalarOp::kSub, a[0], a[1]));
  });
  const ValueId y =
      c.MapValues({c.b().Reduce("sum", exp, r.axes), max}, [](ExprBuilder& e, Args a) {
        return e.Binary(ScalarOp::kAdd, e.Unary(ScalarOp::kLog, a[0]), a[1]);
      });
  c.Out(0, Finish(c, y, r));
}

void Arg(NodeContext& c, const std::string& kind) {
  const int axis = NormalAxis(c.Int("axis", 0), c.Type(0).rank());
  const bool last = c.Int("select_last_index", 0) != 0;
  ValueId y =
      c.Add1("arg_reduce", {c.In(0)}, {{"kind", kind}, {"axis", int64_t{axis}}, {"last", last}});
  if (c.Int("keepdims", 1) != 0) {
    Dims kept = c.Shape(0);
    kept[static_cast<size_t>(axis)] = 1;
    y = c.Reshape(y, kept);
  }
  c.Out(0, y);
}
void ArgMax(NodeContext& c) { Arg(c, "max"); }
void ArgMin(NodeContext& c) { Arg(c, "min"); }

void Cumulative(NodeContext& c, std::string_view op) {
  const std::vector<int64_t> axis = c.Ints(1, "the axis");
  if (axis.size() != 1) Fail("one axis is expected");
  c.Out(0, c.Add1(op, {c.In(0)},
                  {{"axis", int64_t{NormalAxis(axis[0], c.Type(0).rank())}},
                   {"exclusive", c.Int("exclusive", 0) != 0},
                   {"reverse", c.Int("reverse", 0) != 0}}));
}
void CumSum(NodeContext& c) { Cumulative(c, "cumsum"); }
void CumProd(NodeContext& c) { Cumulative(c, "cumprod"); }

void TopK(NodeContext& c) {
  int64_t k = c.Int("k", 0);
  if (c.since() >= 10) {
    const std::vector<int64_t> ks = c.Ints(1, "k");
    if (ks.size() != 1) Fail("k must be one value");
    k = ks[0];
  }
  const int axis = NormalAxis(c.Int("axis", -1), c.Type(0).rank());
  const int64_t extent = c.Shape(0)[static_cast<size_t>(axis)];
  if (k < 0 || k > extent) Fail(fmt::format("k is {}; 0 to {} is possible", k, extent));
  const auto y = c.Add("top_k", {c.In(0)},
                       {{"k", k}, {"axis", int64_t{axis}}, {"largest", c.Int("largest", 1) != 0}});
  c.Out(0, y[0]);
  c.Out(1, y[1]);
}

constexpr std::string_view kIndex = "its result is an index";

}  // namespace

void RegisterReductionImporters(ImportTable& t) {
  t.Add({"ReduceSum", 1, 13, Sum, "reduce", {1}});
  t.Add({"ReduceMean", 1, 18, Mean, "reduce and map", {1}});
  t.Add({"ReduceMax", 1, 20, Max, "reduce", {1}});
  t.Add({"ReduceMin", 1, 20, Min, "reduce", {1}});
  t.Add({"ReduceProd", 1, 18, Prod, "reduce", {1}});
  t.Add({"ReduceL1", 1, 18, L1, "map and reduce", {1}});
  t.Add({"ReduceL2", 1, 18, L2, "map and reduce", {1}});
  t.Add({"ReduceSumSquare", 1, 18, SumSquare, "map and reduce", {1}});
  t.Add({"ReduceLogSum", 1, 18, LogSum, "reduce and map", {1}});
  t.Add({"ReduceLogSumExp", 1, 18, LogSumExp, "reduce and map around the maximum", {1}});
  t.Add({"ArgMax", 1, 13, ArgMax, "arg_reduce", {}, {}, kIndex});
  t.Add({"ArgMin", 1, 13, ArgMin, "arg_reduce", {}, {}, kIndex});
  t.Add({"CumSum", 11, 14, CumSum, "cumsum", {1}});
  t.Add({"CumProd", 26, 26, CumProd, "cumprod", {1}});
  t.Add({"TopK", 1, 24, TopK, "top_k", {1}});
}

}  // namespace hyper::onnx_frontend
