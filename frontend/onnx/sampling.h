// Reading a grid of rows at real coordinates, from core ops: what GridSample, RoiAlign and
// DeformConv share.
// Thread safety: as NodeContext.
#pragma once

#include <optional>
#include <vector>

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {

enum class SampleMode { kNearest, kLinear, kCubic };
enum class SamplePadding { kZeros, kBorder, kReflection };

struct SampleSpec {
  SampleMode mode = SampleMode::kLinear;
  SamplePadding padding = SamplePadding::kZeros;
  bool align_corners = false;  // where reflection turns: at the outer elements, or half beyond
};

// Terms of the interpolation at M points: [K, M, C], K = taps^dims, each the product of an element
// and its weight, in f32 or f64. `rows`: [R, C], the grids one after another, row-major; `base`
// (i64 [M]): first row of the grid that a point lies in; coordinates[d]: f32 or f64 [M], in
// elements along dim d of extents[d]; `factor`: a weight [M] of every point, or invalid. Gradients
// reach rows, coordinates and factor. NaN coordinates give NaN.
ir::ValueId SampleTerms(NodeContext& c, ir::ValueId rows, ir::ValueId base,
                        const std::vector<ir::ValueId>& coordinates, const Dims& extents,
                        const SampleSpec& spec, ir::ValueId factor);

// f64 for f64, else f32.
DType SampleType(DType dtype);
// iota of i64 along `axis` of `dims`.
ir::ValueId Iota(NodeContext& c, Dims dims, int axis);
ir::ValueId SliceDim(NodeContext& c, ir::ValueId x, int dim, int64_t start, int64_t limit);

}  // namespace hyper::onnx_frontend
