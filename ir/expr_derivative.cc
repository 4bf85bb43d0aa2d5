// Forward-mode differentiation of scalar expressions: one derivative per node, in the order of the
// nodes, so a shared sub-expression is differentiated once.
#include <cmath>
#include <numbers>

#include "ir/expr.h"

namespace hyper::ir {
namespace {

class Differentiator {
 public:
  Differentiator(const Expr& expr, int input, int output_input)
      : expr_(expr), input_(input), output_input_(output_input) {}

  Result<std::optional<Expr>> Run();

 private:
  int Const(DType t, double v) { return e_.Constant(t, v); }
  int Mul(int a, int b) { return e_.Binary(ScalarOp::kMul, a, b); }
  int Div(int a, int b) { return e_.Binary(ScalarOp::kDiv, a, b); }
  int Add(int a, int b) { return e_.Binary(ScalarOp::kAdd, a, b); }
  int Sub(int a, int b) { return e_.Binary(ScalarOp::kSub, a, b); }
  int Neg(int a) { return e_.Unary(ScalarOp::kNeg, a); }
  int Value(int node) const { return values_[static_cast<size_t>(node)]; }
  // Derivative of a node, -1: identically zero.
  int Tangent(int node) const { return tangents_[static_cast<size_t>(node)]; }
  int OrZero(int tangent, DType t) { return tangent >= 0 ? tangent : Const(t, 0); }

  // d f / d argument for unary f at x with value y, or -1 for zero.
  Result<int> UnaryFactor(const ExprNode& n, int x, int y);
  Result<int> BinaryTangent(const ExprNode& n, int y);
  Result<int> NodeTangent(const ExprNode& n, int y);

