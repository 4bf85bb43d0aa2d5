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

void MaxPool(NodeContext& c) {
  if (c.HasOutput(1)) Unsupported("the Indices output");
  Window w = PoolWindow(c);
  const Dims excess = CeilExcess(c, w);
  for (size_t i = 0; i < excess.size(); ++i) w.pads_high[i] += excess[i];
  c.Out(0, c.Add("max_pool", {c.In(0)},
                 {{"kernel", w.kernel},
                  {"strides", w.strides},
                  {"pads_low", w.pads_low},
                  {"pads_high", w.pads_high},
                  {"dilations", w.dilations}})[0]);
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
  t.Add({"MaxPool", 1, 22, MaxPool, "max_pool; the Indices output is refused"});
  t.Add({"AveragePool", 7, 22, AveragePool, "avg_pool"});
  t.Add({"GlobalAveragePool", 1, 22, GlobalAveragePool, "reduce sum and map"});
  t.Add({"GlobalMaxPool", 1, 22, GlobalMaxPool, "reduce max"});
  t.Add({"LpPool", 1, 22, LpPool, "map, avg_pool and map"});
  t.Add({"GlobalLpPool", 2, 22, GlobalLpPool, "map, reduce sum and map"});
}

}  // namespace hyper::onnx_frontend
