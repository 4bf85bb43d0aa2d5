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
  if (const Dims& bias = c.Shape(operand); bias != Dims{dims[1]}) {
    // What PyTorch's newer exporter writes where a Conv3d has no bias, unless it optimises.
    const bool missing = dims.size() == 5 && bias == Dims{dims[1], 2};
    Fail(fmt::format("bias has shape {}, expected [{}]{}", FormatDims(bias), dims[1],
                     missing ? "; torch.onnx.export(.., optimize=False) writes such a bias for a "
                               "Conv3d without one, with optimize=True it leaves it out"
                             : ""));
  }
  const ValueId bias = c.b().Broadcast(c.In(operand), dims, {1});
  return c.b().Binary(ScalarOp::kAdd, y, bias);
}

namespace {

Window WindowOf(NodeContext& c, int x_operand, int w_operand) {
  const Dims& x = c.Shape(x_operand);
  const Dims& w = c.Shape(w_operand);
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

}  // namespace

Window ConvWindow(NodeContext& c, int x, int w) {
  Window window = WindowOf(c, x, w);
  ResolveAutoPad(c, std::span(c.Shape(x)).subspan(2), &window);
  return window;
}

namespace {

void Conv(NodeContext& c) {
  const Window w = ConvWindow(c, 0, 1);
  const ValueId y = c.Add1("conv", {c.In(0), c.In(1)}, ConvAttributes(w, c.Int("group", 1)));
  c.Out(0, AddBias(c, y, 2));
}

// The transposed convolution is the input gradient of the convolution with the same weight.
void ConvTranspose(NodeContext& c) {
  Window w = WindowOf(c, 0, 1);
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
  // Which side gets the smaller half where output_shape decides: version 1 says it the other way
  // round than later ones.
  const bool upper = mode == "SAME_UPPER";
  const bool less_before = c.since() < 11 && !shape.empty() ? !upper : upper;
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
    w.pads_low[i] = less_before ? small : total - small;
    w.pads_high[i] = total - w.pads_low[i];
    out.push_back(want);
  }
  CheckDims(out);
  ir::Attributes attributes = ConvAttributes(w, groups);
  attributes.Set("input_shape", out);
  c.Out(0, AddBias(c, c.Add1("conv_grad_input", {c.In(0), c.In(1)}, attributes), 2));
}

// Every tap of the blocks is an image with gaps of the stride, moved to its place; their sum is the
// result. Linear in the input, so its gradient reads the taps back.
void Col2Im(NodeContext& c) {
  const Dims image = c.Ints(1, "the image shape");
  const Dims block = c.Ints(2, "the block shape");
  const Dims x = c.Shape(0);
  const size_t n = image.size();
  if (n == 0 || block.size() != n || x.size() != 3) {
    Fail(fmt::format("input {}, image {} and block {} do not fit", FormatDims(x), FormatDims(image),
                     FormatDims(block)));
  }
  const Window w = ReadWindow(c, block);
  CheckDims(image);
  CheckDims(block);
  const int64_t taps = ir::ElementCount(block);
  if (taps > 4096) Fail(fmt::format("blocks of {} elements; at most 4096 are supported", taps));
  Dims lifted = {x[0], x[1] / taps, taps};
  for (size_t i = 0; i < n; ++i) {
    const int64_t span = image[i] + w.pads_low[i] + w.pads_high[i] - w.effective(i);
    lifted.push_back(span < 0 ? 0 : span / w.strides[i] + 1);
  }
  if (x[1] % taps != 0 || ir::ElementCount(std::span(lifted).subspan(3)) != x[2]) {
    Fail(fmt::format("input {} does not hold blocks {} of an image {}", FormatDims(x),
                     FormatDims(block), FormatDims(image)));
  }
  const ValueId columns = c.Reshape(c.In(0), lifted);
  Dims out = {lifted[0], lifted[1]};
  out.insert(out.end(), image.begin(), image.end());
  ValueId sum;
  for (int64_t tap = 0; tap < taps; ++tap) {
    Dims starts(lifted.size(), 0);
    Dims limits = lifted;
    starts[2] = tap;
    limits[2] = tap + 1;
    Dims dims = lifted;
    dims.erase(dims.begin() + 2);
    const ValueId part = c.Reshape(
        c.Add1("slice", {columns},
               {{"starts", starts}, {"limits", limits}, {"strides", Dims(lifted.size(), 1)}}),
        dims);
    Dims low(dims.size(), 0);
    Dims high(dims.size(), 0);
    Dims interior(dims.size(), 0);
    int64_t rest = tap;
    for (size_t i = n; i-- > 0;) {
      low[i + 2] = rest % block[i] * w.dilations[i] - w.pads_low[i];
      interior[i + 2] = w.strides[i] - 1;
      const int64_t covered = (dims[i + 2] - 1) * w.strides[i] + 1;
      high[i + 2] = image[i] - low[i + 2] - covered;
      rest /= block[i];
    }
    const ValueId placed = c.Add1("pad", {part},
                                  {{"low", low},
                                   {"high", high},
                                   {"interior", interior},
                                   {"value", 0.0},
                                   {"mode", std::string("constant")}});
    sum = tap == 0 ? placed : c.b().Binary(ScalarOp::kAdd, sum, placed);
  }
  c.Out(0, sum);
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
  t.Add({"Col2Im", 18, 18, Col2Im, "slice and pad per tap of the block, summed", {1, 2}});
}

}  // namespace hyper::onnx_frontend
