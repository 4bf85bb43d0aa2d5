// Pooling.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/lp_norm.h"
#include "frontend/onnx/window.h"

namespace hyper::onnx_frontend {
namespace {

// Padding behind the input that makes the last windows of ceil_mode fit, beyond pads_high.
Dims CeilExcess(NodeContext& c, const Window& w) {
  const Dims& x = c.Shape(0);
  Dims excess(w.kernel.size(), 0);
  if (c.Int("ceil_mode", 0) == 0) return excess;
  for (size_t i = 0; i < excess.size(); ++i) {
    const int64_t padded = x[i + 2] + w.pads_low[i] + w.pads_high[i];
    const int64_t span = padded - w.effective(i);
    if (span < 0) continue;
    int64_t out = (span + w.strides[i] - 1) / w.strides[i] + 1;
    // A window must start inside the input or the padding before it.
    if ((out - 1) * w.strides[i] >= x[i + 2] + w.pads_low[i]) --out;
    excess[i] = std::max<int64_t>(0, (out - 1) * w.strides[i] + w.effective(i) - padded);
  }
  return excess;
}

Window PoolWindow(NodeContext& c) {
  const Dims kernel = c.IntList("kernel_shape", {});
  if (c.Type(0).rank() < 3 || kernel.size() + 2 != c.Shape(0).size()) {
    Fail(fmt::format("kernel_shape {} does not fit the input {}", FormatDims(kernel),
                     FormatDims(c.Shape(0))));
  }
  Window w = ReadWindow(c, kernel);
  ResolveAutoPad(c, std::span(c.Shape(0)).subspan(2), &w);
  return w;
}

// Numbers of the largest elements in the whole input, from the tap numbers of their windows.
// Spatial dims count row by row, or the first one fastest (`column_major`); N and C row by row
// always.
ValueId InputNumbers(NodeContext& c, const Window& w, ValueId taps, bool column_major) {
  const Dims out = c.b().type(taps).dims;
  const Dims& x = c.Shape(0);
  const size_t spatial = w.kernel.size();
  std::vector<ValueId> operands = {c.b().Cast(DType::kI64, taps)};
  for (size_t d = 0; d < out.size(); ++d) {
    operands.push_back(c.Add1(
        "iota", {}, {{"shape", out}, {"axis", static_cast<int64_t>(d)}, {"dtype", DType::kI64}}));
  }
  return c.MapValues(operands, [&](ExprBuilder& e, Args a) {
    const auto constant = [&](int64_t v) { return e.ConstantInt(DType::kI64, v); };
    const auto times = [&](int v, int64_t by) { return e.Binary(ScalarOp::kMul, v, constant(by)); };
    const auto plus = [&](int v, int u) { return e.Binary(ScalarOp::kAdd, v, u); };
    const int64_t channel = ir::ElementCount(std::span(x).subspan(2));
    int number = times(plus(times(a[1], x[1]), a[2]), channel);
    int64_t taps_inside = ir::ElementCount(w.kernel);
    int64_t row = channel;
    int64_t column = 1;
    for (size_t d = 0; d < spatial; ++d) {
      taps_inside /= w.kernel[d];
      row /= std::max<int64_t>(1, x[d + 2]);
      const int tap =
          e.Binary(ScalarOp::kMod, e.Binary(ScalarOp::kDiv, a[0], constant(taps_inside)),
                   constant(w.kernel[d]));
      const int at = plus(plus(times(a[d + 3], w.strides[d]), times(tap, w.dilations[d])),
                          constant(-w.pads_low[d]));
      number = plus(number, times(at, column_major ? column : row));
      column *= x[d + 2];
    }
    return number;
  });
}

void MaxPool(NodeContext& c) {
  Window w = PoolWindow(c);
  const Dims excess = CeilExcess(c, w);
  for (size_t i = 0; i < excess.size(); ++i) w.pads_high[i] += excess[i];
  const std::vector<ValueId> pooled = c.Add("max_pool", {c.In(0)},
                                            {{"kernel", w.kernel},
                                             {"strides", w.strides},
                                             {"pads_low", w.pads_low},
                                             {"pads_high", w.pads_high},
                                             {"dilations", w.dilations}});
  c.Out(0, pooled[0]);
  if (c.HasOutput(1)) c.Out(1, InputNumbers(c, w, pooled[1], c.Int("storage_order", 0) != 0));
}

// Zeros with each element where its number says, in a tensor of the shape that pooling came from; a
// larger output shape adds zeros behind.
void MaxUnpool(NodeContext& c) {
  const Dims& x = c.Shape(0);
  if (c.Shape(1) != x) {
    Fail(fmt::format("the indices are {}, the input is {}", FormatDims(c.Shape(1)), FormatDims(x)));
  }
  if (c.Type(1).dtype != DType::kI64) Fail("the indices must be int64");
  const Dims kernel = c.IntList("kernel_shape", {});
  if (x.size() < 3 || kernel.size() + 2 != x.size()) {
    Fail(fmt::format("kernel_shape {} does not fit the input {}", FormatDims(kernel),
                     FormatDims(x)));
  }
  const Window w = ReadWindow(c, kernel);
  Dims pooled = x;
  for (size_t d = 0; d < kernel.size(); ++d) {
    pooled[d + 2] = (x[d + 2] - 1) * w.strides[d] + kernel[d] - w.pads_low[d] - w.pads_high[d];
  }
  CheckDims(pooled);
  Dims shape = pooled;
  if (c.Has(2)) shape = c.Ints(2, "the output shape");
  if (shape.size() != pooled.size()) {
    Fail(fmt::format("the output shape {} must have {} dims", FormatDims(shape), pooled.size()));
  }
  Dims behind(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    behind[d] = shape[d] - pooled[d];
    if (behind[d] < 0) {
      Fail(
          fmt::format("the output shape is {}; at least {} is expected, which kernel_shape, "
                      "strides and pads give",
                      FormatDims(shape), FormatDims(pooled)));
    }
  }
  CheckDims(shape);
  const int64_t count = ir::ElementCount(x);
  const int64_t elements = ir::ElementCount(pooled);
  const ValueId flat = c.Add1("scatter_elements",
                              {c.b().Splat(c.Type(0).dtype, {elements}, 0),
                               c.Reshape(c.In(1), {count}), c.Reshape(c.In(0), {count})},
                              {{"axis", int64_t{0}}, {"reduction", std::string("none")}});
  ValueId y = c.Reshape(flat, pooled);
  if (shape != pooled) {
    y = c.Add1("pad", {y},
               {{"low", Dims(shape.size(), 0)},
                {"high", behind},
                {"interior", Dims(shape.size(), 0)},
                {"value", 0.0},
                {"mode", std::string("constant")}});
  }
  c.Out(0, y);
}

void AveragePool(NodeContext& c) {
  Window w = PoolWindow(c);
  const Dims excess = CeilExcess(c, w);
  bool include_pad = c.Int("count_include_pad", 0) != 0;
  ValueId x = c.In(0);
  const bool any_excess =
      std::any_of(excess.begin(), excess.end(), [](int64_t e) { return e > 0; });
  if (include_pad && any_excess) {
    // Real padding counts, the excess of ceil_mode does not: make the padding part of the input.
    Dims low = {0, 0};
    Dims high = {0, 0};
    low.insert(low.end(), w.pads_low.begin(), w.pads_low.end());
    high.insert(high.end(), w.pads_high.begin(), w.pads_high.end());
    x = c.Add1("pad", {x},
               {{"low", low},
                {"high", high},
                {"interior", Dims(low.size(), 0)},
                {"value", 0.0},
                {"mode", std::string("constant")}});
    w.pads_low.assign(excess.size(), 0);
    w.pads_high = excess;
    include_pad = false;
  } else {
    for (size_t i = 0; i < excess.size(); ++i) w.pads_high[i] += excess[i];
  }
  c.Out(0, c.Add1("avg_pool", {x},
                  {{"kernel", w.kernel},
                   {"strides", w.strides},
                   {"pads_low", w.pads_low},
                   {"pads_high", w.pads_high},
                   {"dilations", w.dilations},
                   {"count_include_pad", include_pad}}));
}

void GlobalPool(NodeContext& c, const std::string& kind) {
  const Dims& x = c.Shape(0);
  if (x.size() < 2) Fail("the input must have rank 2 or more");
  Dims axes(x.size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  Dims out = {x[0], x[1]};
  int64_t count = 1;
  for (size_t i = 2; i < x.size(); ++i) {
    out.push_back(1);
    count *= x[i];
  }
  ValueId y = c.b().Reduce(kind, c.In(0), axes);
  if (kind == "sum") y = c.b().BinaryConstant(ScalarOp::kDiv, y, static_cast<double>(count));
  c.Out(0, c.Reshape(y, out));
}
void GlobalAveragePool(NodeContext& c) { GlobalPool(c, "sum"); }
void GlobalMaxPool(NodeContext& c) { GlobalPool(c, "max"); }

// (sum |x|^p)^(1/p) over all spatial dims.
void GlobalLpPool(NodeContext& c) {
  const Dims& x = c.Shape(0);
  if (x.size() < 3) Fail("the input must have rank 3 or more");
  const double p = static_cast<double>(c.Int("p", 2));
  Dims axes(x.size() - 2);
  std::iota(axes.begin(), axes.end(), 2);
  Dims out(x.size(), 1);
  out[0] = x[0];
  out[1] = x[1];
  const ValueId sum = c.b().Reduce("sum", LpPowers(c, c.In(0), p), axes);
  c.Out(0, c.Reshape(c.b().Cast(c.Type(0).dtype, LpRoot(c, sum, p)), out));
}

// (sum |x|^p)^(1/p) over windows: the average over all taps, padding included, times their number.
void LpPool(NodeContext& c) {
  const double p = c.since() < 2 ? c.Float("p", 2) : static_cast<double>(c.Int("p", 2));
  Window w = PoolWindow(c);
  const Dims excess = CeilExcess(c, w);
  for (size_t i = 0; i < excess.size(); ++i) w.pads_high[i] += excess[i];
  const ValueId mean = c.Add1("avg_pool", {LpPowers(c, c.In(0), p)},
                              {{"kernel", w.kernel},
                               {"strides", w.strides},
                               {"pads_low", w.pads_low},
                               {"pads_high", w.pads_high},
                               {"dilations", w.dilations},
                               {"count_include_pad", true}});
  const ValueId sum =
      c.b().BinaryConstant(ScalarOp::kMul, mean, static_cast<double>(ir::ElementCount(w.kernel)));
  c.Out(0, c.b().Cast(c.Type(0).dtype, LpRoot(c, sum, p)));
}

}  // namespace

void RegisterPoolingImporters(ImportTable& t) {
  t.Add({"MaxPool", 1, 22, MaxPool, "max_pool; the Indices output by map"});
  t.Add({"MaxUnpool", 9, 22, MaxUnpool, "scatter_elements into zeros, then pad", {2}});
  t.Add({"AveragePool", 7, 22, AveragePool, "avg_pool"});
  t.Add({"GlobalAveragePool", 1, 22, GlobalAveragePool, "reduce sum and map"});
  t.Add({"GlobalMaxPool", 1, 22, GlobalMaxPool, "reduce max"});
  t.Add({"LpPool", 1, 22, LpPool, "map, avg_pool and map"});
  t.Add({"GlobalLpPool", 2, 22, GlobalLpPool, "map, reduce sum and map"});
}

}  // namespace hyper::onnx_frontend
