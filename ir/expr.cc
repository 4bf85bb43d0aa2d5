#include "ir/expr.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

using R = ScalarOpInfo::Result;
using T = ScalarOpInfo::Takes;
// In enum order: op, name, arity, result, operands.
constexpr ScalarOpInfo kScalarOps[] = {
    {ScalarOp::kInput, "input", 0, R::kSpecial, T::kNumbers},
    {ScalarOp::kConstant, "constant", 0, R::kSpecial, T::kNumbers},
    {ScalarOp::kNeg, "neg", 1, R::kSame, T::kNumbers},
    {ScalarOp::kAbs, "abs", 1, R::kSame, T::kNumbers},
    {ScalarOp::kSign, "sign", 1, R::kSame, T::kNumbers},
    {ScalarOp::kExp, "exp", 1, R::kSame, T::kFloats},
    {ScalarOp::kExpm1, "expm1", 1, R::kSame, T::kFloats},
    {ScalarOp::kLog, "log", 1, R::kSame, T::kFloats},
    {ScalarOp::kLog1p, "log1p", 1, R::kSame, T::kFloats},
    {ScalarOp::kSqrt, "sqrt", 1, R::kSame, T::kFloats},
    {ScalarOp::kRsqrt, "rsqrt", 1, R::kSame, T::kFloats},
    {ScalarOp::kReciprocal, "reciprocal", 1, R::kSame, T::kFloats},
    {ScalarOp::kSin, "sin", 1, R::kSame, T::kFloats},
    {ScalarOp::kCos, "cos", 1, R::kSame, T::kFloats},
    {ScalarOp::kTan, "tan", 1, R::kSame, T::kFloats},
    {ScalarOp::kAsin, "asin", 1, R::kSame, T::kFloats},
    {ScalarOp::kAcos, "acos", 1, R::kSame, T::kFloats},
    {ScalarOp::kAtan, "atan", 1, R::kSame, T::kFloats},
    {ScalarOp::kSinh, "sinh", 1, R::kSame, T::kFloats},
    {ScalarOp::kCosh, "cosh", 1, R::kSame, T::kFloats},
    {ScalarOp::kTanh, "tanh", 1, R::kSame, T::kFloats},
    {ScalarOp::kAsinh, "asinh", 1, R::kSame, T::kFloats},
    {ScalarOp::kAcosh, "acosh", 1, R::kSame, T::kFloats},
    {ScalarOp::kAtanh, "atanh", 1, R::kSame, T::kFloats},
    {ScalarOp::kErf, "erf", 1, R::kSame, T::kFloats},
    {ScalarOp::kSigmoid, "sigmoid", 1, R::kSame, T::kFloats},
    {ScalarOp::kFloor, "floor", 1, R::kSame, T::kFloats},
    {ScalarOp::kCeil, "ceil", 1, R::kSame, T::kFloats},
    {ScalarOp::kRound, "round", 1, R::kSame, T::kFloats},
    {ScalarOp::kNot, "not", 1, R::kSame, T::kBits},
    {ScalarOp::kIsNan, "isnan", 1, R::kBool, T::kFloats},
    {ScalarOp::kIsInf, "isinf", 1, R::kBool, T::kFloats},
    {ScalarOp::kCast, "cast", 1, R::kSpecial, T::kNumbers},
    {ScalarOp::kBitcast, "bitcast", 1, R::kSpecial, T::kNumbers},
    {ScalarOp::kAdd, "add", 2, R::kSame, T::kNumbers},
    {ScalarOp::kSub, "sub", 2, R::kSame, T::kNumbers},
    {ScalarOp::kMul, "mul", 2, R::kSame, T::kNumbers},
    {ScalarOp::kDiv, "div", 2, R::kSame, T::kNumbers},
    {ScalarOp::kPow, "pow", 2, R::kSame, T::kNumbers},
    {ScalarOp::kMod, "mod", 2, R::kSame, T::kNumbers},
    {ScalarOp::kFmod, "fmod", 2, R::kSame, T::kNumbers},
    {ScalarOp::kMin, "min", 2, R::kSame, T::kNumbers},
    {ScalarOp::kMax, "max", 2, R::kSame, T::kNumbers},
    {ScalarOp::kEq, "eq", 2, R::kBool, T::kNumbers},
    {ScalarOp::kNe, "ne", 2, R::kBool, T::kNumbers},
    {ScalarOp::kLt, "lt", 2, R::kBool, T::kNumbers},
    {ScalarOp::kLe, "le", 2, R::kBool, T::kNumbers},
    {ScalarOp::kGt, "gt", 2, R::kBool, T::kNumbers},
    {ScalarOp::kGe, "ge", 2, R::kBool, T::kNumbers},
    {ScalarOp::kAnd, "and", 2, R::kSame, T::kBits},
    {ScalarOp::kOr, "or", 2, R::kSame, T::kBits},
    {ScalarOp::kXor, "xor", 2, R::kSame, T::kBits},
    {ScalarOp::kShiftLeft, "shl", 2, R::kSame, T::kIntegers},
    {ScalarOp::kShiftRight, "shr", 2, R::kSame, T::kIntegers},
    {ScalarOp::kSelect, "select", 3, R::kSpecial, T::kNumbers},
};
static_assert(std::size(kScalarOps) == static_cast<size_t>(ScalarOp::kSelect) + 1);

