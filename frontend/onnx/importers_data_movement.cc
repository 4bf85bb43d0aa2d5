// Cutting, joining, repeating and padding.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

void Concat(NodeContext& c) {
  const int axis = NormalAxis(c.Int("axis", 1), c.Type(0).rank());
  std::vector<ValueId> operands;
  operands.reserve(static_cast<size_t>(c.input_count()));
  for (int i = 0; i < c.input_count(); ++i) operands.push_back(c.In(i));
  c.Out(0,
        operands.size() == 1 ? operands[0] : c.Add1("concat", operands, {{"axis", int64_t{axis}}}));
}

ValueId SliceAxis(NodeContext& c, ValueId x, int axis, int64_t start, int64_t limit,
                  int64_t stride = 1) {
  const Dims dims = c.b().type(x).dims;
  if (start == 0 && limit == dims[static_cast<size_t>(axis)] && stride == 1) return x;
  Dims starts(dims.size(), 0);
  Dims limits = dims;
  Dims strides(dims.size(), 1);
  starts[static_cast<size_t>(axis)] = start;
  limits[static_cast<size_t>(axis)] = limit;
  strides[static_cast<size_t>(axis)] = stride;
  return c.Add1("slice", {x}, {{"starts", starts}, {"limits", limits}, {"strides", strides}});
}

void Split(NodeContext& c) {
  const int axis = NormalAxis(c.Int("axis", 0), c.Type(0).rank());
  const int64_t extent = c.Shape(0)[static_cast<size_t>(axis)];
  const int64_t outputs = c.node().output_size();
  std::vector<int64_t> sizes = c.IntList("split", {});
  if (c.since() >= 13 && c.Has(1)) sizes = c.Ints(1, "the split sizes");
  if (sizes.empty()) {
    const int64_t parts = c.since() >= 18 ? c.Int("num_outputs", outputs) : outputs;
    if (parts != outputs)
      Fail(fmt::format("num_outputs is {} but there are {} outputs", parts, outputs));
    if (c.since() < 18 && extent % parts != 0) {
      Fail(fmt::format("extent {} does not divide into {} equal parts", extent, parts));
    }
    const int64_t chunk = (extent + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t size = i + 1 < parts ? chunk : extent - chunk * (parts - 1);
      if (size < 0)
        Fail(fmt::format("extent {} cannot be cut into {} parts of {}", extent, parts, chunk));
      sizes.push_back(size);
    }
  }
  int64_t sum = 0;
  for (int64_t s : sizes) {
    if (s < 0 || s > extent) Fail(fmt::format("a part of {} out of {}", s, extent));
    sum += s;
  }
  if (static_cast<int64_t>(sizes.size()) != outputs || sum != extent) {
    Fail(fmt::format("split {} does not add up to {} in {} outputs", FormatDims(sizes), extent,
                     outputs));
  }
  int64_t start = 0;
  for (int i = 0; i < c.node().output_size(); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    c.Out(i, SliceAxis(c, c.In(0), axis, start, start + size));
    start += size;
  }
}

void Slice(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const int rank = c.Type(0).rank();
  std::vector<int64_t> starts = c.IntList("starts", {});
  std::vector<int64_t> ends = c.IntList("ends", {});
  std::optional<std::vector<int64_t>> axes;
  std::vector<int64_t> steps;
  if (c.since() >= 10) {
    starts = c.Ints(1, "starts");
    ends = c.Ints(2, "ends");
    axes = c.Axes(3);
    if (c.Has(4)) steps = c.Ints(4, "steps");
  } else {
    axes = c.Axes(std::numeric_limits<int>::max());
  }
  if (!axes.has_value()) {
    axes.emplace();
    for (size_t i = 0; i < starts.size(); ++i) axes->push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes->size() != starts.size() ||
      steps.size() != starts.size()) {
    Fail("starts, ends, axes and steps have different lengths");
  }
  NormalAxes(*axes, rank);  // refuses repeats
  ValueId x = c.In(0);
  Dims reversed;
  for (size_t k = 0; k < starts.size(); ++k) {
    const int axis = NormalAxis((*axes)[k], rank);
    const int64_t extent = dims[static_cast<size_t>(axis)];
    const int64_t step = steps[k];
    if (step == 0) Fail("a step is 0");
    auto position = [&](int64_t v, int64_t low, int64_t high) {
      return std::clamp(v < 0 ? std::max(v, -extent - 1) + extent : std::min(v, extent), low, high);
    };
    if (step > 0) {
      const int64_t start = position(starts[k], 0, extent);
      const int64_t end = std::max(start, position(ends[k], 0, extent));
      x = SliceAxis(c, x, axis, start, end, std::min(step, std::max<int64_t>(1, extent)));
      continue;
    }
    // From start down to (not including) end: take the same elements upwards, then reverse.
    // The start is clamped to an element, unlike the end (Slice-13).
    const int64_t start = position(starts[k], std::min<int64_t>(0, extent - 1), extent - 1);
    const int64_t end = position(ends[k], -1, extent - 1);
    const int64_t down = step < -extent ? std::max<int64_t>(1, extent) : -step;
    const int64_t count = start > end ? (start - end + down - 1) / down : 0;
    if (count == 0) {
      x = SliceAxis(c, x, axis, 0, 0);
      continue;
    }
    x = SliceAxis(c, x, axis, start - (count - 1) * down, start + 1, down);
    reversed.push_back(axis);
  }
  std::sort(reversed.begin(), reversed.end());
  if (!reversed.empty()) x = c.Add1("reverse", {x}, {{"axes", reversed}});
  c.Out(0, x);
}

