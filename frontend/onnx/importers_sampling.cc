// Ops that read images at computed coordinates: coordinates by map, elements by gather.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/sampling.h"
#include "frontend/onnx/window.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

Dims Spatial(const Dims& dims) { return Dims(dims.begin() + 2, dims.end()); }

// [N, G * C, spatial...] as rows [N * G * S, C]: the grids of N * G images one after another.
ValueId Rows(NodeContext& c, ValueId x, int64_t groups) {
  const Dims dims = c.b().type(x).dims;
  const int64_t spatial = ir::ElementCount(std::span(dims).subspan(2));
  const int64_t channels = dims[1] / groups;
  const ValueId split = c.Reshape(x, {dims[0], groups, channels, spatial});
  return c.Reshape(c.b().Transpose(split, {0, 1, 3, 2}), {dims[0] * groups * spatial, channels});
}

void RequireExtents(const Dims& extents) {
  for (int64_t d : extents) {
    if (d == 0) Fail("cannot sample an empty dim");
  }
}

void GridSample(NodeContext& c) {
  const Dims x = c.Shape(0);
  const Dims grid = c.Shape(1);
  if (x.size() < 3 || grid.size() != x.size() || grid[0] != x[0] ||
      grid.back() != static_cast<int64_t>(x.size()) - 2) {
    Fail(fmt::format("grid {} does not fit the input {}", FormatDims(grid), FormatDims(x)));
  }
  SampleSpec spec;
  const std::string mode = c.String("mode", c.since() < 20 ? "bilinear" : "linear");
  if (mode == "nearest") {
    spec.mode = SampleMode::kNearest;
  } else if (mode == "cubic" || mode == "bicubic") {
    spec.mode = SampleMode::kCubic;
  } else if (mode != "linear" && mode != "bilinear") {
    Fail(fmt::format("mode '{}'; linear, nearest or cubic is expected", mode));
  }
  const std::string padding = c.String("padding_mode", "zeros");
  if (padding == "border") {
    spec.padding = SamplePadding::kBorder;
  } else if (padding == "reflection") {
    spec.padding = SamplePadding::kReflection;
  } else if (padding != "zeros") {
    Fail(fmt::format("padding_mode '{}'; zeros, border or reflection is expected", padding));
  }
  spec.align_corners = c.Int("align_corners", 0) != 0;
  const Dims extents = Spatial(x);
  RequireExtents(extents);
  const int rank = static_cast<int>(extents.size());
  const int64_t points = ir::ElementCount(std::span(grid).subspan(1, extents.size()));
  const int64_t all = x[0] * points;
  const ValueId flat = c.Reshape(c.In(1), {all, rank});
  const DType real = SampleType(c.Type(1).dtype);
  std::vector<ValueId> coordinates;
  for (int d = 0; d < rank; ++d) {
    // The last entry of the grid belongs to the last dim reversed: x, y, z.
    const int at = rank - 1 - d;
    const double length = static_cast<double>(extents[static_cast<size_t>(d)]);
    const ValueId column = c.Reshape(SliceDim(c, flat, 1, at, at + 1), {all});
    coordinates.push_back(c.MapValues({column}, [&](ExprBuilder& e, Args a) {
      const int from_zero = e.Binary(ScalarOp::kAdd, e.Cast(real, a[0]), e.Constant(real, 1));
      const int half = e.Constant(real, 0.5);
      if (spec.align_corners) {
        return e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kMul, from_zero, half),
                        e.Constant(real, length - 1));
      }
      const int scaled = e.Binary(ScalarOp::kMul, from_zero, e.Constant(real, length));
      return e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kSub, scaled, e.Constant(real, 1)), half);
    }));
  }
  const int64_t size = ir::ElementCount(extents);
  const ValueId base =
      c.MapValues({c.Reshape(Iota(c, {x[0], points}, 0), {all})}, [&](ExprBuilder& e, Args a) {
        return e.Binary(ScalarOp::kMul, a[0], e.ConstantInt(DType::kI64, size));
      });
  ValueId image = c.In(0);
  const DType dtype = c.Type(0).dtype;
  if (!ir::IsFloat(dtype)) image = c.b().Cast(DType::kF64, image);
  const ValueId terms = SampleTerms(c, Rows(c, image, 1), base, coordinates, extents, spec, {});
  ValueId y = c.b().Cast(dtype, c.b().Reduce("sum", terms, {0}));
  y = c.b().Transpose(c.Reshape(y, {x[0], points, x[1]}), {0, 2, 1});
  Dims out = {x[0], x[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  c.Out(0, c.Reshape(y, out));
}

// What differs between the two dims of a region.
struct RegionAxis {
  int column = 0;  // of its start; the end is two further
  int64_t extent = 0;
  int64_t bins = 0;
  std::vector<double> samples;  // per bin: of all regions, or one number per region
};

// Coordinates and weights of the samples, dims {samples y, samples x, regions, bins y, bins x}.
struct RegionSamples {
  ValueId coordinate, weight;
};

RegionSamples SampleRegion(NodeContext& c, const RegionAxis& axis, const Dims& dims, int which,
                           double scale, bool half_pixel) {
  const DType real = SampleType(c.Type(1).dtype);
  auto column = [&](int i) {
    const ValueId v = c.Reshape(SliceDim(c, c.In(1), 1, i, i + 1), {dims[2]});
    return c.b().Broadcast(c.b().Cast(real, v), dims, {2});
  };
  const bool uniform = axis.samples.size() == 1;
  const ValueId counts = c.b().Constant(
      HostTensor::FromVector(DType::kF64, uniform ? Dims{1} : Dims{dims[2]}, axis.samples));
  const ValueId samples = c.b().Broadcast(counts, dims, {2});
  const std::vector<ValueId> operands = {column(axis.column), column(axis.column + 2), samples,
                                         Iota(c, dims, which), Iota(c, dims, 3 + which)};
  auto build = [&](bool weight) {
    return c.MapValues(operands, [&](ExprBuilder& e, Args a) {
      auto number = [&](double v) { return e.Constant(real, v); };
      auto end = [&](int v) {
        return e.Binary(ScalarOp::kSub, e.Binary(ScalarOp::kMul, v, number(scale)),
                        number(half_pixel ? 0.5 : 0));
      };
      const int start = end(a[0]);
      int size = e.Binary(ScalarOp::kSub, end(a[1]), start);
      if (!half_pixel) size = e.Binary(ScalarOp::kMax, size, number(1));
      const int bin = e.Binary(ScalarOp::kDiv, size, number(static_cast<double>(axis.bins)));
      // Samples beyond the number of a region repeat its last one and have no weight.
      const int count = e.Cast(real, a[2]);
      const int i = e.Cast(real, a[3]);
      const int used = e.Binary(ScalarOp::kLt, i, count);
      const int one = number(1);
      const int nearest =
          e.Binary(ScalarOp::kMax,
                   e.Binary(ScalarOp::kMin, i, e.Binary(ScalarOp::kSub, count, one)), number(0));
      const int whole = e.Binary(ScalarOp::kMul, e.Cast(real, a[4]), bin);
      const int part =
          e.Binary(ScalarOp::kDiv,
                   e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kAdd, nearest, number(0.5)), bin),
                   e.Binary(ScalarOp::kMax, count, one));
      const int y = e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kAdd, start, whole), part);
      const double extent = static_cast<double>(axis.extent);
      if (!weight) {
        return e.Binary(ScalarOp::kMax, e.Binary(ScalarOp::kMin, y, number(extent - 1)), number(0));
      }
      const int outside = e.Binary(ScalarOp::kOr, e.Binary(ScalarOp::kLt, y, number(-1)),
                                   e.Binary(ScalarOp::kGt, y, number(extent)));
      const bool average = c.String("mode", "avg") == "avg";
      const int share =
          average
              ? e.Select(used, e.Binary(ScalarOp::kDiv, one, e.Binary(ScalarOp::kMax, count, one)),
                         number(0))
              : e.Select(e.Binary(ScalarOp::kGt, count, number(0)), one, number(0));
      return e.Select(outside, number(0), share);
    });
  };
  return {build(false), build(true)};
}

