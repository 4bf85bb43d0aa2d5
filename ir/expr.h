// Scalar expressions: the body of the `map` op, and what the kernel emitter prints inside a loop.
// An Expr is a DAG in topological order (arguments before users, root last), hash-consed, so equal
// expressions have equal node lists. Every node rounds to its dtype: no excess precision, no
// contraction, also inside fused kernels.
// Thread safety: value type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ir/types.h"

namespace hyper::ir {

enum class ScalarOp : uint8_t {
  kInput,  // x<index>
  kConstant,
  // unary
  kNeg,
  kAbs,
  kSign,
  kExp,
  kExpm1,
  kLog,
  kLog1p,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kErf,
  kSigmoid,
  kFloor,
  kCeil,
  kRound /* half to even */,
  kNot,
  kIsNan,
  kIsInf,
  kCast,
  kBitcast /* the same bits as another type of the same width */,
  // binary; comparisons give bool, logic works on the bits of integers too
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMod /* sign of divisor */,
  kFmod /* sign of dividend */,
  kMin,
  kMax,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kXor,
  kShiftLeft,
  kShiftRight,
  // ternary: select(condition, a, b)
  kSelect,
};

struct ScalarOpInfo {
  ScalarOp op;
  std::string_view name;  // in text form
  int arity;
  enum class Result : uint8_t { kSame, kBool, kSpecial } result;
  enum class Takes : uint8_t {
    kNumbers,
    kFloats,
    kIntegers,
    kBits /* bool and integers */
  } takes;
};
// The one table of scalar operators, in enum order.
std::span<const ScalarOpInfo> ScalarOps();
const ScalarOpInfo& InfoOf(ScalarOp op);

struct ExprNode {
  ScalarOp op = ScalarOp::kInput;
  DType dtype = DType::kF32;
  std::array<int32_t, 3> args = {-1, -1, -1};
  int32_t input = -1;      // kInput: which
  double float_value = 0;  // kConstant of a float dtype, already rounded to it
  int64_t int_value = 0;   // kConstant of an integer dtype or bool
  // Bitwise on constants: 0 and -0 differ, a NaN equals itself.
  bool operator==(const ExprNode& other) const;
};

class Expr {
 public:
  Expr() = default;
  const std::vector<ExprNode>& nodes() const { return nodes_; }
  const ExprNode& root() const { return nodes_.back(); }
  bool empty() const { return nodes_.empty(); }
  DType dtype() const { return root().dtype; }
  // 1 + the largest input index used (0: none).
  int input_count() const;
  // True when the expression is one operator applied to inputs/constants, e.g. "tanh(x0)".
  bool IsSingleOp(ScalarOp op) const;
  bool operator==(const Expr&) const = default;

  // "mul(x0, add(x1, f32(2)))"; constants as dtype(value), casts as cast.f32(...) and
  // bitcast.i32(...). Round-trips.
  std::string ToString() const;
  static Result<Expr> Parse(std::string_view text, std::span<const DType> input_dtypes);

 private:
  friend class ExprBuilder;
  std::vector<ExprNode> nodes_;
};

// Builds one Expr; node handles are indices valid for this builder. Folds constants and the
// identities that hold in IEEE arithmetic (x*1, x/1, x-0, select with equal branches, double
// negation) and never reassociates.
class ExprBuilder {
 public:
  int Input(int index, DType dtype);
  int Constant(DType dtype, double value);
  int ConstantInt(DType dtype, int64_t value);
  int Unary(ScalarOp op, int x);
  int Binary(ScalarOp op, int x, int y);
  int Select(int condition, int x, int y);
  int Cast(DType dtype, int x);
  int Bitcast(DType dtype, int x);  // of the same width (a bool's byte is 0 or 1)
  // Splices `expr`, with input i replaced by inputs[i]; returns the root.
  int Splice(const Expr& expr, std::span<const int> inputs);
  // Everything reachable from `root`, renumbered.
  Expr Build(int root) const;
  const std::vector<ExprNode>& nodes() const { return nodes_; }

 private:
  int Intern(ExprNode node);
  std::vector<ExprNode> nodes_;
};

// d expr / d x<input>, as an expression in the same inputs plus, when `output_input` >= 0, the
// already computed value of expr itself as input `output_input` (cheaper for tanh, exp, sqrt,
// sigmoid, relu). nullopt: identically zero. Fails for operators that are not differentiable with
// the reason. Ties: max and min send the gradient to the first argument only where it is strictly
// larger/smaller or equal (ONNX Relu: 0 at 0, as PyTorch); abs and sign: 0 at 0.
Result<std::optional<Expr>> Differentiate(const Expr& expr, int input, int output_input);

}  // namespace hyper::ir