ValueId PadBy(NodeContext& c, ValueId x, const Dims& low, const Dims& high, double value,
              const std::string& mode) {
  const auto zero = [](int64_t v) { return v == 0; };
  if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero))
    return x;
  return c.Add1("pad", {x},
                {{"low", low},
                 {"high", high},
                 {"interior", Dims(low.size(), 0)},
                 {"value", value},
                 {"mode", mode}});
}

void Pad(NodeContext& c) {
  const size_t rank = c.Shape(0).size();
  const std::string mode = c.String("mode", "constant");
  double value = c.Float("value", 0);
  std::vector<int64_t> pads = c.IntList("pads", {});
  std::vector<int> axes;
  for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int>(i));
  if (c.since() >= 11) {
    pads = c.Ints(1, "the pads");
    if (c.Has(2) && c.Type(2).elements() > 0) value = c.Scalar(2, "the padding value");
    if (c.Has(3)) {
      axes.clear();
      for (int64_t a : c.Ints(3, "the axes")) axes.push_back(NormalAxis(a, static_cast<int>(rank)));
    }
  }
  if (pads.size() != 2 * axes.size())
    Fail(fmt::format("{} pads for {} axes", pads.size(), axes.size()));
  Dims low(rank, 0);
  Dims high(rank, 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    low[static_cast<size_t>(axes[k])] = pads[k];
    high[static_cast<size_t>(axes[k])] = pads[axes.size() + k];
  }
  for (size_t i = 0; i < rank; ++i) {
    if (std::max(std::abs(low[i]), std::abs(high[i])) > (int64_t{1} << 40))
      Fail("a pad is too large");
  }
  if (mode == "constant") {
    c.Out(0, PadBy(c, c.In(0), low, high, value, mode));
    return;
  }
  // Negative pads crop first.
  Dims crop_low(rank, 0);
  Dims crop_high(rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    crop_low[i] = std::min<int64_t>(0, low[i]);
    crop_high[i] = std::min<int64_t>(0, high[i]);
    low[i] -= crop_low[i];
    high[i] -= crop_high[i];
  }
  ValueId x = PadBy(c, c.In(0), crop_low, crop_high, 0, "constant");
  if (mode == "wrap") {
    for (size_t i = 0; i < rank; ++i) {
      const int64_t extent = c.b().type(x).dims[i];
      if (low[i] > extent || high[i] > extent) Fail("a wrap pad is larger than the dim");
      const int axis = static_cast<int>(i);
      std::vector<ValueId> parts;
      if (low[i] > 0) parts.push_back(SliceAxis(c, x, axis, extent - low[i], extent));
      parts.push_back(x);
      if (high[i] > 0) parts.push_back(SliceAxis(c, x, axis, 0, high[i]));
      if (parts.size() > 1) x = c.Add1("concat", parts, {{"axis", int64_t{axis}}});
    }
    c.Out(0, x);
    return;
  }
  if (mode != "edge" && mode != "reflect") Unsupported(fmt::format("mode '{}'", mode));
  for (size_t i = 0; i < rank; ++i) {
    const int64_t extent = c.b().type(x).dims[i];
    if (mode == "reflect" && (low[i] >= extent || high[i] >= extent) && low[i] + high[i] > 0) {
      Fail(fmt::format("reflecting pads {} and {} must be smaller than dim {} ({})", low[i],
                       high[i], i, extent));
    }
  }
  c.Out(0, PadBy(c, x, low, high, 0, mode));
}