// Samples per bin along one axis, from the attribute or from regions known now.
void CountSamples(NodeContext& c, RegionAxis* axis, double scale, bool half_pixel) {
  const int64_t regions = c.Shape(1)[0];
  const int64_t ratio = c.Int("sampling_ratio", 0);
  if (ratio < 0 || ratio > 1024) Fail(fmt::format("sampling_ratio {}", ratio));
  axis->samples = {static_cast<double>(ratio)};
  if (ratio > 0) return;
  const HostTensor* known = c.Known(1);
  if (known == nullptr) {
    Refuse(Refusal::kDataShapes,
           "the number of samples depends on data (sampling_ratio is 0); give it, or make the "
           "regions known",
           c.Operand(1).value);
  }
  axis->samples.assign(static_cast<size_t>(regions), 0);
  for (int64_t r = 0; r < regions; ++r) {
    const double size = scale * (known->ElementAsDouble(4 * r + axis->column + 2) -
                                 known->ElementAsDouble(4 * r + axis->column));
    const double count =
        std::ceil((half_pixel ? size : std::max(size, 1.0)) / static_cast<double>(axis->bins));
    if (!(count <= 1024)) Fail("a region is too large");
    axis->samples[static_cast<size_t>(r)] = std::max(count, 0.0);
  }
}

