// Pooling and resizing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/window.h"

namespace hyper::onnx_frontend {
namespace {

using ir::HostTensor;

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

// Source coordinate of output index i along one axis.
double SourceCoordinate(const std::string& mode, int64_t i, double scale, int64_t in, int64_t out) {
  const double x = static_cast<double>(i);
  if (mode == "asymmetric") return x / scale;
  if (mode == "align_corners") {
    // The resized length is not rounded here (the node tests ask for it).
    const double length = scale * static_cast<double>(in);
    return out == 1 || length == 1 ? 0 : x * static_cast<double>(in - 1) / (length - 1);
  }
  if (mode == "pytorch_half_pixel" && out == 1) return 0;
  if (mode == "half_pixel" || mode == "pytorch_half_pixel") return (x + 0.5) / scale - 0.5;
  if (mode == "half_pixel_symmetric") {
    const double adjustment = static_cast<double>(out) / (scale * static_cast<double>(in));
    const double center = static_cast<double>(in) / 2;
    return center * (1 - adjustment) + (x + 0.5) / scale - 0.5;
  }
  Unsupported(fmt::format("coordinate_transformation_mode '{}'", mode));
}

int64_t NearestIndex(const std::string& mode, double x) {
  if (mode == "floor") return static_cast<int64_t>(std::floor(x));
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(std::floor(x + 0.5));
  if (mode == "round_prefer_floor") return static_cast<int64_t>(std::ceil(x - 0.5));
  Fail(fmt::format("nearest_mode '{}'", mode));
}

// Resizes one axis by gathers with constant indices; the linear mode blends two of them.
ValueId ResizeAxis(NodeContext& c, ValueId x, int axis, int64_t out, double scale, bool linear,
                   const std::string& coordinates, const std::string& nearest) {
  const Dims dims = c.b().type(x).dims;
  const int64_t in = dims[static_cast<size_t>(axis)];
  if (in == 0) Fail("cannot resize an empty dim");
  std::vector<int64_t> low;
  std::vector<int64_t> high;
  std::vector<double> weight;
  auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i, 0, in - 1); };
  for (int64_t i = 0; i < out; ++i) {
    const double source = SourceCoordinate(coordinates, i, scale, in, out);
    if (!linear) {
      low.push_back(clamp(NearestIndex(nearest, source)));
      continue;
    }
    const double floor = std::floor(source);
    low.push_back(clamp(static_cast<int64_t>(floor)));
    high.push_back(clamp(static_cast<int64_t>(floor) + 1));
    weight.push_back(source - floor);
  }
  auto gather = [&](const std::vector<int64_t>& indices) {
    const ValueId constant =
        c.b().Constant(HostTensor::FromVector(ir::DType::kI64, {out}, indices));
    return c.Add1("gather", {x, constant}, {{"axis", int64_t{axis}}});
  };
  if (!linear) return gather(low);
  const ValueId a = gather(low);
  const ValueId b = gather(high);
  const ir::TensorType type = c.b().type(a);
  const ValueId w = c.b().Cast(
      type.dtype, c.b().Constant(HostTensor::FromVector(ir::DType::kF64, {out}, weight)));
  return c.MapValues({a, b, c.b().Broadcast(w, type.dims, {axis})},
                     [&](ir::ExprBuilder& e, std::span<const int> v) {
                       const int rest = e.Binary(ScalarOp::kSub, e.Constant(type.dtype, 1), v[2]);
                       return e.Binary(ScalarOp::kAdd, e.Binary(ScalarOp::kMul, v[0], rest),
                                       e.Binary(ScalarOp::kMul, v[1], v[2]));
                     });
}

