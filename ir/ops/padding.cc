#include "ir/ops/padding.h"

#include <algorithm>
#include <utility>

namespace hyper::ir {
namespace {

constexpr int64_t kLargest = int64_t{1} << 56;  // keeps sums inside 64 bits

InferResult InferPad(Types in, const Attributes& a) {
  const int rank = in[0].rank();
  const Dims& low = a.GetDims("low");
  const Dims& high = a.GetDims("high");
  const Dims& interior = a.GetDims("interior");
  const std::string& mode = a.String("mode");
  HYPER_RETURN_IF_ERROR(ExpectEntries("low", low, rank));
  HYPER_RETURN_IF_ERROR(ExpectEntries("high", high, rank));
  HYPER_RETURN_IF_ERROR(ExpectEntries("interior", interior, rank));
  HYPER_RETURN_IF_ERROR(ExpectOneOf("mode", mode, {"constant", "edge", "reflect"}));
  HYPER_RETURN_IF_ERROR(ExpectEach("interior", interior, 0));
  for (const auto& [name, values] : {std::pair{"low", &low}, {"high", &high}}) {
    HYPER_RETURN_IF_ERROR(ExpectEach(name, *values, -kLargest));
    HYPER_RETURN_IF_ERROR(ExpectAtMost(name, *values, kLargest));
  }
  HYPER_RETURN_IF_ERROR(ExpectAtMost("interior", interior, kLargest));
  TensorType y{in[0].dtype, {}};
  for (size_t d = 0; d < low.size(); ++d) {
    const int64_t n = in[0].dims[d];
    const std::string where = "dim " + std::to_string(d) + " of input 0 is " + std::to_string(n);
    if (mode != "constant") {
      if (interior[d] != 0) return InvalidArgument("interior padding needs mode constant");
      if (low[d] < 0 || high[d] < 0) return InvalidArgument("cropping needs mode constant");
      const int64_t widest = std::max(low[d], high[d]);
      const int64_t needed = mode == "edge" ? 1 : widest + 1;
      if (widest > 0 && n < needed) {
        return InvalidArgument(where + ", mode " + mode + " with padding " +
                               std::to_string(widest) + " needs at least " +
                               std::to_string(needed));
      }
    }
    if (interior[d] > 0 && n - 1 > kLargest / interior[d]) {
      return InvalidArgument(where + ", too large for interior padding " +
                             std::to_string(interior[d]));
    }
    const int64_t out = n + std::max<int64_t>(n - 1, 0) * interior[d] + low[d] + high[d];
    if (out < 0) {
      return InvalidArgument(where + ", padding " + std::to_string(low[d]) + " and " +
                             std::to_string(high[d]) + " leaves " + std::to_string(out) +
                             " elements");
    }
    y.dims.push_back(out);
  }
  return std::vector<TensorType>{y};
}

ValueId SliceOne(Builder& b, ValueId x, size_t dim, int64_t start, int64_t limit,
                 int64_t stride = 1) {
  const Dims shape = b.type(x).dims;
  if (start == 0 && limit == shape[dim] && stride == 1) return x;
  Dims starts(shape.size(), 0);
  Dims limits = shape;
  Dims strides(shape.size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  strides[dim] = stride;
  return b.Add1("slice", {x}, {{"starts", starts}, {"limits", limits}, {"strides", strides}});
}

// Undo the cropping with zeros, then read back what was placed.
ValueId ConstantPadGradient(Builder& b, ValueId g, const Dims& x, const Attributes& a) {
  const Dims& low = a.GetDims("low");
  const Dims& high = a.GetDims("high");
  const Dims& interior = a.GetDims("interior");
  PadSpec uncrop(x.size());
  for (size_t d = 0; d < x.size(); ++d) {
    uncrop.low[d] = std::max<int64_t>(-low[d], 0);
    uncrop.high[d] = std::max<int64_t>(-high[d], 0);
  }
  ValueId v = PadZero(b, g, uncrop);
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t start = std::max<int64_t>(low[d], 0);
    const int64_t stride = interior[d] + 1;
    const int64_t limit = x[d] == 0 ? start : start + (x[d] - 1) * stride + 1;
    v = SliceOne(b, v, d, start, limit, x[d] == 0 ? 1 : stride);
  }
  return v;
}

// dx = middle + what each padded border hands back, one dim after the other.
ValueId BorderPadGradient(Builder& b, ValueId g, const Dims& x, const Attributes& a) {
  const bool edge = a.String("mode") == "edge";
  const Dims& low = a.GetDims("low");
  const Dims& high = a.GetDims("high");
  ValueId v = g;
  for (size_t d = 0; d < x.size(); ++d) {
    const int64_t n = x[d];
    if (low[d] == 0 && high[d] == 0) continue;
    auto border = [&](int64_t start, int64_t count, int64_t to) {
      ValueId part = SliceOne(b, v, d, start, start + count);
      PadSpec pad(x.size());
      if (edge) {
        Dims one = b.type(part).dims;
        one[d] = 1;
        part = b.Reshape(b.Reduce("sum", part, {static_cast<int64_t>(d)}), one);
      } else {
        part = b.Add1("reverse", {part}, {{"axes", Dims{static_cast<int64_t>(d)}}});
      }
      pad.low[d] = to;
      pad.high[d] = n - to - (edge ? 1 : count);
      return PadZero(b, part, pad);
    };
    ValueId sum = SliceOne(b, v, d, low[d], low[d] + n);
    if (low[d] > 0) sum = AddMaybe(b, sum, border(0, low[d], edge ? 0 : 1));
    if (high[d] > 0) {
      sum = AddMaybe(b, sum, border(low[d] + n, high[d], edge ? n - 1 : n - 1 - high[d]));
    }
    v = sum;
  }
  return v;
}

Status PadGradient(const GradientContext& c) {
  const Dims x = c.builder.type(c.node.inputs[0]).dims;
  c.input_grads[0] = c.node.attributes.String("mode") == "constant"
                         ? ConstantPadGradient(c.builder, c.output_grads[0], x, c.node.attributes)
                         : BorderPadGradient(c.builder, c.output_grads[0], x, c.node.attributes);
  return Status::Ok();
}

ShardingFactors PadSharding(Types in, Types, const Attributes& a) {
  Letters pool;
  ShardingFactors f;
  f.inputs = {pool.Next(in[0].rank())};
  f.outputs = {f.inputs[0]};
  for (size_t d = 0; d < in[0].dims.size(); ++d) {
    if (a.GetDims("low")[d] == 0 && a.GetDims("high")[d] == 0 && a.GetDims("interior")[d] == 0) {
      continue;
    }
    f.outputs[0][d] = pool.Next(1)[0];
    f.replicated += f.inputs[0][d];
    f.replicated += f.outputs[0][d];
  }
  return f;
}

}  // namespace

ValueId PadZero(Builder& builder, ValueId x, const PadSpec& spec) {
  auto zero = [](int64_t v) { return v == 0; };
  const Dims& dims = builder.type(x).dims;
  bool interior = false;  // matters only between two elements
  for (size_t d = 0; d < dims.size(); ++d) interior |= spec.interior[d] != 0 && dims[d] > 1;
  if (!interior && std::all_of(spec.low.begin(), spec.low.end(), zero) &&
      std::all_of(spec.high.begin(), spec.high.end(), zero)) {
    return x;
  }
  return builder.Add1("pad", {x},
                      {{"low", spec.low}, {"high", spec.high}, {"interior", spec.interior}});
}

OpDef PadOp() {
  OpDef def;
  def.name = "pad";
  def.family = "data_movement";
  def.summary =
      "x inside a border: constant value (negative widths crop, interior puts values between "
      "elements), nearest element (edge) or mirror image without the edge (reflect)";
  def.min_inputs = def.max_inputs = 1;
  def.attributes = {
      {"low", AttributeKind::kDims, "width before each dim", std::nullopt},
      {"high", AttributeKind::kDims, "width after each dim", std::nullopt},
      {"interior", AttributeKind::kDims, "values between neighbours per dim", std::nullopt},
      {"value", AttributeKind::kFloat, "padding value of mode constant", Attribute(0.0)},
      {"mode", AttributeKind::kString, "constant, edge or reflect",
       Attribute(std::string("constant"))}};
  def.infer = InferPad;
  def.gradient = GradientFunction(PadGradient);
  def.sharding = ShardingFunction(PadSharding);
  def.cost = ElementCost(0);
  def.saved = SavedForBackward{};
  def.in_place = std::vector<InPlaceRule>{};
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

}  // namespace hyper::ir
