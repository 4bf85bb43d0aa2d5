// Quantized tensors: integers with a scale and a zero point. Products are formed in integers (dot)
// or in f64, which is exact below 2^53 (conv).
#include <fmt/format.h>

#include <algorithm>

#include "base/strings.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_data.h"
#include "frontend/onnx/window.h"

namespace hyper::onnx_frontend {
namespace {

constexpr std::string_view kNoGradient =
    "quantized values are integers, and no straight-through estimate is made";

struct Range {
  double low, high;
};

Range RangeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8: return {-128, 127};
    case DType::kU8: return {0, 255};
    case DType::kI16: return {-32768, 32767};
    case DType::kU16: return {0, 65535};
    default:
      Fail(fmt::format("quantized values of type {}; 8- or 16-bit integers are expected",
                       ir::DTypeName(dtype)));
  }
}

// Type in which `dtype` is computed: halves have too few digits for 16-bit integers.
DType Wide(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

// The type that an attribute names; nullopt: absent or 0.
std::optional<DType> TypeAttribute(NodeContext& c, std::string_view name) {
  const int64_t given = c.Int(name, 0);
  if (given == 0) return std::nullopt;
  const std::optional<DType> dtype = DTypeFromOnnx(static_cast<int>(given));
  if (!dtype.has_value()) {
    Refuse(RefusalOfElementType(static_cast<int>(given)),
           fmt::format("{} {}", name, OnnxTypeName(static_cast<int>(given))));
  }
  return c.mode().double_precision && *dtype == DType::kF32 ? DType::kF64 : *dtype;
}

Tensor Computed(NodeContext& c, ValueId value) { return {c.b().type(value), value, {}, false}; }

// Scale or zero point `operand` in a form that broadcasts over x: one value, one per element of
// `axis`, or one per block of `block` elements along it.
Tensor Spread(NodeContext& c, int operand, const Dims& x, int64_t axis_given, int64_t block) {
  const Dims& dims = c.Shape(operand);
  const int rank = static_cast<int>(x.size());
  if (c.Type(operand).elements() == 1 && dims.size() <= 1) {
    if (dims.empty() || rank > 0) return c.Operand(operand);
    return Computed(c, c.Reshape(c.In(operand), {}));
  }
  const int axis = NormalAxis(axis_given, rank);
  const size_t at = static_cast<size_t>(axis);
  if (dims.size() == 1 && block == 0) {
    if (dims[0] != x[at]) {
      Fail(fmt::format("{} values for the {} elements of axis {}", dims[0], x[at], axis));
    }
    Dims shape(static_cast<size_t>(rank - axis), 1);
    shape[0] = dims[0];
    return Computed(c, c.Reshape(c.In(operand), shape));
  }
  Dims expected = x;
  if (block > 0) expected[at] = x[at] / block + (x[at] % block != 0);
  if (block <= 0 || dims != expected) {
    Fail(fmt::format("scales or zero points {} do not fit {} with block_size {} on axis {}",
                     FormatDims(dims), FormatDims(x), block, axis));
  }
  if (block > x[at]) block = std::max<int64_t>(1, x[at]);
  Dims wide = dims;
  wide.insert(wide.begin() + axis + 1, block);
  Dims to;
  for (int d = 0; d <= rank; ++d) {
    if (d != axis + 1) to.push_back(d);
  }
  Dims whole = dims;
  whole[at] *= block;
  ValueId value = c.Reshape(c.b().Broadcast(c.In(operand), wide, to), whole);
  if (whole != x) {
    value = c.Add1("slice", {value},
                   {{"starts", Dims(x.size(), 0)}, {"limits", x}, {"strides", Dims(x.size(), 1)}});
  }
  return Computed(c, value);
}

// saturate(round(x) + zero) for a float expression x; zero < 0: none.
int Saturate(ExprBuilder& e, int x, DType wide, int zero, DType out) {
  int q = e.Unary(ScalarOp::kRound, x);
  if (zero >= 0) q = e.Binary(ScalarOp::kAdd, q, e.Cast(wide, zero));
  const Range range = RangeOf(out);
  q = e.Binary(ScalarOp::kMax, q, e.Constant(wide, range.low));
  return e.Cast(out, e.Binary(ScalarOp::kMin, q, e.Constant(wide, range.high)));
}

void QuantizeLinear(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int64_t axis = c.Int("axis", 1);
  const int64_t block = c.Int("block_size", 0);
  const bool shifted = c.Has(2);
  const DType out =
      shifted ? c.Type(2).dtype : TypeAttribute(c, "output_dtype").value_or(DType::kU8);
  RangeOf(out);
  const DType scale = c.Type(1).dtype;
  const DType division =
      TypeAttribute(c, "precision").value_or(ir::IsFloat(scale) ? scale : c.Type(0).dtype);
  if (!ir::IsFloat(division)) {
    Unsupported(fmt::format("scales of type {}", ir::DTypeName(scale)));
  }
  std::vector<Tensor> operands = {c.Operand(0), Spread(c, 1, x, axis, block)};
  if (shifted) operands.push_back(Spread(c, 2, x, axis, block));
  c.Out(0, c.MapTensors(operands, [&](ExprBuilder& e, Args a) {
    const int quotient = e.Binary(ScalarOp::kDiv, e.Cast(division, a[0]), e.Cast(division, a[1]));
    const DType wide = Wide(division);
    return Saturate(e, e.Cast(wide, quotient), wide, shifted ? a[2] : -1, out);
  }));
}

void DequantizeLinear(NodeContext& c) {
  const Dims x = c.Shape(0);
  const int64_t axis = c.Int("axis", 1);
  const int64_t block = c.Int("block_size", 0);
  const bool shifted = c.Has(2);
  const DType scale = c.Type(1).dtype;
  const DType out = TypeAttribute(c, "output_dtype").value_or(scale);
  if (!ir::IsInteger(c.Type(0).dtype) || !ir::IsFloat(scale) || !ir::IsFloat(out)) {
    Unsupported(fmt::format("values of type {} with scales of type {}",
                            ir::DTypeName(c.Type(0).dtype), ir::DTypeName(scale)));
  }
  std::vector<Tensor> operands = {c.Operand(0), Spread(c, 1, x, axis, block)};
  if (shifted) operands.push_back(Spread(c, 2, x, axis, block));
  c.Out(0, c.MapTensors(operands, [&](ExprBuilder& e, Args a) {
    int value = e.Cast(DType::kI32, a[0]);
    if (shifted) value = e.Binary(ScalarOp::kSub, value, e.Cast(DType::kI32, a[2]));
    const DType wide = Wide(scale);
    return e.Cast(out, e.Binary(ScalarOp::kMul, e.Cast(wide, value), e.Cast(wide, a[1])));
  }));
}

// Operand minus its zero point (already in a form that broadcasts), as `dtype`.
ValueId Centered(NodeContext& c, int operand, const std::optional<Tensor>& zero, DType dtype) {
  std::vector<Tensor> operands = {c.Operand(operand)};
  if (zero.has_value()) operands.push_back(*zero);
  return c.MapTensors(operands, [&](ExprBuilder& e, Args a) {
    const int value = e.Cast(dtype, a[0]);
    return zero.has_value() ? e.Binary(ScalarOp::kSub, value, e.Cast(dtype, a[1])) : value;
  });
}

// Scales and zero points of matrix rows come as a vector; those of columns broadcast as they are.
Tensor PerRow(NodeContext& c, int operand) {
  const Dims& dims = c.Shape(operand);
  if (dims.size() != 1 || dims[0] == 1) return c.Operand(operand);
  return Computed(c, c.Reshape(c.In(operand), {dims[0], 1}));
}

// numpy's matmul of two i32 tensors.
ValueId MatMul(NodeContext& c, ValueId a, ValueId b) {
  Dims da = c.b().type(a).dims;
  Dims db = c.b().type(b).dims;
  if (da.empty() || db.empty()) Fail("operands must have at least one dim");
  const bool row = da.size() == 1;
  const bool column = db.size() == 1;
  if (row) da.insert(da.begin(), 1);
  if (column) db.push_back(1);
  const size_t na = da.size() - 2;
  const size_t nb = db.size() - 2;
  if (da[na + 1] != db[nb]) {
    Fail(fmt::format("cannot multiply {} by {}", FormatDims(da), FormatDims(db)));
  }
  const Dims batch =
      OrFail(ir::BroadcastDims(Dims(da.begin(), da.end() - 2), Dims(db.begin(), db.end() - 2)));
  if (batch.size() > 20) Unsupported("more than 20 batch dims");
  Dims full_a = batch;
  full_a.insert(full_a.end(), da.end() - 2, da.end());
  Dims full_b = batch;
  full_b.insert(full_b.end(), db.end() - 2, db.end());
  std::string letters;
  for (size_t i = 0; i < batch.size(); ++i) letters += static_cast<char>('a' + i);
  const ValueId product = c.Add1(
      "dot", {c.BroadcastTo(c.Reshape(a, da), full_a), c.BroadcastTo(c.Reshape(b, db), full_b)},
      {{"spec", letters + "xy," + letters + "yz->" + letters + "xz"}});
  Dims out = batch;
  if (!row) out.push_back(da[na]);
  if (!column) out.push_back(db[nb + 1]);
  return c.Reshape(product, out);
}

std::optional<Tensor> Optional(NodeContext& c, int operand) {
  if (!c.Has(operand)) return std::nullopt;
  return c.Operand(operand);
}

void MatMulInteger(NodeContext& c) {
  std::optional<Tensor> zero_a;
  if (c.Has(2)) zero_a = PerRow(c, 2);
  const ValueId a = Centered(c, 0, zero_a, DType::kI32);
  c.Out(0, MatMul(c, a, Centered(c, 1, Optional(c, 3), DType::kI32)));
}

// acc * (scale_x * scale_w / scale_y) rounded, shifted and saturated to the type of `zero`.
ValueId Requantize(NodeContext& c, ValueId acc, const Tensor& scale_x, const Tensor& scale_w,
                   const Tensor& scale_y, const Tensor& zero) {
  const DType wide = Wide(scale_x.type.dtype);
  return c.MapTensors(
      {Computed(c, acc), scale_x, scale_w, scale_y, zero}, [&](ExprBuilder& e, Args a) {
        const int product = e.Binary(ScalarOp::kMul, e.Cast(wide, a[1]), e.Cast(wide, a[2]));
        const int factor = e.Binary(ScalarOp::kDiv, product, e.Cast(wide, a[3]));
        const int y = e.Binary(ScalarOp::kMul, e.Cast(wide, a[0]), factor);
        return Saturate(e, y, wide, a[4], zero.type.dtype);
      });
}

void QLinearMatMul(NodeContext& c) {
  const ValueId a = Centered(c, 0, PerRow(c, 2), DType::kI32);
  const ValueId product = MatMul(c, a, Centered(c, 3, c.Operand(5), DType::kI32));
  c.Out(0, Requantize(c, product, PerRow(c, 1), c.Operand(4), PerRow(c, 6), PerRow(c, 7)));
}

// One value or one per output channel, for tensors of `rank` whose channels are dim `axis`.
Tensor PerChannel(NodeContext& c, int operand, int rank, int axis) {
  const Dims& dims = c.Shape(operand);
  if (dims.size() != 1 || dims[0] == 1) return c.Operand(operand);
  Dims shape(static_cast<size_t>(rank - axis), 1);
  shape[0] = dims[0];
  return Computed(c, c.Reshape(c.In(operand), shape));
}

// Exact products and sums of the centered integers, as f64.
ValueId ExactConv(NodeContext& c, int x, int x_zero, int w, int w_zero) {
  const Window window = ConvWindow(c, x, w);
  std::optional<Tensor> zero_w;
  if (c.Has(w_zero)) zero_w = PerChannel(c, w_zero, c.Type(w).rank(), 0);
  const ValueId centered = Centered(c, x, Optional(c, x_zero), DType::kF64);
  return c.Add1("conv", {centered, Centered(c, w, zero_w, DType::kF64)},
                ConvAttributes(window, c.Int("group", 1)));
}

void ConvInteger(NodeContext& c) { c.Out(0, c.b().Cast(DType::kI32, ExactConv(c, 0, 2, 1, 3))); }

void QLinearConv(NodeContext& c) {
  ValueId acc = ExactConv(c, 0, 2, 3, 5);
  const int rank = c.Type(0).rank();
  if (c.Has(8)) {
    acc = c.MapTensors({Computed(c, acc), PerChannel(c, 8, rank, 1)}, [&](ExprBuilder& e, Args a) {
      return e.Binary(ScalarOp::kAdd, a[0], e.Cast(DType::kF64, a[1]));
    });
  }
  c.Out(0, Requantize(c, acc, c.Operand(1), PerChannel(c, 4, rank, 1), c.Operand(6), c.Operand(7)));
}

}  // namespace

void RegisterQuantizationImporters(ImportTable& t) {
  t.Add({"QuantizeLinear",
         10,
         25,
         QuantizeLinear,
         "map; per tensor, axis or block; 8-bit floats and types below 8 bits are refused",
         {},
         {},
         kNoGradient});
  t.Add({"DequantizeLinear", 10, 25, DequantizeLinear,
         "map; per tensor, axis or block, with a gradient to the scale; 8-bit floats and types "
         "below 8 bits are refused"});
  t.Add({"MatMulInteger", 10, 10, MatMulInteger, "map and dot in i32", {}, {}, kNoGradient});
  t.Add({"QLinearMatMul", 10, 21, QLinearMatMul, "map, dot in i32 and map", {}, {}, kNoGradient});
  t.Add({"ConvInteger", 10, 10, ConvInteger, "map, conv in f64 (exact)", {}, {}, kNoGradient});
  t.Add({"QLinearConv",
         10,
         10,
         QLinearConv,
         "map, conv in f64 (exact) and map",
         {},
         {},
         kNoGradient});
}

}  // namespace hyper::onnx_frontend