// Every value of `narrow` is a value of `wide`.
bool HoldsExactly(DType wide, DType narrow) {
  auto mantissa = [](DType d) {
    return d == DType::kF64 ? 53 : d == DType::kF32 ? 24 : d == DType::kF16 ? 11 : 8;
  };
  auto is_signed = [](DType d) { return d >= DType::kI8 && d <= DType::kI64; };
  const int bits = static_cast<int>(DTypeBytes(narrow)) * 8;
  if (narrow == DType::kBool) return true;
  if (wide == DType::kBool) return false;
  if (IsFloat(narrow)) return wide == DType::kF64 || (wide == DType::kF32 && narrow > DType::kF64);
  if (IsFloat(wide)) return bits - (is_signed(narrow) ? 1 : 0) <= mantissa(wide);
  const int wide_bits = static_cast<int>(DTypeBytes(wide)) * 8;
  if (is_signed(narrow)) return is_signed(wide) && wide_bits >= bits;
  return is_signed(wide) ? wide_bits > bits : wide_bits >= bits;
}

}  // namespace

std::span<const ScalarOpInfo> ScalarOps() { return kScalarOps; }
const ScalarOpInfo& InfoOf(ScalarOp op) { return kScalarOps[static_cast<size_t>(op)]; }

bool ExprNode::operator==(const ExprNode& other) const {
  return op == other.op && dtype == other.dtype && args == other.args && input == other.input &&
         std::bit_cast<uint64_t>(float_value) == std::bit_cast<uint64_t>(other.float_value) &&
         int_value == other.int_value;
}

int Expr::input_count() const {
  int count = 0;
  for (const ExprNode& n : nodes_) count = std::max(count, n.input + 1);
  return count;
}

bool Expr::IsSingleOp(ScalarOp op) const {
  if (nodes_.empty() || root().op != op) return false;
  return std::all_of(nodes_.begin(), nodes_.end() - 1, [](const ExprNode& n) {
    return n.op == ScalarOp::kInput || n.op == ScalarOp::kConstant;
  });
}

int ExprBuilder::Intern(ExprNode node) {
  // Expressions are small; the newest nodes are the likeliest matches.
  for (size_t i = nodes_.size(); i-- > 0;) {
    if (nodes_[i] == node) return static_cast<int>(i);
  }
  nodes_.push_back(node);
  return static_cast<int>(nodes_.size()) - 1;
}

int ExprBuilder::Input(int index, DType dtype) {
  HYPER_CHECK(index >= 0, "negative expression input");
  ExprNode node;
  node.op = ScalarOp::kInput;
  node.dtype = dtype;
  node.input = index;
  return Intern(node);
}

int ExprBuilder::Constant(DType dtype, double value) {
  ExprNode node;
  node.op = ScalarOp::kConstant;
  node.dtype = dtype;
  if (IsFloat(dtype)) {
    // One NaN, so that equal expressions are equal bit for bit.
    node.float_value = std::isnan(value) ? std::nan("") : RoundFloat(dtype, value);
  } else {
    node.int_value = CastScalar(DType::kF64, dtype, {value, 0}).i;
  }
  return Intern(node);
}