  const Expr& expr_;
  int input_;
  int output_input_;
  ExprBuilder e_;
  std::vector<int> values_;
  std::vector<int> tangents_;
};

Result<int> Differentiator::UnaryFactor(const ExprNode& n, int x, int y) {
  const DType t = n.dtype;
  auto one = [&] { return Const(t, 1); };
  switch (n.op) {
    case ScalarOp::kNeg: return Const(t, -1);
    case ScalarOp::kAbs: return e_.Unary(ScalarOp::kSign, x);
    case ScalarOp::kSign:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound: return -1;
    case ScalarOp::kExp: return y;
    case ScalarOp::kExpm1: return Add(y, one());
    case ScalarOp::kLog: return e_.Unary(ScalarOp::kReciprocal, x);
    case ScalarOp::kLog1p: return e_.Unary(ScalarOp::kReciprocal, Add(x, one()));
    case ScalarOp::kSqrt: return Div(Const(t, 0.5), y);
    case ScalarOp::kRsqrt: return Mul(Const(t, -0.5), Mul(y, Mul(y, y)));
    case ScalarOp::kReciprocal: return Neg(Mul(y, y));
    case ScalarOp::kSin: return e_.Unary(ScalarOp::kCos, x);
    case ScalarOp::kCos: return Neg(e_.Unary(ScalarOp::kSin, x));
    case ScalarOp::kTan: return Add(Mul(y, y), one());
    case ScalarOp::kAsin: return e_.Unary(ScalarOp::kRsqrt, Sub(one(), Mul(x, x)));
    case ScalarOp::kAcos: return Neg(e_.Unary(ScalarOp::kRsqrt, Sub(one(), Mul(x, x))));
    case ScalarOp::kAtan: return e_.Unary(ScalarOp::kReciprocal, Add(Mul(x, x), one()));
    case ScalarOp::kSinh: return e_.Unary(ScalarOp::kCosh, x);
    case ScalarOp::kCosh: return e_.Unary(ScalarOp::kSinh, x);
    case ScalarOp::kTanh: return Sub(one(), Mul(y, y));
    case ScalarOp::kAsinh: return e_.Unary(ScalarOp::kRsqrt, Add(Mul(x, x), one()));
    case ScalarOp::kAcosh: return e_.Unary(ScalarOp::kRsqrt, Sub(Mul(x, x), one()));
    case ScalarOp::kAtanh: return e_.Unary(ScalarOp::kReciprocal, Sub(one(), Mul(x, x)));
    case ScalarOp::kErf:
      return Mul(Const(t, 2 / std::sqrt(std::numbers::pi)),
                 e_.Unary(ScalarOp::kExp, Neg(Mul(x, x))));
    case ScalarOp::kSigmoid: return Mul(y, Sub(one(), y));
    default:
      return Unimplemented("scalar operator '" + std::string(InfoOf(n.op).name) +
                           "' has no derivative");
  }
}

Result<int> Differentiator::BinaryTangent(const ExprNode& n, int y) {
  const DType t = n.dtype;
  const int a = Value(n.args[0]);
  const int b = Value(n.args[1]);
  const int da = Tangent(n.args[0]);
  const int db = Tangent(n.args[1]);
  auto sum = [&](int p, int q) { return p < 0 ? q : q < 0 ? p : Add(p, q); };
  switch (n.op) {
    case ScalarOp::kAdd: return sum(da, db);
    case ScalarOp::kSub:
      if (db < 0) return da;
      return da < 0 ? Neg(db) : Sub(da, db);
    case ScalarOp::kMul: return sum(da < 0 ? -1 : Mul(da, b), db < 0 ? -1 : Mul(a, db));
    case ScalarOp::kDiv: {
      const int left = da < 0 ? -1 : Div(da, b);
      return sum(left, db < 0 ? -1 : Neg(Mul(Div(y, b), db)));
    }
    case ScalarOp::kPow: {
      int left = -1;
      const ExprNode exponent = e_.nodes()[static_cast<size_t>(b)];
      const bool zero = exponent.op == ScalarOp::kConstant && exponent.float_value == 0;
      if (da >= 0 && !zero) {
        int slope = Mul(b, e_.Binary(ScalarOp::kPow, a, Sub(b, Const(t, 1))));
        if (exponent.op != ScalarOp::kConstant) {  // a^0 is 1 everywhere, where 0 * 0^-1 is NaN
          slope = e_.Select(e_.Binary(ScalarOp::kEq, b, Const(t, 0)), Const(t, 0), slope);
        }
        left = Mul(slope, da);
      }
      int right = -1;
      if (db >= 0) {  // 0^b does not depend on b, where log(0) would say NaN
        const int at_zero = e_.Binary(ScalarOp::kEq, a, Const(t, 0));
        right = Mul(e_.Select(at_zero, Const(t, 0), Mul(y, e_.Unary(ScalarOp::kLog, a))), db);
      }
      return sum(left, right);
    }
    case ScalarOp::kMod:
    case ScalarOp::kFmod:
      if (db >= 0) {
        return Unimplemented("'" + std::string(InfoOf(n.op).name) +
                             "' is not differentiable with respect to its divisor");
      }
      return da;
    case ScalarOp::kMax:
    case ScalarOp::kMin: {
      // At a constant bound the slope is 0, as that of relu at 0. The value says as much as the
      // argument there, and backward keeps the value anyway. Equal operands get half each.
      const bool is_max = n.op == ScalarOp::kMax;
      const ScalarOp beyond = is_max ? ScalarOp::kGt : ScalarOp::kLt;
      const auto constant = [&](int v) {
        return e_.nodes()[static_cast<size_t>(v)].op == ScalarOp::kConstant;
      };
      if (constant(b)) {
        return e_.Select(e_.Binary(beyond, is_max ? y : a, b), OrZero(da, t), Const(t, 0));
      }
      if (constant(a)) return e_.Select(e_.Binary(beyond, b, a), OrZero(db, t), Const(t, 0));
      const int left = OrZero(da, t);
      const int right = OrZero(db, t);
      const int half = Mul(Const(t, 0.5), Add(left, right));
      return e_.Select(e_.Binary(ScalarOp::kEq, a, b), half,
                       e_.Select(e_.Binary(beyond, a, b), left, right));
    }
    default:
      return Unimplemented("scalar operator '" + std::string(InfoOf(n.op).name) +
                           "' has no derivative");
  }
}

Result<int> Differentiator::NodeTangent(const ExprNode& n, int y) {
  const DType t = n.dtype;
  if (!IsFloat(t) || n.op == ScalarOp::kConstant) return -1;
  if (n.op == ScalarOp::kInput) return n.input == input_ ? Const(t, 1) : -1;
  if (n.op == ScalarOp::kSelect) {
    const int da = Tangent(n.args[1]);
    const int db = Tangent(n.args[2]);
    if (da < 0 && db < 0) return -1;
    return e_.Select(Value(n.args[0]), OrZero(da, t), OrZero(db, t));
  }
  const int da = Tangent(n.args[0]);
  if (n.op == ScalarOp::kCast) return da < 0 ? -1 : e_.Cast(t, da);
  if (InfoOf(n.op).arity == 2) {
    if (da < 0 && Tangent(n.args[1]) < 0) return -1;
    return BinaryTangent(n, y);
  }
  if (da < 0) return -1;
  HYPER_ASSIGN_OR_RETURN(const int factor, UnaryFactor(n, Value(n.args[0]), y));
  if (factor < 0) return -1;
  if (n.op == ScalarOp::kNeg) return Neg(da);
  return Mul(factor, da);
}

Result<std::optional<Expr>> Differentiator::Run() {
  for (size_t i = 0; i < expr_.nodes().size(); ++i) {
    const ExprNode& n = expr_.nodes()[i];
    auto arg = [&](int k) { return Value(n.args[static_cast<size_t>(k)]); };
    int value;
    if (i + 1 == expr_.nodes().size() && output_input_ >= 0) {
      value = e_.Input(output_input_, n.dtype);
    } else {
      switch (n.op) {
        case ScalarOp::kInput: value = e_.Input(n.input, n.dtype); break;
        case ScalarOp::kConstant:
          value = IsFloat(n.dtype) ? e_.Constant(n.dtype, n.float_value)
                                   : e_.ConstantInt(n.dtype, n.int_value);
          break;
        case ScalarOp::kCast: value = e_.Cast(n.dtype, arg(0)); break;
        case ScalarOp::kBitcast: value = e_.Bitcast(n.dtype, arg(0)); break;
        case ScalarOp::kSelect: value = e_.Select(arg(0), arg(1), arg(2)); break;
        default:
          value =
              InfoOf(n.op).arity == 1 ? e_.Unary(n.op, arg(0)) : e_.Binary(n.op, arg(0), arg(1));
      }
    }
    values_.push_back(value);
    HYPER_ASSIGN_OR_RETURN(const int tangent, NodeTangent(n, value));
    tangents_.push_back(tangent);
  }
  const int root = tangents_.back();
  if (root < 0) return std::optional<Expr>();
  Expr result = e_.Build(root);
  const ExprNode& r = result.root();
  if (r.op == ScalarOp::kConstant && r.float_value == 0) return std::optional<Expr>();
  return std::optional<Expr>(std::move(result));
}

}  // namespace

Result<std::optional<Expr>> Differentiate(const Expr& expr, int input, int output_input) {
  return Differentiator(expr, input, output_input).Run();
}

}  // namespace hyper::ir
