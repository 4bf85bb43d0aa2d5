// Resize and Upsample. Interpolation is separable and its weights follow from shapes and scales, so
// every axis becomes one step with constant weights: a repetition (nearest, whole factors), a
// transposed convolution (other modes, whole factors of spatial dims), a product with a matrix, or
// gathers (long axes).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

// Weights and indices are listed at compile time: bounds of what a file can ask for.
constexpr int64_t kMaxExtent = int64_t{1} << 22;
constexpr int64_t kMaxMatrix = int64_t{1} << 24;
constexpr size_t kMaxGathers = 64;

struct Tap {
  int64_t index = 0;  // may lie outside the input: the nearest element is meant
  double weight = 0;
};
using Taps = std::vector<Tap>;

struct Settings {
  std::string mode, coordinates, nearest;
  double coefficient = -0.75;  // of the cubic kernel
  double extrapolation = 0;
  bool antialias = false;
  bool exclude_outside = false;
};

struct Axis {
  int axis = 0;
  int64_t in = 0;
  int64_t out = 0;
  double scale = 1;
  double start = 0;  // region of interest, tf_crop_and_resize
  double end = 1;
};

// Source coordinate of output index i along one axis.
double SourceCoordinate(const std::string& mode, int64_t i, const Axis& a) {
  const double x = static_cast<double>(i);
  const double last = static_cast<double>(a.in - 1);
  // The resized length is not rounded here (the node tests ask for it).
  const double length = a.scale * static_cast<double>(a.in);
  if (mode == "asymmetric") return x / a.scale;
  if (mode == "align_corners") return a.out == 1 || length == 1 ? 0 : x * last / (length - 1);
  if (mode == "tf_crop_and_resize") {
    if (a.out == 1) return 0.5 * (a.start + a.end) * last;
    return a.start * last + x * (a.end - a.start) * last / static_cast<double>(a.out - 1);
  }
  if (mode == "pytorch_half_pixel" && a.out == 1) return 0;
  if (mode == "half_pixel" || mode == "pytorch_half_pixel") return (x + 0.5) / a.scale - 0.5;
  if (mode == "tf_half_pixel_for_nn") return (x + 0.5) / a.scale;
  if (mode == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(a.out) / length;
    const double center = static_cast<double>(a.in) / 2;
    return center * (1 - adjustment) + (x + 0.5) / a.scale - 0.5;
  }
  Fail(fmt::format("coordinate_transformation_mode '{}'", mode));
}

int64_t NearestIndex(const std::string& mode, double x) {
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  if (mode == "round_prefer_floor") return static_cast<int64_t>(std::ceil(x - 0.5));
  Fail(fmt::format("nearest_mode '{}'", mode));
}

