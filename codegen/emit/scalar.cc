#include "codegen/emit/scalar.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/status.h"
#include "ir/float16.h"

namespace hyper::codegen {

using ir::DType;
using ir::ScalarOp;

namespace {

bool IsHalf(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

}  // namespace

std::string CType(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kI8: return "int8_t";
    case DType::kI16: return "int16_t";
    case DType::kI32: return "int32_t";
    case DType::kI64: return "int64_t";
    case DType::kU8: return "uint8_t";
    case DType::kU16: return "uint16_t";
    case DType::kU32: return "uint32_t";
    case DType::kU64: return "uint64_t";
    case DType::kBool: return "bool";
    case DType::kF16: return "hy_f16";
    case DType::kBF16: return "hy_bf16";
  }
  HYPER_CHECK(false, "no C type for " + std::string(ir::DTypeName(dtype)));
}

std::string FloatLiteral(DType dtype, double value) {
  if (IsHalf(dtype)) {
    const uint16_t bits = dtype == DType::kF16 ? ir::HalfBits(value) : ir::BFloat16Bits(value);
    return fmt::format("{}::of({:#x})", CType(dtype), bits);
  }
  const bool single = dtype == DType::kF32;
  if (std::isnan(value)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(value)) {
    return fmt::format("({}__builtin_inf{}())", value < 0 ? "-" : "", single ? "f" : "");
  }
  return fmt::format("{:a}{}", value, single ? "f" : "");
}

std::string IntLiteral(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (value == std::numeric_limits<int64_t>::min()) {
    return fmt::format("{}(-9223372036854775807ll - 1)", CType(dtype));
  }
  return fmt::format("{}({}ll)", CType(dtype), value);
}

namespace {

std::string CallName(ScalarOp op) {
  switch (op) {
    case ScalarOp::kRound: return "hy_round";
    default: return "hy_" + std::string(ir::InfoOf(op).name);
  }
}

// pow with a small constant exponent as multiplications (at most 1.5 ulp from the exact power).
std::string ConstantPower(const std::string& x, double exponent, DType dtype) {
  if (exponent == 1) return x;
  if (exponent == 2) return fmt::format("{0} * {0}", x);
  if (exponent == 3) return fmt::format("{0} * {0} * {0}", x);
  if (exponent == 4) return fmt::format("({0} * {0}) * ({0} * {0})", x);
  if (exponent == -1) return fmt::format("{} / {}", FloatLiteral(dtype, 1), x);
  return {};
}

std::string CastText(DType to, DType from, const std::string& x) {
  if (to == from) return x;
  if (IsHalf(from)) return CastText(to, DType::kF32, fmt::format("(float)({})", x));
  if (to == DType::kBool) return fmt::format("({} != {}(0))", x, CType(from));
  if (ir::IsFloat(from) && !ir::IsFloat(to)) {
    return fmt::format("hy_toint<{}>({})", CType(to), x);
  }
  return fmt::format("({})({})", CType(to), x);
}

std::string NodeText(const ir::Expr& expr, const ir::ExprNode& n,
                     const std::vector<std::string>& t) {
  const auto& nodes = expr.nodes();
  const auto arg = [&](int i) { return t[static_cast<size_t>(n.args[static_cast<size_t>(i)])]; };
  const auto node = [&](int i) -> const ir::ExprNode& {
    return nodes[static_cast<size_t>(n.args[static_cast<size_t>(i)])];
  };
  const std::string type = CType(n.dtype);
  const bool is_float = ir::IsFloat(n.dtype);
  // Small integers are computed in int by C: round back to the type.
  const auto wrap = [&](std::string text) {
    return is_float || n.dtype == DType::kBool ? text : fmt::format("({})({})", type, text);
  };
  switch (n.op) {
    case ScalarOp::kNeg: return wrap(is_float ? "-" + arg(0) : type + "(0) - " + arg(0));
    case ScalarOp::kRsqrt: return fmt::format("{} / hy_sqrt({})", FloatLiteral(n.dtype, 1), arg(0));
    case ScalarOp::kReciprocal: return fmt::format("{} / {}", FloatLiteral(n.dtype, 1), arg(0));
    case ScalarOp::kNot: return n.dtype == DType::kBool ? "!" + arg(0) : wrap("~" + arg(0));
    case ScalarOp::kIsNan: return fmt::format("({0} != {0})", arg(0));
    case ScalarOp::kIsInf: return fmt::format("hy_isinf({})", arg(0));
    case ScalarOp::kCast: return CastText(n.dtype, node(0).dtype, arg(0));
    case ScalarOp::kBitcast:
      if (n.dtype == DType::kBool) return fmt::format("({} != 0)", arg(0));
      return fmt::format("__builtin_bit_cast({}, {})", type, arg(0));
    case ScalarOp::kAdd: return wrap(arg(0) + " + " + arg(1));
    case ScalarOp::kSub: return wrap(arg(0) + " - " + arg(1));
    case ScalarOp::kMul: return wrap(arg(0) + " * " + arg(1));
    case ScalarOp::kDiv:
      return is_float ? arg(0) + " / " + arg(1) : fmt::format("hy_idiv({}, {})", arg(0), arg(1));
    case ScalarOp::kPow:
      if (is_float && node(1).op == ScalarOp::kConstant) {
        if (auto text = ConstantPower(arg(0), node(1).float_value, n.dtype); !text.empty()) {
          return text;
        }
      }
      return fmt::format("hy_pow({}, {})", arg(0), arg(1));
    case ScalarOp::kEq: return fmt::format("({} == {})", arg(0), arg(1));
    case ScalarOp::kNe: return fmt::format("({} != {})", arg(0), arg(1));
    case ScalarOp::kLt: return fmt::format("({} < {})", arg(0), arg(1));
    case ScalarOp::kLe: return fmt::format("({} <= {})", arg(0), arg(1));
    case ScalarOp::kGt: return fmt::format("({} > {})", arg(0), arg(1));
    case ScalarOp::kGe: return fmt::format("({} >= {})", arg(0), arg(1));
    // Non-short-circuit forms keep the loop free of branches.
    case ScalarOp::kAnd: return wrap(fmt::format("({} & {})", arg(0), arg(1)));
    case ScalarOp::kOr: return wrap(fmt::format("({} | {})", arg(0), arg(1)));
    case ScalarOp::kXor: return wrap(fmt::format("({} ^ {})", arg(0), arg(1)));
    case ScalarOp::kShiftLeft:
    case ScalarOp::kShiftRight: return fmt::format("{}({}, {})", CallName(n.op), arg(0), arg(1));
    case ScalarOp::kSelect: return fmt::format("({} ? {} : {})", arg(0), arg(1), arg(2));
    case ScalarOp::kMod:
    case ScalarOp::kMin:
    case ScalarOp::kMax: return fmt::format("{}<{}>({}, {})", CallName(n.op), type, arg(0), arg(1));
    case ScalarOp::kFmod: return fmt::format("hy_fmod({}, {})", arg(0), arg(1));
    default: return fmt::format("{}({})", CallName(n.op), arg(0));
  }
}

}  // namespace

std::string EmitExpr(const ir::Expr& expr, const std::vector<std::string>& inputs,
                     const std::string& prefix, const std::string& indent, std::string* out) {
  std::vector<std::string> text;
  for (size_t i = 0; i < expr.nodes().size(); ++i) {
    const ir::ExprNode& n = expr.nodes()[i];
    if (n.op == ScalarOp::kInput) {
      text.push_back(inputs[static_cast<size_t>(n.input)]);
    } else if (n.op == ScalarOp::kConstant) {
      text.push_back(ir::IsFloat(n.dtype) ? FloatLiteral(n.dtype, n.float_value)
                                          : IntLiteral(n.dtype, n.int_value));
    } else {
      std::string value = NodeText(expr, n, text);
      if (IsHalf(n.dtype)) value = fmt::format("{}({})", CType(n.dtype), value);
      if (i + 1 == expr.nodes().size()) return value;
      std::string name = fmt::format("{}_{}", prefix, i);
      *out += fmt::format("{}const {} {} = {};\n", indent, CType(n.dtype), name, value);
      text.push_back(std::move(name));
    }
  }
  return text.back();
}

int ExprCost(const ir::Expr& expr) {
  int cost = 0;
  for (const ir::ExprNode& n : expr.nodes()) {
    switch (n.op) {
      case ScalarOp::kInput:
      case ScalarOp::kConstant: break;
      case ScalarOp::kDiv:
      case ScalarOp::kSqrt:
      case ScalarOp::kRsqrt:
      case ScalarOp::kReciprocal: cost += 4; break;
      case ScalarOp::kExp:
      case ScalarOp::kExpm1:
      case ScalarOp::kLog:
      case ScalarOp::kLog1p:
      case ScalarOp::kTanh:
      case ScalarOp::kErf:
      case ScalarOp::kSigmoid: cost += 12; break;
      case ScalarOp::kSin:
      case ScalarOp::kCos:
      case ScalarOp::kTan:
      case ScalarOp::kAsin:
      case ScalarOp::kAcos:
      case ScalarOp::kAtan:
      case ScalarOp::kSinh:
      case ScalarOp::kCosh:
      case ScalarOp::kAsinh:
      case ScalarOp::kAcosh:
      case ScalarOp::kAtanh:
      case ScalarOp::kPow:
      case ScalarOp::kMod:
      case ScalarOp::kFmod: cost += 40; break;
      default: cost += 1;
    }
  }
  return cost;
}

std::string ReduceInit(const std::string& kind, DType dtype) {
  if (kind == "and") return "true";
  if (kind == "or") return "false";
  const bool is_float = ir::IsFloat(dtype);
  if (kind == "sum") return is_float ? FloatLiteral(dtype, 0) : CType(dtype) + "(0)";
  if (kind == "prod") return is_float ? FloatLiteral(dtype, 1) : CType(dtype) + "(1)";
  const bool max = kind == "max";
  if (is_float) {
    const double inf = std::numeric_limits<double>::infinity();
    return FloatLiteral(dtype, max ? -inf : inf);
  }
  if (dtype == DType::kBool) return max ? "false" : "true";
  const bool is_unsigned = ir::DTypeName(dtype).front() == 'u';
  const std::string type = CType(dtype);
  const auto bits = ir::DTypeBytes(dtype) * 8;
  if (is_unsigned) return max ? type + "(0)" : fmt::format("({})~{}(0)", type, type);
  const std::string low = fmt::format("({})(1ull << {})", type, bits - 1);
  return max ? low : fmt::format("({})~({})", type, low);
}

std::string ReduceStep(const std::string& kind, DType dtype, const std::string& acc,
                       const std::string& value) {
  if (kind == "and") return fmt::format("{0} = {0} & {1};", acc, value);
  if (kind == "or") return fmt::format("{0} = {0} | {1};", acc, value);
  if (kind == "sum") return fmt::format("{0} = {2}({0} + {1});", acc, value, CType(dtype));
  if (kind == "prod") return fmt::format("{0} = {2}({0} * {1});", acc, value, CType(dtype));
  return fmt::format("{0} = hy_{2}<{3}>({0}, {1});", acc, value, kind, CType(dtype));
}

std::string ReduceClause(const std::string& kind, DType dtype) {
  if (dtype == DType::kBool) return kind == "and" ? "&" : kind == "or" ? "|" : "";
  if (kind == "sum") return "+";
  if (kind == "prod") return "*";
  return kind;  // max, min
}

}  // namespace hyper::codegen
