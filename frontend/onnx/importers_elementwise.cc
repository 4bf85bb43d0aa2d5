// Arithmetic, comparisons, logic, casts: each becomes one `map`.
#include <fmt/format.h>

#include <cmath>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {
namespace {

void CheckSameType(const NodeContext& c, int a, int b) {
  if (c.Type(a).dtype != c.Type(b).dtype) {
    Fail(fmt::format("operands have different element types, {} and {}",
                     ir::DTypeName(c.Type(a).dtype), ir::DTypeName(c.Type(b).dtype)));
  }
}

template <ScalarOp op>
void Unary(NodeContext& c) {
  c.Out(0, c.MapInputs({0}, [](ExprBuilder& e, Args x) { return e.Unary(op, x[0]); }));
}

template <ScalarOp op>
void Binary(NodeContext& c) {
  CheckSameType(c, 0, 1);
  c.Out(0, c.MapInputs({0, 1}, [](ExprBuilder& e, Args x) { return e.Binary(op, x[0], x[1]); }));
}

template <ScalarOp op>
void Variadic(NodeContext& c) {
  ir::ValueId result = c.In(0);
  for (int i = 1; i < c.input_count(); ++i) {
    CheckSameType(c, 0, i);
    Tensor left{c.b().type(result), result, {}, false};
    result = c.MapTensors({left, c.Operand(i)},
                          [](ExprBuilder& e, Args x) { return e.Binary(op, x[0], x[1]); });
  }
  c.Out(0, result);
}

void Mean(NodeContext& c) {
  Variadic<ScalarOp::kAdd>(c);
  const double count = c.input_count();
  c.Out(0, c.MapValues({c.outputs()[0].value}, [count](ExprBuilder& e, Args x) {
    return e.Binary(ScalarOp::kDiv, x[0],
                    e.Constant(e.nodes()[static_cast<size_t>(x[0])].dtype, count));
  }));
}

void Reciprocal(NodeContext& c) { Unary<ScalarOp::kReciprocal>(c); }

void Mod(NodeContext& c) {
  if (c.Int("fmod", 0) != 0) {
    Binary<ScalarOp::kFmod>(c);
    return;
  }
  if (ir::IsFloat(c.Type(0).dtype)) Fail("fmod must be 1 for floating point operands");
  Binary<ScalarOp::kMod>(c);
}

void Pow(NodeContext& c) {
  const DType base = c.Type(0).dtype;
  const DType power = c.Type(1).dtype;
  const std::optional<double> constant = SplatValue(c.Operand(1));
  // Small constant powers as products: exact, and what exporters' frameworks compute.
  if (constant.has_value() && (*constant == 2 || *constant == 3)) {
    const bool cube = *constant == 3;
    c.Out(0, c.MapInputs({0, 1}, [cube](ExprBuilder& e, Args x) {
      const int square = e.Binary(ScalarOp::kMul, x[0], x[0]);
      return cube ? e.Binary(ScalarOp::kMul, square, x[0]) : square;
    }));
    return;
  }
  if (constant == 0.5 && ir::IsFloat(base)) {
    c.Out(0, c.MapInputs({0, 1},
                         [](ExprBuilder& e, Args x) { return e.Unary(ScalarOp::kSqrt, x[0]); }));
    return;
  }
  c.Out(0, c.MapInputs({0, 1}, [base, power](ExprBuilder& e, Args x) {
    // Integer bases with fractional powers go through f64 and are truncated.
    if (!ir::IsFloat(base)) {
      const int r = e.Binary(ScalarOp::kPow, e.Cast(DType::kF64, x[0]), e.Cast(DType::kF64, x[1]));
      return e.Cast(base, r);
    }
    return e.Binary(ScalarOp::kPow, x[0], power == base ? x[1] : e.Cast(base, x[1]));
  }));
}

void IsInf(NodeContext& c) {
  const bool positive = c.Int("detect_positive", 1) != 0;
  const bool negative = c.Int("detect_negative", 1) != 0;
  c.Out(0, c.MapInputs({0}, [&](ExprBuilder& e, Args x) {
    const DType dtype = e.nodes()[static_cast<size_t>(x[0])].dtype;
    const int inf = e.Unary(ScalarOp::kIsInf, x[0]);
    const int zero = e.Constant(dtype, 0);
    if (positive && negative) return inf;
    const ScalarOp side = positive ? ScalarOp::kGt : ScalarOp::kLt;
    const int sign = e.Binary(side, x[0], zero);
    if (positive || negative) return e.Binary(ScalarOp::kAnd, inf, sign);
    return e.Binary(ScalarOp::kNe, x[0], x[0] == zero ? zero : x[0]);
  }));
  if (!positive && !negative) {
    c.OutConstant(0, ir::HostTensor::Zeros({DType::kBool, c.Shape(0)}));
  }
}

void Where(NodeContext& c) {
  CheckSameType(c, 1, 2);
  if (c.Type(0).dtype != DType::kBool) Fail("the condition must be bool");
  c.Out(0,
        c.MapInputs({0, 1, 2}, [](ExprBuilder& e, Args x) { return e.Select(x[0], x[1], x[2]); }));
}

void CastTo(NodeContext& c, DType to) {
  if (c.Type(0).dtype == to) {
    c.Forward(0, 0);
    return;
  }
  c.Out(0, c.MapInputs({0}, [to](ExprBuilder& e, Args x) { return e.Cast(to, x[0]); }));
}

void Cast(NodeContext& c) {
  const int to = static_cast<int>(c.Int("to", 0));
  const std::optional<DType> dtype = DTypeFromOnnx(to);
  if (!dtype.has_value()) Refuse(RefusalOfElementType(to), "casting to " + OnnxTypeName(to));
  // In double precision nothing is rounded to f32 on the way.
  CastTo(c, c.mode().double_precision && *dtype == DType::kF32 ? DType::kF64 : *dtype);
}

void CastLike(NodeContext& c) { CastTo(c, c.Type(1).dtype); }

// The core operators take integers, too; those have ONNX operators of their own.
void RequireBool(const NodeContext& c, int operands) {
  for (int i = 0; i < operands; ++i) {
    if (c.Type(i).dtype == DType::kBool) continue;
    Fail(fmt::format("operand {} is {}; bool is expected", i, ir::DTypeName(c.Type(i).dtype)));
  }
}
void Not(NodeContext& c) {
  RequireBool(c, 1);
  Unary<ScalarOp::kNot>(c);
}
template <ScalarOp op>
void Logic(NodeContext& c) {
  RequireBool(c, 2);
  Binary<op>(c);
}

template <ScalarOp op>
ImportTarget UnaryTarget(std::string_view name, int oldest, int newest,
                         std::string_view no_gradient = {}) {
  return {name, oldest, newest, Unary<op>, "map", {}, {}, no_gradient};
}
template <ScalarOp op>
ImportTarget BinaryTarget(std::string_view name, int oldest, int newest,
                          std::string_view no_gradient = {}) {
  return {name, oldest, newest, Binary<op>, "map with numpy broadcasting", {}, {}, no_gradient};
}

constexpr std::string_view kStep = "its derivative is zero almost everywhere";
constexpr std::string_view kBool = "its result is bool";

}  // namespace