int64_t Most(const std::vector<double>& samples) {
  return samples.empty()
             ? 1
             : std::max<int64_t>(
                   1, static_cast<int64_t>(*std::max_element(samples.begin(), samples.end())));
}

void RoiAlign(NodeContext& c) {
  const Dims x = c.Shape(0);
  const Dims rois = c.Shape(1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || c.Shape(2) != Dims{rois[0]}) {
    Fail(fmt::format("input {}, regions {} and batch indices {} do not fit", FormatDims(x),
                     FormatDims(rois), FormatDims(c.Shape(2))));
  }
  RequireExtents(Spatial(x));
  const std::string mode = c.String("mode", "avg");
  if (mode != "avg" && mode != "max") Fail(fmt::format("mode '{}'; avg or max is expected", mode));
  const bool half_pixel =
      c.since() >= 16 && c.String("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  const double scale = c.Float("spatial_scale", 1);
  RegionAxis vertical{1, x[2], c.Int("output_height", 1), {}};
  RegionAxis horizontal{0, x[3], c.Int("output_width", 1), {}};
  for (RegionAxis* axis : {&vertical, &horizontal}) {
    if (axis->bins < 1) Fail("output_height and output_width must be positive");
    CountSamples(c, axis, scale, half_pixel);
  }
  const Dims dims = {Most(vertical.samples), Most(horizontal.samples), rois[0], vertical.bins,
                     horizontal.bins};
  CheckDims(dims);
  const int64_t points = ir::ElementCount(dims);
  const RegionSamples ys = SampleRegion(c, vertical, dims, 0, scale, half_pixel);
  const RegionSamples xs = SampleRegion(c, horizontal, dims, 1, scale, half_pixel);
  const ValueId weight = c.b().Binary(ScalarOp::kMul, ys.weight, xs.weight);
  const int64_t size = x[2] * x[3];
  const ValueId base = c.b().BinaryConstant(
      ScalarOp::kMul, c.b().Broadcast(c.b().Cast(DType::kI64, c.In(2)), dims, {2}),
      static_cast<double>(size));
  SampleSpec spec;
  spec.padding = SamplePadding::kBorder;
  spec.align_corners = true;
  auto flat = [&](ValueId v) { return c.Reshape(v, {points}); };
  const ValueId terms =
      SampleTerms(c, Rows(c, c.In(0), 1), flat(base), {flat(ys.coordinate), flat(xs.coordinate)},
                  {x[2], x[3]}, spec, flat(weight));
  const int64_t bins = rois[0] * vertical.bins * horizontal.bins;
  const ValueId each = c.Reshape(terms, {4 * dims[0] * dims[1], bins, x[1]});
  ValueId y = c.b().Reduce(mode == "avg" ? "sum" : "max", each, {0});
  y = c.b().Cast(c.Type(0).dtype, c.Reshape(y, {rois[0], vertical.bins, horizontal.bins, x[1]}));
  c.Out(0, c.b().Transpose(y, {0, 3, 1, 2}));
}

// Which elements of one dim lie in which bin of which region: bool [regions, bins, extent].
ValueId BinMask(NodeContext& c, int column, int64_t bins, int64_t extent, double scale) {
  const DType real = SampleType(c.Type(1).dtype);
  const Dims dims = {c.Shape(1)[0], bins, extent};
  CheckDims(dims);
  auto end = [&](int i) {
    const ValueId v = c.Reshape(SliceDim(c, c.In(1), 1, i, i + 1), {dims[0]});
    return c.b().Broadcast(c.b().Cast(real, v), dims, {0});
  };
  return c.MapValues(
      {end(column), end(column + 2), Iota(c, dims, 1), Iota(c, dims, 2)},
      [&](ExprBuilder& e, Args a) {
        auto number = [&](double v) { return e.Constant(real, v); };
        auto binary = [&](ScalarOp op, int x, int y) { return e.Binary(op, x, y); };
        auto rounded = [&](int v) {
          const int scaled = binary(ScalarOp::kMul, v, number(scale));
          return e.Unary(ScalarOp::kFloor, binary(ScalarOp::kAdd, scaled, number(0.5)));
        };
        const int start = rounded(a[0]);
        const int size =
            binary(ScalarOp::kMax,
                   binary(ScalarOp::kAdd, binary(ScalarOp::kSub, rounded(a[1]), start), number(1)),
                   number(1));
        const int bin = e.Cast(real, a[2]);
        auto edge = [&](ScalarOp round, int number_of_bin) {
          const int at = binary(ScalarOp::kDiv, binary(ScalarOp::kMul, number_of_bin, size),
                                number(static_cast<double>(bins)));
          return binary(ScalarOp::kAdd, e.Unary(round, at), start);
        };
        const int at = e.Cast(real, a[3]);
        const int low = edge(ScalarOp::kFloor, bin);
        const int high = edge(ScalarOp::kCeil, binary(ScalarOp::kAdd, bin, number(1)));
        return binary(ScalarOp::kAnd, binary(ScalarOp::kGe, at, low),
                      binary(ScalarOp::kLt, at, high));
      });
}

// Bins are the same columns for all rows of a region, so the maximum is taken dim by dim.
void MaxRoiPool(NodeContext& c) {
  const Dims x = c.Shape(0);
  const Dims rois = c.Shape(1);
  const Dims pooled = c.IntList("pooled_shape", {});
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 5 || pooled.size() != 2 || pooled[0] < 1 ||
      pooled[1] < 1) {
    Fail(fmt::format("input {}, regions {} and pooled_shape {} do not fit", FormatDims(x),
                     FormatDims(rois), FormatDims(pooled)));
  }
  RequireExtents(Spatial(x));
  const DType dtype = c.Type(0).dtype;
  const double scale = c.Float("spatial_scale", 1);
  const ValueId batch =
      c.b().Cast(DType::kI64, c.Reshape(SliceDim(c, c.In(1), 1, 0, 1), {rois[0]}));
  ValueId y = c.Add1("gather", {c.In(0), batch}, {{"axis", int64_t{0}}});
  // dims: regions, channels, rows, columns -> rows and columns of bins.
  for (int d : {0, 1}) {
    const Dims now = c.b().type(y).dims;
    const size_t at = static_cast<size_t>(d) + 2;
    const int64_t bins = pooled[static_cast<size_t>(d)];
    Dims wide = now;
    wide.insert(wide.begin() + 2 + d, bins);
    CheckDims(wide);
    Dims value_dims;
    for (int64_t i = 0; i < 5; ++i) {
      if (i != 2 + d) value_dims.push_back(i);
    }
    const ValueId mask =
        c.b().Broadcast(BinMask(c, d == 0 ? 2 : 1, bins, now[at], scale), wide, {0, 2 + d, 3 + d});
    const ValueId inside = c.MapValues(
        {c.b().Broadcast(y, wide, value_dims), mask},
        [&](ExprBuilder& e, Args a) { return e.Select(a[1], a[0], e.Constant(dtype, -INFINITY)); });
    y = c.b().Reduce("max", inside, {3 + d});
  }
  // Bins outside the image are empty.
  c.Out(0, c.MapValues({y}, [&](ExprBuilder& e, Args a) {
    const int empty = e.Binary(ScalarOp::kEq, a[0], e.Constant(dtype, -INFINITY));
    return e.Select(empty, e.Constant(dtype, 0), a[0]);
  }));
}