void Tile(NodeContext& c) {
  const Dims dims = c.Shape(0);
  const std::vector<int64_t> repeats = c.Ints(1, "the repeats");
  if (repeats.size() != dims.size()) Fail("repeats must have one value per dim");
  Dims split;
  Dims at;
  Dims result;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (repeats[i] < 0 || repeats[i] > (int64_t{1} << 40))
      Fail(fmt::format("repeat {}", repeats[i]));
    split.push_back(repeats[i]);
    at.push_back(static_cast<int64_t>(split.size()));
    split.push_back(dims[i]);
  }
  CheckDims(split);
  for (size_t i = 0; i < dims.size(); ++i) result.push_back(dims[i] * repeats[i]);
  c.Out(0, c.Reshape(c.b().Broadcast(c.In(0), split, at), result));
}

void Trilu(NodeContext& c) {
  const Dims dims = c.Shape(0);
  if (dims.size() < 2) Fail("the operand must have rank 2 or more");
  const bool upper = c.Int("upper", 1) != 0;
  const int64_t k = c.Has(1) ? static_cast<int64_t>(c.Scalar(1, "k")) : 0;
  const DType dtype = c.Type(0).dtype;
  const Dims square(dims.end() - 2, dims.end());
  const ValueId row =
      c.Add1("iota", {}, {{"shape", square}, {"axis", int64_t{0}}, {"dtype", DType::kI64}});
  const ValueId column =
      c.Add1("iota", {}, {{"shape", square}, {"axis", int64_t{1}}, {"dtype", DType::kI64}});
  c.Out(0, c.MapValues({c.In(0), row, column}, [&](ExprBuilder& e, std::span<const int> a) {
    const int diagonal = e.Binary(ScalarOp::kSub, a[2], a[1]);
    const int keep =
        e.Binary(upper ? ScalarOp::kGe : ScalarOp::kLe, diagonal, e.ConstantInt(DType::kI64, k));
    const int zero = ir::IsFloat(dtype) ? e.Constant(dtype, 0) : e.ConstantInt(dtype, 0);
    return e.Select(keep, a[0], zero);
  }));
}

// Keeps squares and products with extents inside 64 bits.
constexpr int64_t kLargestBlock = 65536;

void DepthToSpace(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int64_t s = c.Int("blocksize", 0);
  if (x.size() != 4 || s < 1 || s > kLargestBlock || x[1] % (s * s) != 0) {
    Fail(fmt::format(
        "blocksize {} does not fit the input {}: rank 4 and a square that divides dim 1 "
        "are expected",
        s, FormatDims(x)));
  }
  const int64_t depth = x[1] / (s * s);
  const bool dcr = c.String("mode", "DCR") == "DCR";
  const Dims split =
      dcr ? Dims{x[0], s, s, depth, x[2], x[3]} : Dims{x[0], depth, s, s, x[2], x[3]};
  const Dims perm = dcr ? Dims{0, 3, 4, 1, 5, 2} : Dims{0, 1, 4, 2, 5, 3};
  const ValueId y = c.b().Transpose(c.Reshape(c.In(0), split), perm);
  c.Out(0, c.Reshape(y, {x[0], depth, x[2] * s, x[3] * s}));
}

void SpaceToDepth(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int64_t s = c.Int("blocksize", 0);
  if (x.size() != 4 || s < 1 || s > kLargestBlock || x[2] % s != 0 || x[3] % s != 0) {
    Fail(fmt::format(
        "blocksize {} does not fit the input {}: rank 4 and a divisor of dims 2 and 3 are "
        "expected",
        s, FormatDims(x)));
  }
  const ValueId y = c.b().Transpose(c.Reshape(c.In(0), {x[0], x[1], x[2] / s, s, x[3] / s, s}),
                                    {0, 3, 5, 1, 2, 4});
  c.Out(0, c.Reshape(y, {x[0], x[1] * s * s, x[2] / s, x[3] / s}));
}

}  // namespace

void RegisterDataMovementImporters(ImportTable& t) {
  t.Add({"Concat", 4, 13, Concat, "concat"});
  t.Add({"Split", 2, 18, Split, "slices", {1}});
  t.Add({"Slice", 1, 13, Slice, "slice and reverse", {1, 2, 3, 4}});
  t.Add({"Pad", 2, 25, Pad, "pad; wrap as concat of slices", {1, 2, 3}});
  t.Add({"Tile", 6, 13, Tile, "reshape and broadcast", {1}});
  t.Add({"Trilu", 14, 14, Trilu, "iota and map", {1}});
  t.Add({"DepthToSpace", 1, 13, DepthToSpace, "reshape and transpose"});
  t.Add({"SpaceToDepth", 1, 13, SpaceToDepth, "reshape and transpose"});
}

}  // namespace hyper::onnx_frontend
