// Operators on the bits of elements: each becomes one `map`.
#include <fmt/format.h>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

void RequireIntegers(NodeContext& c) {
  for (int i = 0; i < c.input_count(); ++i) {
    if (!ir::IsInteger(c.Type(i).dtype)) {
      Fail(fmt::format("operand {} is {}; integers are expected", i,
                       ir::DTypeName(c.Type(i).dtype)));
    }
    if (c.Type(i).dtype != c.Type(0).dtype) {
      Fail(fmt::format("operands have different element types, {} and {}",
                       ir::DTypeName(c.Type(0).dtype), ir::DTypeName(c.Type(i).dtype)));
    }
  }
}

void BitwiseNot(NodeContext& c) {
  RequireIntegers(c);
  c.Out(0, c.MapInputs({0}, [](ExprBuilder& e, Args x) { return e.Unary(ScalarOp::kNot, x[0]); }));
}

void BinaryOf(NodeContext& c, ScalarOp op) {
  RequireIntegers(c);
  c.Out(0, c.MapInputs({0, 1}, [op](ExprBuilder& e, Args x) { return e.Binary(op, x[0], x[1]); }));
}
void BitwiseAnd(NodeContext& c) { BinaryOf(c, ScalarOp::kAnd); }
void BitwiseOr(NodeContext& c) { BinaryOf(c, ScalarOp::kOr); }
void BitwiseXor(NodeContext& c) { BinaryOf(c, ScalarOp::kXor); }

void BitShift(NodeContext& c) {
  const std::string direction = c.String("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") {
    Fail(fmt::format("direction is '{}'; LEFT and RIGHT are possible", direction));
  }
  BinaryOf(c, direction == "LEFT" ? ScalarOp::kShiftLeft : ScalarOp::kShiftRight);
}

void BitCast(NodeContext& c) {
  const int to = static_cast<int>(c.Int("to", 0));
  const std::optional<DType> named = DTypeFromOnnx(to);
  if (!named.has_value()) Refuse(RefusalOfElementType(to), "reinterpreting as " + OnnxTypeName(to));
  // In double precision the file's f32 is f64: its bits are taken from, or given to, an f32.
  const auto bytes = [](DType t) { return ir::DTypeBytes(t); };
  DType from = c.Type(0).dtype;
  const bool widened = c.mode().double_precision;
  if (widened && from == DType::kF64 && bytes(*named) == 4) from = DType::kF32;
  if (bytes(from) != bytes(*named)) {
    Fail(fmt::format("{} has {} bytes and {} has {}; types of one width are expected",
                     ir::DTypeName(from), bytes(from), ir::DTypeName(*named), bytes(*named)));
  }
  const DType result = widened && *named == DType::kF32 ? DType::kF64 : *named;
  if (c.Type(0).dtype == result) {
    c.Forward(0, 0);
    return;
  }
  c.Out(0, c.MapValues({c.In(0)}, [&](ExprBuilder& e, Args x) {
    return e.Cast(result, e.Bitcast(*named, e.Cast(from, x[0])));
  }));
}

constexpr std::string_view kInteger = "its operands are integers";
constexpr std::string_view kBits = "it takes bits, not values";

}  // namespace

void RegisterBitsImporters(ImportTable& t) {
  t.Add({"BitwiseAnd", 18, 18, BitwiseAnd, "map with numpy broadcasting", {}, {}, kInteger});
  t.Add({"BitwiseOr", 18, 18, BitwiseOr, "map with numpy broadcasting", {}, {}, kInteger});
  t.Add({"BitwiseXor", 18, 18, BitwiseXor, "map with numpy broadcasting", {}, {}, kInteger});
  t.Add({"BitwiseNot", 18, 18, BitwiseNot, "map", {}, {}, kInteger});
  t.Add({"BitShift", 11, 11, BitShift, "map; a shift beyond the width gives 0", {}, {}, kInteger});
  t.Add({"BitCast", 26, 26, BitCast, "map; to bool: not zero", {}, {}, kBits});
}

}  // namespace hyper::onnx_frontend