// The taps of every output position are read where the offsets move them; then the convolution is
// one product.
void DeformConv(NodeContext& c) {
  const Dims x = c.Shape(0);
  const Dims weight = c.Shape(1);
  const Window w = ConvWindow(c, 0, 1);
  const size_t n = w.kernel.size();
  const int64_t groups = c.Int("group", 1);
  const int64_t sets = c.Int("offset_group", 1);
  if (groups < 1 || sets < 1 || x[1] % groups != 0 || x[1] % sets != 0 ||
      weight[1] != x[1] / groups || weight[0] % groups != 0) {
    Fail(fmt::format("input {}, weights {}, group {} and offset_group {} do not fit", FormatDims(x),
                     FormatDims(weight), groups, sets));
  }
  const Dims extents = Spatial(x);
  RequireExtents(extents);
  Dims out;
  for (size_t d = 0; d < n; ++d) {
    const int64_t span = extents[d] + w.pads_low[d] + w.pads_high[d] - w.effective(d);
    if (span < 0) Fail("the kernel is larger than the padded input");
    out.push_back(span / w.strides[d] + 1);
  }
  const int64_t taps = ir::ElementCount(w.kernel);
  const int64_t positions = ir::ElementCount(out);
  const int64_t rank = static_cast<int64_t>(n);
  const Dims moved = {x[0], sets, taps, rank, positions};
  CheckDims(moved);
  const DType real = SampleType(c.Type(2).dtype);
  const ValueId offsets = c.b().Cast(real, c.Reshape(c.In(2), moved));
  const Dims dims = {x[0], sets, taps, positions};
  const int64_t points = ir::ElementCount(dims);
  const Dims tap_strides = ir::RowMajorStrides(w.kernel);
  const Dims out_strides = ir::RowMajorStrides(out);
  std::vector<ValueId> coordinates;
  const ValueId tap = Iota(c, dims, 2);
  const ValueId position = Iota(c, dims, 3);
  for (size_t d = 0; d < n; ++d) {
    const int64_t at = static_cast<int64_t>(d);
    const ValueId offset = c.Reshape(SliceDim(c, offsets, 3, at, at + 1), dims);
    const ValueId moved_to = c.MapValues({tap, position, offset}, [&](ExprBuilder& e, Args a) {
      auto number = [&](int64_t v) { return e.ConstantInt(DType::kI64, v); };
      auto digit = [&](int v, int64_t stride, int64_t extent, int64_t step) {
        const int high = e.Binary(ScalarOp::kDiv, v, number(stride));
        return e.Binary(ScalarOp::kMul, e.Binary(ScalarOp::kMod, high, number(extent)),
                        number(step));
      };
      const int start = digit(a[1], out_strides[d], out[d], w.strides[d]);
      const int inner = digit(a[0], tap_strides[d], w.kernel[d], w.dilations[d]);
      const int whole =
          e.Binary(ScalarOp::kSub, e.Binary(ScalarOp::kAdd, start, inner), number(w.pads_low[d]));
      return e.Binary(ScalarOp::kAdd, e.Cast(real, whole), a[2]);
    });
    coordinates.push_back(c.Reshape(moved_to, {points}));
  }
  const ValueId base = c.b().BinaryConstant(
      ScalarOp::kMul, c.Reshape(Iota(c, {x[0] * sets, taps * positions}, 0), {points}),
      static_cast<double>(ir::ElementCount(extents)));
  ValueId mask;
  if (c.Has(4)) mask = c.b().Cast(real, c.Reshape(c.In(4), {points}));
  const ValueId terms =
      SampleTerms(c, Rows(c, c.In(0), sets), base, coordinates, extents, {}, mask);
  const ValueId columns = c.Reshape(c.b().Cast(c.Type(0).dtype, c.b().Reduce("sum", terms, {0})),
                                    {x[0], sets, taps, positions, x[1] / sets});
  const ValueId by_channel = c.Reshape(c.b().Transpose(columns, {0, 1, 4, 2, 3}),
                                       {x[0], groups, x[1] / groups * taps, positions});
  const ValueId kernel = c.Reshape(c.In(1), {groups, weight[0] / groups, weight[1] * taps});
  Dims result = {x[0], weight[0]};
  result.insert(result.end(), out.begin(), out.end());
  const ValueId y = c.Reshape(
      c.Add1("dot", {by_channel, kernel}, {{"spec", std::string("ngkp,gok->ngop")}}), result);
  c.Out(0, AddBias(c, y, 3));
}

}  // namespace

void RegisterSamplingImporters(ImportTable& t) {
  t.Add({"GridSample", 16, 22, GridSample, "maps for the coordinates, gather, map and reduce"});
  t.Add({"RoiAlign", 10, 22, RoiAlign,
         "maps for the coordinates, gather, map and reduce; sampling_ratio 0 needs known regions"});
  t.Add({"MaxRoiPool", 1, 22, MaxRoiPool, "gather, map and reduce max per dim"});
  t.Add({"DeformConv", 19, 22, DeformConv, "as GridSample, then dot", {}, {1, 3}});
}

}  // namespace hyper::onnx_frontend
