// Convolutions and their windows.
#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/window.h"

namespace hyper::onnx_frontend {

Window ReadWindow(NodeContext& c, Dims kernel) {
  const size_t n = kernel.size();
  Window w;
  w.strides = c.IntList("strides", Dims(n, 1));
  w.dilations = c.IntList("dilations", Dims(n, 1));
  const Dims pads = c.IntList("pads", Dims(2 * n, 0));
  if (w.strides.size() != n || w.dilations.size() != n || pads.size() != 2 * n) {
    Fail(fmt::format("strides, dilations and pads do not fit {} spatial dims", n));
  }
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (size_t i = 0; i < n; ++i) {
    if (kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1) {
      Fail("kernel, strides and dilations must be positive");
    }
    if (kernel[i] > kLimit || w.strides[i] > kLimit || w.dilations[i] > kLimit ||
        std::max(pads[i], pads[n + i]) > kLimit) {
      Fail("a window attribute is too large");
    }
    if (pads[i] < 0 || pads[n + i] < 0) Unsupported("negative pads");
  }
  w.pads_low.assign(pads.begin(), pads.begin() + static_cast<long>(n));
  w.pads_high.assign(pads.begin() + static_cast<long>(n), pads.end());
  w.kernel = std::move(kernel);
  return w;
}

void ResolveAutoPad(NodeContext& c, std::span<const int64_t> extents, Window* w) {
  const std::string mode = c.String("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty()) return;
  if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER") {
    Fail(
        fmt::format("auto_pad is '{}'; NOTSET, VALID, SAME_UPPER or SAME_LOWER is expected", mode));
  }
  for (size_t i = 0; i < extents.size(); ++i) {
    int64_t total = 0;
    if (mode != "VALID") {
      const int64_t out = (extents[i] + w->strides[i] - 1) / w->strides[i];
      total = std::max<int64_t>(0, (out - 1) * w->strides[i] + w->effective(i) - extents[i]);
    }
    const int64_t small = total / 2;
    w->pads_low[i] = mode == "SAME_LOWER" ? total - small : small;
    w->pads_high[i] = total - w->pads_low[i];
  }
}

namespace {

ir::Attributes ConvAttributes(const Window& w, int64_t groups) {
  return {{"strides", w.strides},
          {"pads_low", w.pads_low},
          {"pads_high", w.pads_high},
          {"dilations", w.dilations},
          {"groups", groups}};
}

ValueId AddBias(NodeContext& c, ValueId y, int operand) {
  if (!c.Has(operand)) return y;
  const Dims dims = c.b().type(y).dims;
  if (c.Shape(operand) != Dims{dims[1]}) {
    Fail(fmt::format("bias has shape {}, expected [{}]", FormatDims(c.Shape(operand)), dims[1]));
  }
  const ValueId bias = c.b().Broadcast(c.In(operand), dims, {1});
  return c.b().Binary(ScalarOp::kAdd, y, bias);
}

Window WindowOf(NodeContext& c) {
  const Dims& x = c.Shape(0);
  const Dims& w = c.Shape(1);
  if (x.size() < 3 || w.size() != x.size()) {
    Fail(fmt::format("input {} and weight {} must have one rank of at least 3", FormatDims(x),
                     FormatDims(w)));
  }
  Dims kernel(w.begin() + 2, w.end());
  const Dims given = c.IntList("kernel_shape", kernel);
  if (given != kernel) {
    Fail(fmt::format("kernel_shape {} does not fit the weight {}", FormatDims(given),
                     FormatDims(w)));
  }
  return ReadWindow(c, std::move(kernel));
}

void Conv(NodeContext& c) {
  Window w = WindowOf(c);
  ResolveAutoPad(c, std::span(c.Shape(0)).subspan(2), &w);
  const ValueId y = c.Add1("conv", {c.In(0), c.In(1)}, ConvAttributes(w, c.Int("group", 1)));
  c.Out(0, AddBias(c, y, 2));
}

// The transposed convolution is the input gradient of the convolution with the same weight.
void ConvTranspose(NodeContext& c) {
  Window w = WindowOf(c);
  const Dims& x = c.Shape(0);
  const Dims& weight = c.Shape(1);
  const size_t n = w.kernel.size();
  const int64_t groups = c.Int("group", 1);
  Dims extra = c.IntList("output_padding", Dims(n, 0));
  Dims shape = c.IntList("output_shape", {});
  if (shape.size() == n + 2) shape.erase(shape.begin(), shape.begin() + 2);
  if (extra.size() != n || (!shape.empty() && shape.size() != n)) {
    Fail("output_padding or output_shape does not fit the spatial dims");
  }
  const std::string mode = c.String("auto_pad", "NOTSET");
  if (groups < 1 || weight[1] > (int64_t{1} << 40) / groups) Fail("group is out of range");
  Dims out = {x[0], weight[1] * groups};
  for (size_t i = 0; i < n; ++i) {
    const int64_t full = w.strides[i] * (x[i + 2] - 1) + extra[i] + w.effective(i);
    const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (shape.empty() && !same) {
      if (mode == "VALID") w.pads_low[i] = w.pads_high[i] = 0;
      out.push_back(full - w.pads_low[i] - w.pads_high[i]);
      continue;
    }
    const int64_t want = shape.empty() ? x[i + 2] * w.strides[i] : shape[i];
    const int64_t total = std::max<int64_t>(0, full - want);
    const int64_t small = total / 2;
    w.pads_low[i] = mode == "SAME_UPPER" ? small : total - small;
    w.pads_high[i] = total - w.pads_low[i];
    out.push_back(want);
  }
  CheckDims(out);
  ir::Attributes attributes = ConvAttributes(w, groups);
  attributes.Set("input_shape", out);
  c.Out(0, AddBias(c, c.Add1("conv_grad_input", {c.In(0), c.In(1)}, attributes), 2));
}

}  // namespace

void RegisterConvolutionImporters(ImportTable& t) {
  t.Add({"Conv", 1, 22, Conv, "conv, then map for the bias", {}, {1, 2}});
  t.Add({"ConvTranspose",
         1,
         22,
         ConvTranspose,
         "conv_grad_input, then map for the bias",
         {},
         {1, 2}});
}

}  // namespace hyper::onnx_frontend