void ResizeTo(NodeContext& c, const std::vector<int>& axes, std::vector<double> scales,
              std::vector<int64_t> sizes, const std::string& coordinates,
              const std::string& nearest) {
  const std::string mode = c.String("mode", "nearest");
  if (mode != "nearest" && mode != "linear") Unsupported(fmt::format("mode '{}'", mode));
  if (mode == "linear" && !ir::IsFloat(c.Type(0).dtype)) Unsupported("linear mode on integers");
  ValueId x = c.In(0);
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t in = c.Shape(0)[static_cast<size_t>(axes[k])];
    const double size = scales.empty() ? static_cast<double>(sizes[k])
                                       : std::floor(static_cast<double>(in) * scales[k]);
    if (!(size >= 0 && size < 1e9)) Fail("an output extent is out of range");
    const int64_t out = static_cast<int64_t>(size);
    const double scale =
        scales.empty() ? static_cast<double>(out) / static_cast<double>(in) : scales[k];
    if (out == in && scale == 1) continue;
    x = ResizeAxis(c, x, axes[k], out, scale, mode == "linear", coordinates, nearest);
  }
  c.Out(0, x);
}

std::vector<double> Doubles(NodeContext& c, int i, std::string_view what) {
  const HostTensor& known = c.RequireKnown(i, what);
  std::vector<double> values;
  for (int64_t k = 0; k < known.type().elements(); ++k) values.push_back(known.ElementAsDouble(k));
  return values;
}

void Resize(NodeContext& c) {
  const int rank = c.Type(0).rank();
  const bool v10 = c.since() < 11;
  const int scales_at = v10 ? 1 : 2;
  std::vector<int64_t> all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int> axes;
  for (int64_t a : c.IntList("axes", all)) axes.push_back(NormalAxis(a, rank));
  if (c.Int("antialias", 0) != 0) Unsupported("antialias");
  if (c.Int("exclude_outside", 0) != 0) Unsupported("exclude_outside");
  std::vector<double> scales;
  std::vector<int64_t> sizes;
  if (c.Has(scales_at) && c.Type(scales_at).elements() > 0)
    scales = Doubles(c, scales_at, "scales");
  if (!v10 && c.Has(3) && c.Type(3).elements() > 0) sizes = c.Ints(3, "sizes");
  if (!sizes.empty() && c.String("keep_aspect_ratio_policy", "stretch") != "stretch") {
    Unsupported("keep_aspect_ratio_policy");
  }
  if (scales.empty() == sizes.empty() || (scales.size() + sizes.size()) != axes.size()) {
    Fail("exactly one of scales and sizes must be given, with one value per axis");
  }
  ResizeTo(c, axes, scales, sizes,
           v10 ? "asymmetric" : c.String("coordinate_transformation_mode", "half_pixel"),
           v10 ? "floor" : c.String("nearest_mode", "round_prefer_floor"));
}

void Upsample(NodeContext& c) {
  std::vector<int> axes(static_cast<size_t>(c.Type(0).rank()));
  std::iota(axes.begin(), axes.end(), 0);
  std::vector<double> scales;
  if (c.since() >= 9) {
    scales = Doubles(c, 1, "scales");
  } else if (const auto* a = c.Attribute("scales"); a != nullptr) {
    scales.assign(a->floats().begin(), a->floats().end());
  }
  if (scales.size() != axes.size()) Fail("scales must have one value per dim");
  ResizeTo(c, axes, scales, {}, "asymmetric", "floor");
}

}  // namespace

void RegisterPoolingImporters(ImportTable& t) {
  t.Add({"MaxPool", 1, 22, MaxPool, "max_pool; the Indices output is refused"});
  t.Add({"AveragePool", 7, 22, AveragePool, "avg_pool"});
  t.Add({"GlobalAveragePool", 1, 22, GlobalAveragePool, "reduce sum and map"});
  t.Add({"GlobalMaxPool", 1, 22, GlobalMaxPool, "reduce max"});
  t.Add({"Resize", 10, 19, Resize, "gathers per axis: nearest and linear", {1, 2, 3}});
  t.Add({"Upsample", 7, 9, Upsample, "gathers per axis: nearest and linear", {1}});
}

}  // namespace hyper::onnx_frontend