int ExprBuilder::ConstantInt(DType dtype, int64_t value) {
  if (IsFloat(dtype)) return Constant(dtype, CastScalar(DType::kI64, dtype, {0, value}).f);
  ExprNode node;
  node.op = ScalarOp::kConstant;
  node.dtype = dtype;
  node.int_value = WrapInt(dtype, value);
  return Intern(node);
}

namespace {

bool IsConstant(const ExprNode& n) { return n.op == ScalarOp::kConstant; }

bool IsValue(const ExprNode& n, double value) {
  if (!IsConstant(n)) return false;
  if (IsFloat(n.dtype)) return n.float_value == value && !std::signbit(n.float_value);
  return n.int_value == static_cast<int64_t>(value);
}

bool IsMinusZero(const ExprNode& n) {
  return IsConstant(n) && IsFloat(n.dtype) && n.float_value == 0 && std::signbit(n.float_value);
}

Scalar ValueOf(const ExprNode& n) { return {n.float_value, n.int_value}; }

DType CheckedResult(ScalarOp op, std::initializer_list<DType> args) {
  auto result = ResultDType(op, std::span(args.begin(), args.size()));
  HYPER_CHECK(result.ok(), result.status().message());
  return *result;
}

}  // namespace

int ExprBuilder::Unary(ScalarOp op, int x) {
  const ExprNode a = nodes_[static_cast<size_t>(x)];
  const DType dtype = CheckedResult(op, {a.dtype});
  if ((op == ScalarOp::kNeg || op == ScalarOp::kNot) && a.op == op) return a.args[0];
  if (IsConstant(a)) {
    const Scalar v = ValueOf(a);
    const Scalar r = EvaluateScalar(op, a.dtype, std::span(&v, 1));
    return IsFloat(dtype) ? Constant(dtype, r.f) : ConstantInt(dtype, r.i);
  }
  ExprNode node;
  node.op = op;
  node.dtype = dtype;
  node.args[0] = x;
  return Intern(node);
}

int ExprBuilder::Binary(ScalarOp op, int x, int y) {
  const ExprNode a = nodes_[static_cast<size_t>(x)];
  const ExprNode b = nodes_[static_cast<size_t>(y)];
  const DType dtype = CheckedResult(op, {a.dtype, b.dtype});
  if (IsConstant(a) && IsConstant(b)) {
    const Scalar v[2] = {ValueOf(a), ValueOf(b)};
    const Scalar r = EvaluateScalar(op, a.dtype, v);
    return IsFloat(dtype) ? Constant(dtype, r.f) : ConstantInt(dtype, r.i);
  }
  const bool is_float = IsFloat(a.dtype);
  switch (op) {
    case ScalarOp::kAdd:  // x + 0 is not x for x = -0
      if (is_float ? IsMinusZero(b) : IsValue(b, 0)) return x;
      if (is_float ? IsMinusZero(a) : IsValue(a, 0)) return y;
      break;
    case ScalarOp::kSub:
      if (IsValue(b, 0)) return x;
      break;
    case ScalarOp::kMul:
      if (IsValue(b, 1)) return x;
      if (IsValue(a, 1)) return y;
      break;
    case ScalarOp::kDiv:
      if (IsValue(b, 1)) return x;
      break;
    case ScalarOp::kPow:  // pow is correctly rounded in these two cases
      if (IsValue(b, 1)) return x;
      if (IsValue(b, 2)) return Binary(ScalarOp::kMul, x, x);
      break;
    default: break;
  }
  ExprNode node;
  node.op = op;
  node.dtype = dtype;
  node.args[0] = x;
  node.args[1] = y;
  return Intern(node);
}

int ExprBuilder::Select(int condition, int x, int y) {
  const ExprNode c = nodes_[static_cast<size_t>(condition)];
  const DType dtype_x = nodes_[static_cast<size_t>(x)].dtype;
  const DType dtype_y = nodes_[static_cast<size_t>(y)].dtype;
  const DType dtype = CheckedResult(ScalarOp::kSelect, {c.dtype, dtype_x, dtype_y});
  if (x == y) return x;
  if (IsConstant(c)) return c.int_value != 0 ? x : y;
  ExprNode node;
  node.op = ScalarOp::kSelect;
  node.dtype = dtype;
  node.args = {condition, x, y};
  return Intern(node);
}