// Keys, Cubic convolution interpolation for digital image processing (1981), with free A.
double CubicKernel(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// Far beyond every extent, and exact as an integer.
constexpr double kFarthest = 1e12;
constexpr double kMostTaps = 1 << 20;

Taps TapsAt(double source, const Axis& a, const Settings& s) {
  if (!(std::abs(source) <= kFarthest)) {
    Fail(fmt::format(
        "an output lies at coordinate {} of the input; -1e12 to 1e12 is possible (see roi "
        "and scales)",
        source));
  }
  if (s.mode == "nearest") return {{NearestIndex(s.nearest, source), 1}};
  const bool cubic = s.mode == "cubic";
  // Antialiasing stretches the kernel by the factor of a reduction.
  const double shrink = s.antialias ? std::min(a.scale, 1.0) : 1;
  const double reach = (cubic ? 2 : 1) / shrink;
  if (!(2 * reach <= kMostTaps)) {
    Unsupported(fmt::format("an output that reads {} elements of an axis; {} are the most",
                            2 * reach, kMostTaps));
  }
  Taps taps;
  double sum = 0;
  for (int64_t i = static_cast<int64_t>(std::ceil(source - reach));
       static_cast<double>(i) <= source + reach; ++i) {
    const double x = (static_cast<double>(i) - source) * shrink;
    const bool outside = i < 0 || i >= a.in;
    const double weight = s.exclude_outside && outside ? 0
                          : cubic                      ? CubicKernel(x, s.coefficient)
                                                       : std::max(0.0, 1 - std::abs(x));
    if (weight == 0) continue;
    taps.push_back({i, weight});
    sum += weight;
  }
  // Nothing inside counts: the nearest element does.
  if (taps.empty() || (s.exclude_outside && sum == 0)) {
    const auto last = static_cast<double>(std::max<int64_t>(a.in, 1) - 1);
    return {{static_cast<int64_t>(std::clamp(std::round(source), 0.0, last)), 1}};
  }
  if (s.antialias || s.exclude_outside) {
    for (Tap& t : taps) t.weight /= sum;
  }
  return taps;
}

// True where all outputs i * factor + phase read the same offsets from i with the same weights.
bool SamePhases(const std::vector<Taps>& taps, int64_t factor) {
  for (size_t i = static_cast<size_t>(factor); i < taps.size(); ++i) {
    const Taps& a = taps[i - static_cast<size_t>(factor)];
    const Taps& b = taps[i];
    if (a.size() != b.size()) return false;
    for (size_t k = 0; k < a.size(); ++k) {
      if (a[k].index + 1 != b[k].index || std::abs(a[k].weight - b[k].weight) > 1e-12) return false;
    }
  }
  return true;
}

// sum of weights[k] * values[k], in f32 for half types.
ValueId WeightedSum(NodeContext& c, const std::vector<ValueId>& values,
                    const std::vector<ValueId>& weights) {
  const DType dtype = c.b().type(values[0]).dtype;
  std::vector<ValueId> operands = values;
  operands.insert(operands.end(), weights.begin(), weights.end());
  return c.MapValues(operands, [&](ExprBuilder& e, Args x) {
    const DType wide = e.nodes()[static_cast<size_t>(x[values.size()])].dtype;
    int sum = -1;
    for (size_t k = 0; k < values.size(); ++k) {
      const int term = e.Binary(ScalarOp::kMul, e.Cast(wide, x[k]), x[values.size() + k]);
      sum = sum < 0 ? term : e.Binary(ScalarOp::kAdd, sum, term);
    }
    return e.Cast(dtype, sum);
  });
}

ValueId Repeat(NodeContext& c, ValueId x, int axis, int64_t factor) {
  Dims dims = c.b().type(x).dims;
  const size_t at = static_cast<size_t>(axis);
  Dims wide = dims;
  wide.insert(wide.begin() + axis + 1, factor);
  Dims to;
  for (int d = 0; d < static_cast<int>(wide.size()); ++d) {
    if (d != axis + 1) to.push_back(d);
  }
  CheckDims(wide);
  dims[at] *= factor;
  return c.Reshape(c.b().Broadcast(x, wide, to), dims);
}

// One axis with its taps; factor > 0: whole, with the same taps at every multiple.
struct Plan {
  Axis axis;
  std::vector<Taps> taps;
  size_t count = 1;  // most taps of one output
  int64_t factor = 0;
};

// How a plan of a whole factor is a transposed convolution of the padded axis.
struct Kernel {
  int64_t low = 0;   // elements repeated before
  int64_t high = 0;  // and behind the axis
  int64_t cut = 0;   // outputs of the convolution before the first one
  std::vector<double> weights;
};

// Output factor * i + r reads x[i + offset] with tap t = r + cut - factor * (offset + low).
Kernel KernelOf(const Plan& plan) {
  Kernel k;
  const int64_t factor = plan.factor;
  auto each = [&](const auto& visit) {
    for (int64_t r = 0; r < factor; ++r) {
      for (const Tap& t : plan.taps[static_cast<size_t>(r)]) visit(r, t);
    }
  };
  each([&](int64_t, const Tap& t) {
    k.low = std::max(k.low, -t.index);
    k.high = std::max(k.high, t.index);
  });
  each([&](int64_t r, const Tap& t) { k.cut = std::max(k.cut, factor * (t.index + k.low) - r); });
  // Long enough for all taps, and to reach the last output.
  const int64_t reached = factor * (plan.axis.in + k.low + k.high - 1);
  size_t length = static_cast<size_t>(std::max<int64_t>(1, k.cut + plan.axis.out - reached));
  each([&](int64_t r, const Tap& t) {
    length = std::max(length, static_cast<size_t>(r + k.cut - factor * (t.index + k.low)) + 1);
  });
  k.weights.assign(length, 0);
  each([&](int64_t r, const Tap& t) {
    k.weights[static_cast<size_t>(r + k.cut - factor * (t.index + k.low))] += t.weight;
  });
  return k;
}

// Whole factors of spatial dims, all at once: the edge repeated, then a transposed convolution per
// channel. Its layout is that of the convolutions around it, and its gradient a convolution.
ValueId TransposedConv(NodeContext& c, ValueId x, const std::vector<Plan>& plans) {
  Dims dims = c.b().type(x).dims;
  const size_t n = dims.size() - 2;
  Dims before(dims.size(), 0), after(dims.size(), 0), out = dims;
  Dims strides(n, 1), cut(n, 0), rest(n, 0), shape = {dims[1], 1};
  std::vector<double> weights = {1};
  for (size_t d = 0; d < n; ++d) {
    std::vector<double> along = {1};
    for (const Plan& plan : plans) {
      if (static_cast<size_t>(plan.axis.axis) != d + 2) continue;
      const Kernel k = KernelOf(plan);
      before[d + 2] = k.low;
      after[d + 2] = k.high;
      out[d + 2] = plan.axis.out;
      strides[d] = plan.factor;
      cut[d] = k.cut;
      const int64_t all =
          plan.factor * (dims[d + 2] + k.low + k.high - 1) + static_cast<int64_t>(k.weights.size());
      rest[d] = all - k.cut - plan.axis.out;
      along = k.weights;
    }
    std::vector<double> product;
    for (double w : weights) {
      for (double v : along) product.push_back(w * v);
    }
    weights = std::move(product);
    shape.push_back(static_cast<int64_t>(along.size()));
  }
  CheckDims(out);
  if (before != Dims(dims.size(), 0) || after != Dims(dims.size(), 0)) {
    x = c.Add1("pad", {x},
               {{"low", before},
                {"high", after},
                {"interior", Dims(dims.size(), 0)},
                {"value", 0.0},
                {"mode", std::string("edge")}});
  }
  Dims kernel = shape;
  kernel[0] = 1;
  const ValueId one = c.b().Cast(
      c.b().type(x).dtype, c.b().Constant(HostTensor::FromVector(DType::kF64, kernel, weights)));
  Dims to(kernel.size());
  std::iota(to.begin(), to.end(), 0);
  return c.Add1("conv_grad_input", {x, c.b().Broadcast(one, shape, to)},
                {{"strides", strides},
                 {"pads_low", cut},
                 {"pads_high", rest},
                 {"dilations", Dims(n, 1)},
                 {"groups", dims[1]},
                 {"input_shape", out}});
}

ValueId Gathers(NodeContext& c, ValueId x, const Axis& a, const std::vector<Taps>& taps,
                size_t count) {
  const DType dtype = c.b().type(x).dtype;
  const bool half = dtype == DType::kF16 || dtype == DType::kBF16;
  std::vector<ValueId> values;
  std::vector<ValueId> weights;
  Dims dims = c.b().type(x).dims;
  dims[static_cast<size_t>(a.axis)] = a.out;
  CheckDims(dims);
  for (size_t k = 0; k < count; ++k) {
    std::vector<int64_t> indices;
    std::vector<double> weight;
    for (const Taps& t : taps) {
      indices.push_back(k < t.size() ? t[k].index : t[0].index);
      weight.push_back(k < t.size() ? t[k].weight : 0);
    }
    values.push_back(
        c.Add1("gather", {x, c.b().Constant(HostTensor::FromVector(DType::kI64, {a.out}, indices))},
               {{"axis", int64_t{a.axis}}}));
    const ValueId w =
        c.b().Cast(half ? DType::kF32 : dtype,
                   c.b().Constant(HostTensor::FromVector(DType::kF64, {a.out}, weight)));
    weights.push_back(c.b().Broadcast(w, dims, {a.axis}));
  }
  if (count == 1) return values[0];
  return WeightedSum(c, values, weights);
}

ValueId MatrixProduct(NodeContext& c, ValueId x, const Axis& a, const std::vector<Taps>& taps) {
  const Dims dims = c.b().type(x).dims;
  CheckDims({a.in, a.out});
  std::vector<double> matrix(static_cast<size_t>(a.in * a.out), 0);
  for (size_t o = 0; o < taps.size(); ++o) {
    for (const Tap& t : taps[o]) {
      matrix[o * static_cast<size_t>(a.in) + static_cast<size_t>(t.index)] += t.weight;
    }
  }
  const ValueId w =
      c.b().Cast(c.b().type(x).dtype,
                 c.b().Constant(HostTensor::FromVector(DType::kF64, {a.out, a.in}, matrix)));
  const size_t at = static_cast<size_t>(a.axis);
  const int64_t outer = ir::ElementCount(std::span(dims).first(at));
  const int64_t inner = ir::ElementCount(std::span(dims).subspan(at + 1));
  Dims out = dims;
  out[at] = a.out;
  CheckDims(out);
  if (inner == 1) {
    return c.Reshape(c.b().Dot("rk,zk->rz", c.Reshape(x, {outer, a.in}), w), out);
  }
  // One matrix per image: products of matrices are what libraries are fast at.
  CheckDims({outer, a.out, a.in});
  const ValueId each = c.b().Broadcast(w, {outer, a.out, a.in}, {1, 2});
  return c.Reshape(c.b().Dot("rzk,rkw->rzw", each, c.Reshape(x, {outer, a.in, inner})), out);
}

// Replaces outputs whose coordinate lies outside the input.
ValueId Extrapolate(NodeContext& c, ValueId y, const Axis& a, const Settings& s) {
  std::vector<double> outside;
  for (int64_t i = 0; i < a.out; ++i) {
    const double source = SourceCoordinate(s.coordinates, i, a);
    outside.push_back(source < 0 || source > static_cast<double>(a.in - 1));
  }
  if (std::find(outside.begin(), outside.end(), 1.0) == outside.end()) return y;
  const ir::TensorType type = c.b().type(y);
  const ValueId mask = c.b().Broadcast(
      c.b().Constant(HostTensor::FromVector(DType::kF64, {a.out}, outside)), type.dims, {a.axis});
  return c.MapValues({y, mask}, [&](ExprBuilder& e, Args x) {
    const int hidden = e.Binary(ScalarOp::kGt, x[1], e.Constant(DType::kF64, 0.5));
    const int value = ir::IsFloat(type.dtype)
                          ? e.Constant(type.dtype, s.extrapolation)
                          : e.ConstantInt(type.dtype, static_cast<int64_t>(s.extrapolation));
    return e.Select(hidden, value, x[0]);
  });
}

Plan PlanOf(const Axis& a, const Settings& s) {
  if (a.in == 0) Fail("cannot resize an empty dim");
  if (a.in > kMaxExtent || a.out > kMaxExtent) {
    Fail(fmt::format("resizing {} elements to {}; at most {} are supported", a.in, a.out,
                     kMaxExtent));
  }
  Plan plan;
  plan.axis = a;
  for (int64_t i = 0; i < a.out; ++i) {
    plan.taps.push_back(TapsAt(SourceCoordinate(s.coordinates, i, a), a, s));
    plan.count = std::max(plan.count, plan.taps.back().size());
  }
  const int64_t factor = a.out % a.in == 0 ? a.out / a.in : 0;
  const bool whole = factor >= 1 && factor <= 16 && a.in > 1;
  if (whole && SamePhases(plan.taps, factor)) plan.factor = factor;
  return plan;
}

ValueId ResizeAxis(NodeContext& c, ValueId x, Plan plan) {
  const Axis& a = plan.axis;
  // Every tap names an element; taps of one element are one.
  for (Taps& t : plan.taps) {
    std::map<int64_t, double> merged;
    for (const Tap& tap : t) merged[std::clamp<int64_t>(tap.index, 0, a.in - 1)] += tap.weight;
    t.clear();
    for (const auto& [index, weight] : merged) t.push_back({index, weight});
  }
  const int64_t factor = a.out % a.in == 0 ? a.out / a.in : 0;
  bool repeats = factor >= 1 && plan.count == 1;
  for (int64_t i = 0; repeats && i < a.out; ++i) {
    repeats = plan.taps[static_cast<size_t>(i)][0].index == i / factor;
  }
  if (repeats) return Repeat(c, x, a.axis, factor);
  // Adding gradients up by index costs about as much as a product with 256 columns.
  const bool wide = plan.count > 4 || (plan.count > 1 && a.in <= 256);
  if (wide && a.out <= kMaxMatrix / a.in) return MatrixProduct(c, x, a, plan.taps);
  if (plan.count > kMaxGathers) {
    Fail(fmt::format("resizing {} elements to {} with {} weights each is too large", a.in, a.out,
                     plan.count));
  }
  return Gathers(c, x, a, plan.taps, plan.count);
}

void ResizeTo(NodeContext& c, const std::vector<Axis>& axes, const Settings& s) {
  const DType dtype = c.Type(0).dtype;
  const bool crop = s.coordinates == "tf_crop_and_resize";
  if (s.mode != "nearest" && s.mode != "linear" && s.mode != "cubic") {
    Fail(fmt::format("mode '{}'; nearest, linear or cubic is expected", s.mode));
  }
  ValueId x = c.In(0);
  // Integers are interpolated in f64 and truncated, as ONNX's reference implementation does.
  const bool integers = s.mode != "nearest" && !ir::IsFloat(dtype);
  if (integers) x = c.b().Cast(DType::kF64, x);
  const int rank = c.Type(0).rank();
  std::vector<Plan> together;
  for (const Axis& a : axes) {
    if (a.out == a.in && a.scale == 1 && !crop) continue;
    Plan plan = PlanOf(a, s);
    if (plan.factor > 0 && a.axis >= 2 && rank <= 5 && !crop && ir::IsFloat(dtype)) {
      together.push_back(std::move(plan));
      continue;
    }
    x = ResizeAxis(c, x, std::move(plan));
    if (crop) x = Extrapolate(c, x, a, s);
  }
  if (!together.empty()) x = TransposedConv(c, x, together);
  c.Out(0, integers ? c.b().Cast(dtype, x) : x);
}

std::vector<double> Doubles(NodeContext& c, int i, std::string_view what) {
  const HostTensor& known = c.RequireKnown(i, what);
  std::vector<double> values;
  for (int64_t k = 0; k < known.type().elements(); ++k) values.push_back(known.ElementAsDouble(k));
  return values;
}

int64_t Extent(double size) {
  if (!(size >= 0 && size < 1e9)) Fail("an output extent is out of range");
  return static_cast<int64_t>(size);
}

void FromScales(std::vector<Axis>* axes, const std::vector<double>& scales) {
  for (size_t k = 0; k < scales.size(); ++k) {
    Axis& a = (*axes)[k];
    if (!(scales[k] > 0)) Fail(fmt::format("scale {} is not positive", scales[k]));
    a.scale = scales[k];
    a.out = Extent(std::floor(static_cast<double>(a.in) * scales[k]));
  }
}

void FromSizes(std::vector<Axis>* axes, const std::vector<int64_t>& sizes,
               const std::string& policy) {
  const bool larger = policy == "not_smaller";
  if (policy != "stretch" && policy != "not_larger" && !larger) {
    Fail(fmt::format("keep_aspect_ratio_policy '{}'", policy));
  }
  double common = larger ? 0 : INFINITY;
  for (size_t k = 0; k < sizes.size(); ++k) {
    Axis& a = (*axes)[k];
    a.out = Extent(static_cast<double>(sizes[k]));
    if (a.in == 0) Fail("cannot resize an empty dim");
    a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
    common = larger ? std::max(common, a.scale) : std::min(common, a.scale);
  }
  if (policy == "stretch") return;
  for (Axis& a : *axes) {
    a.scale = common;
    a.out = Extent(std::floor(common * static_cast<double>(a.in) + 0.5));
  }
}

std::vector<Axis> AxesOf(NodeContext& c) {
  std::vector<int64_t> all(static_cast<size_t>(c.Type(0).rank()));
  std::iota(all.begin(), all.end(), 0);
  std::vector<Axis> axes;
  for (int64_t given : c.IntList("axes", all)) {
    const int axis = NormalAxis(given, c.Type(0).rank());
    const int64_t in = c.Shape(0)[static_cast<size_t>(axis)];
    if (std::any_of(axes.begin(), axes.end(), [&](const Axis& a) { return a.axis == axis; })) {
      Fail(fmt::format("axes name dim {} twice", axis));
    }
    axes.push_back({axis, in, in, 1, 0, 1});
  }
  return axes;
}

void Resize(NodeContext& c) {
  const bool v10 = c.since() < 11;
  const int scales_at = v10 ? 1 : 2;
  std::vector<Axis> axes = AxesOf(c);
  std::vector<double> scales;
  std::vector<int64_t> sizes;
  if (c.Has(scales_at) && c.Type(scales_at).elements() > 0) {
    scales = Doubles(c, scales_at, "scales");
  }
  if (!v10 && c.Has(3) && c.Type(3).elements() > 0) sizes = c.Ints(3, "sizes");
  if (scales.empty() == sizes.empty() || (scales.size() + sizes.size()) != axes.size()) {
    Fail("exactly one of scales and sizes must be given, with one value per axis");
  }
  Settings s;
  s.mode = c.String("mode", "nearest");
  s.coordinates = v10 ? "asymmetric" : c.String("coordinate_transformation_mode", "half_pixel");
  s.nearest = v10 ? "floor" : c.String("nearest_mode", "round_prefer_floor");
  s.coefficient = c.Float("cubic_coeff_a", -0.75);
  s.extrapolation = c.Float("extrapolation_value", 0);
  s.antialias = c.Int("antialias", 0) != 0 && s.mode != "nearest";
  s.exclude_outside = c.Int("exclude_outside", 0) != 0 && s.mode == "cubic";
  if (scales.empty()) {
    FromSizes(&axes, sizes, c.String("keep_aspect_ratio_policy", "stretch"));
  } else {
    FromScales(&axes, scales);
  }
  if (s.coordinates == "tf_crop_and_resize") {
    if (!c.Has(1)) Fail("tf_crop_and_resize needs roi");
    const std::vector<double> roi = Doubles(c, 1, "roi");
    if (roi.size() != 2 * axes.size()) Fail("roi must have two values per axis");
    for (size_t k = 0; k < axes.size(); ++k) {
      axes[k].start = roi[k];
      axes[k].end = roi[k + axes.size()];
    }
  }
  ResizeTo(c, axes, s);
}

void Upsample(NodeContext& c) {
  std::vector<Axis> axes = AxesOf(c);
  std::vector<double> scales;
  if (c.since() >= 9) {
    scales = Doubles(c, 1, "scales");
  } else if (const auto* a = c.Attribute("scales"); a != nullptr) {
    scales.assign(a->floats().begin(), a->floats().end());
  }
  if (scales.size() != axes.size()) Fail("scales must have one value per dim");
  FromScales(&axes, scales);
  Settings s;
  s.mode = c.String("mode", "nearest");
  s.coordinates = "asymmetric";
  s.nearest = "floor";
  ResizeTo(c, axes, s);
}

}  // namespace

void RegisterResizeImporters(ImportTable& t) {
  const std::string_view doc =
      "broadcast (nearest), conv_grad_input (whole factors), dot, or gathers and map";
  t.Add({"Resize", 10, 19, Resize, doc, {1, 2, 3}});
  t.Add({"Upsample", 7, 9, Upsample, doc, {1}});
}

}  // namespace hyper::onnx_frontend
