// Window attributes shared by convolutions and pools.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {

// One entry per spatial dim.
struct Window {
  ir::Dims kernel, strides, pads_low, pads_high, dilations;
  int64_t effective(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

// Attributes of `c` for `spatial` dims with the kernel given; pads are not resolved for auto_pad.
Window ReadWindow(NodeContext& c, ir::Dims kernel);
// Resolves auto_pad for a window that slides over `extents`.
void ResolveAutoPad(NodeContext& c, std::span<const int64_t> extents, Window* window);

// The window of a convolution of operand `x` with the weights of operand `w`, auto_pad resolved.
Window ConvWindow(NodeContext& c, int x, int w);
// Attributes of the core op conv.
ir::Attributes ConvAttributes(const Window& w, int64_t groups);
// y[N, C, ...] + bias[C] where the node has that operand.
ir::ValueId AddBias(NodeContext& c, ir::ValueId y, int operand);

}  // namespace hyper::onnx_frontend