void RegisterElementwiseImporters(ImportTable& t) {
  t.Add(BinaryTarget<ScalarOp::kAdd>("Add", 7, 14));
  t.Add(BinaryTarget<ScalarOp::kSub>("Sub", 7, 14));
  t.Add(BinaryTarget<ScalarOp::kMul>("Mul", 7, 14));
  t.Add(BinaryTarget<ScalarOp::kDiv>("Div", 7, 14));
  t.Add({"Pow", 7, 15, Pow, "map; powers 2, 3 and 0.5 as products and a root"});
  t.Add({"Mod", 10, 13, Mod, "map (sign of the divisor, or of the dividend with fmod)"});
  t.Add({"Max", 6, 13, Variadic<ScalarOp::kMax>, "a chain of maps"});
  t.Add({"Min", 6, 13, Variadic<ScalarOp::kMin>, "a chain of maps"});
  t.Add({"Sum", 6, 13, Variadic<ScalarOp::kAdd>, "a chain of maps"});
  t.Add({"Mean", 6, 13, Mean, "a chain of maps"});
  t.Add(UnaryTarget<ScalarOp::kNeg>("Neg", 6, 13));
  t.Add(UnaryTarget<ScalarOp::kAbs>("Abs", 6, 13));
  t.Add({"Reciprocal", 6, 13, Reciprocal, "map"});
  t.Add(UnaryTarget<ScalarOp::kSqrt>("Sqrt", 6, 13));
  t.Add(UnaryTarget<ScalarOp::kExp>("Exp", 6, 13));
  t.Add(UnaryTarget<ScalarOp::kLog>("Log", 6, 13));
  t.Add(UnaryTarget<ScalarOp::kErf>("Erf", 9, 13));
  t.Add(UnaryTarget<ScalarOp::kSin>("Sin", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kCos>("Cos", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kTan>("Tan", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kAsin>("Asin", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kAcos>("Acos", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kAtan>("Atan", 7, 22));
  t.Add(UnaryTarget<ScalarOp::kSinh>("Sinh", 9, 22));
  t.Add(UnaryTarget<ScalarOp::kCosh>("Cosh", 9, 22));
  t.Add(UnaryTarget<ScalarOp::kAsinh>("Asinh", 9, 22));
  t.Add(UnaryTarget<ScalarOp::kAcosh>("Acosh", 9, 22));
  t.Add(UnaryTarget<ScalarOp::kAtanh>("Atanh", 9, 22));
  t.Add(UnaryTarget<ScalarOp::kFloor>("Floor", 6, 13, kStep));
  t.Add(UnaryTarget<ScalarOp::kCeil>("Ceil", 6, 13, kStep));
  t.Add(UnaryTarget<ScalarOp::kRound>("Round", 11, 22, kStep));
  t.Add(UnaryTarget<ScalarOp::kSign>("Sign", 9, 13, kStep));
  t.Add({"Not", 1, 1, Not, "map", {}, {}, kBool});
  t.Add(UnaryTarget<ScalarOp::kIsNan>("IsNaN", 9, 20, kBool));
  t.Add({"IsInf", 10, 20, IsInf, "map", {}, {}, kBool});
  t.Add(BinaryTarget<ScalarOp::kEq>("Equal", 7, 19, kBool));
  t.Add(BinaryTarget<ScalarOp::kGt>("Greater", 7, 13, kBool));
  t.Add(BinaryTarget<ScalarOp::kGe>("GreaterOrEqual", 12, 16, kBool));
  t.Add(BinaryTarget<ScalarOp::kLt>("Less", 7, 13, kBool));
  t.Add(BinaryTarget<ScalarOp::kLe>("LessOrEqual", 12, 16, kBool));
  t.Add({"And", 7, 7, Logic<ScalarOp::kAnd>, "map with numpy broadcasting", {}, {}, kBool});
  t.Add({"Or", 7, 7, Logic<ScalarOp::kOr>, "map with numpy broadcasting", {}, {}, kBool});
  t.Add({"Xor", 7, 7, Logic<ScalarOp::kXor>, "map with numpy broadcasting", {}, {}, kBool});
  t.Add({"Where", 9, 16, Where, "map select"});
  t.Add({"Cast", 6, 25, Cast, "map cast; strings, 8-bit floats and 4-bit types are refused"});
  t.Add({"CastLike", 15, 25, CastLike, "as Cast"});
}

}  // namespace hyper::onnx_frontend