int ExprBuilder::Cast(DType dtype, int x) {
  const ExprNode a = nodes_[static_cast<size_t>(x)];
  if (a.dtype == dtype) return x;
  if (IsConstant(a)) {
    const Scalar r = CastScalar(a.dtype, dtype, ValueOf(a));
    return IsFloat(dtype) ? Constant(dtype, r.f) : ConstantInt(dtype, r.i);
  }
  if (a.op == ScalarOp::kCast) {  // there and back, or two widenings: nothing was lost
    const DType source = nodes_[static_cast<size_t>(a.args[0])].dtype;
    // Integers wrap but floats saturate on the way to a smaller integer.
    const bool detour = IsInteger(source) && IsFloat(a.dtype) && IsInteger(dtype);
    if (HoldsExactly(a.dtype, source) && (!detour || HoldsExactly(dtype, source))) {
      return Cast(dtype, a.args[0]);
    }
  }
  ExprNode node;
  node.op = ScalarOp::kCast;
  node.dtype = dtype;
  node.args[0] = x;
  return Intern(node);
}

int ExprBuilder::Bitcast(DType dtype, int x) {
  const ExprNode a = nodes_[static_cast<size_t>(x)];
  HYPER_CHECK(DTypeBytes(a.dtype) == DTypeBytes(dtype), "bitcast to another width");
  if (a.dtype == dtype) return x;
  if (IsConstant(a) && !(IsFloat(a.dtype) && std::isnan(a.float_value))) {
    const Scalar r = BitcastScalar(a.dtype, dtype, ValueOf(a));
    // Constants know one NaN only.
    if (!IsFloat(dtype)) return ConstantInt(dtype, r.i);
    if (!std::isnan(r.f)) return Constant(dtype, r.f);
  }
  ExprNode node;
  node.op = ScalarOp::kBitcast;
  node.dtype = dtype;
  node.args[0] = x;
  return Intern(node);
}

int ExprBuilder::Splice(const Expr& expr, std::span<const int> inputs) {
  std::vector<int> map(expr.nodes().size());
  for (size_t i = 0; i < map.size(); ++i) {
    const ExprNode& n = expr.nodes()[i];
    auto arg = [&](int k) { return map[static_cast<size_t>(n.args[static_cast<size_t>(k)])]; };
    switch (n.op) {
      case ScalarOp::kInput:
        map[i] = inputs[static_cast<size_t>(n.input)];
        HYPER_CHECK(nodes_[static_cast<size_t>(map[i])].dtype == n.dtype,
                    "spliced input has another dtype");
        break;
      case ScalarOp::kConstant: map[i] = Intern(n); break;
      case ScalarOp::kCast: map[i] = Cast(n.dtype, arg(0)); break;
      case ScalarOp::kBitcast: map[i] = Bitcast(n.dtype, arg(0)); break;
      case ScalarOp::kSelect: map[i] = Select(arg(0), arg(1), arg(2)); break;
      default:
        map[i] = InfoOf(n.op).arity == 1 ? Unary(n.op, arg(0)) : Binary(n.op, arg(0), arg(1));
    }
  }
  return map.back();
}

Expr ExprBuilder::Build(int root) const {
  // Post-order from the root, arguments left to right: the order does not depend on how the
  // expression was put together.
  std::vector<int> number(nodes_.size(), -1);
  std::vector<std::pair<int, size_t>> stack = {{root, 0}};
  Expr expr;
  while (!stack.empty()) {
    auto& [index, next] = stack.back();
    const ExprNode& node = nodes_[static_cast<size_t>(index)];
    if (number[static_cast<size_t>(index)] >= 0) {
      stack.pop_back();
      continue;
    }
    if (next < node.args.size() && node.args[next] >= 0) {
      const int arg = node.args[next++];
      if (number[static_cast<size_t>(arg)] < 0) stack.emplace_back(arg, 0);
      continue;
    }
    ExprNode copy = node;
    for (int32_t& a : copy.args) {
      if (a >= 0) a = number[static_cast<size_t>(a)];
    }
    number[static_cast<size_t>(index)] = static_cast<int>(expr.nodes_.size());
    expr.nodes_.push_back(copy);
    stack.pop_back();
  }
  return expr;
}

}  // namespace hyper::ir
