// Derivatives of every scalar operator through map.
#include <gtest/gtest.h>

#include "ops_gradient_check.h"

namespace hyper::ir::test {
namespace {

const std::vector<Dims> kShapes = {{5}, {1}, {0, 2}, {}, {2, 1, 3}};

Draw DomainOf(ScalarOp op) {
  switch (op) {
    case ScalarOp::kLog:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kReciprocal:
    case ScalarOp::kPow:
    case ScalarOp::kDiv:
    case ScalarOp::kLog1p: return Draw::kPositive;
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtanh:
    case ScalarOp::kTan: return Draw::kUnit;
    case ScalarOp::kAcosh: return Draw::kAboveOne;
    default: return Draw::kAny;
  }
}

Expr Single(ScalarOp op, int arity) {
  ExprBuilder e;
  const int x = e.Input(0, DType::kF64);
  return e.Build(arity == 1 ? e.Unary(op, x) : e.Binary(op, x, e.Input(1, DType::kF64)));
}

class ScalarGradient : public testing::TestWithParam<ScalarOp> {};

TEST_P(ScalarGradient, MatchesDifferences) {
  const ScalarOp op = GetParam();
  const int arity = InfoOf(op).arity;
  for (const Dims& dims : kShapes) {
    const std::vector<InputSpec> inputs(static_cast<size_t>(arity), {dims, DomainOf(op)});
    ExpectGradient({std::string(InfoOf(op).name), "map", inputs, {{"expr", Single(op, arity)}}});
  }
}

// All operators that take and give floats; modulus has its own test below.
std::vector<ScalarOp> FloatOperators() {
  std::vector<ScalarOp> ops;
  for (const ScalarOpInfo& info : ScalarOps()) {
    const bool shaped = info.arity == 1 || info.arity == 2;
    using Takes = ScalarOpInfo::Takes;
    if (!shaped || info.takes == Takes::kBits || info.takes == Takes::kIntegers) continue;
    if (info.result != ScalarOpInfo::Result::kSame) continue;
    if (info.op == ScalarOp::kMod || info.op == ScalarOp::kFmod) continue;
    ops.push_back(info.op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(AllOperators, ScalarGradient, testing::ValuesIn(FloatOperators()),
                         [](const auto& info) { return std::string(InfoOf(info.param).name); });

TEST(MapGradient, CoversTheOperatorTable) { EXPECT_GE(FloatOperators().size(), 30u); }

TEST(MapGradient, ModulusInItsDividend) {
  for (ScalarOp op : {ScalarOp::kMod, ScalarOp::kFmod}) {
    ExprBuilder e;
    const Expr expr =
        e.Build(e.Binary(op, e.Input(0, DType::kF64), e.Constant(DType::kF64, 0.7311)));
    for (const Dims& dims : kShapes) {
      ExpectGradient({"modulus", "map", {{dims}}, {{"expr", expr}}});
    }
  }
}

TEST(MapGradient, SelectAndSharedOperands) {
  ExprBuilder e;
  const int x = e.Input(0, DType::kF64);
  const int y = e.Input(1, DType::kF64);
  const int z = e.Input(2, DType::kF64);
  const int product = e.Binary(ScalarOp::kMul, x, e.Unary(ScalarOp::kTanh, y));
  const int chosen =
      e.Select(e.Binary(ScalarOp::kLt, x, z), product, e.Binary(ScalarOp::kMul, z, z));
  const Expr expr = e.Build(e.Binary(ScalarOp::kAdd, chosen, product));
  for (const Dims& dims : kShapes) {
    ExpectGradient({"select", "map", {{dims}, {dims}, {dims}}, {{"expr", expr}}});
  }
}

TEST(MapGradient, Gelu) {
  ExprBuilder e;
  const int x = e.Input(0, DType::kF64);
  const int half = e.Binary(ScalarOp::kMul, x, e.Constant(DType::kF64, 0.5));
  const int erf =
      e.Unary(ScalarOp::kErf, e.Binary(ScalarOp::kMul, x, e.Constant(DType::kF64, 0.7071)));
  const Expr expr = e.Build(
      e.Binary(ScalarOp::kMul, half, e.Binary(ScalarOp::kAdd, erf, e.Constant(DType::kF64, 1))));
  for (const Dims& dims : kShapes) {
    ExpectGradient({"gelu", "map", {{dims}}, {{"expr", expr}}});
  }
}

}  // namespace
}  // namespace hyper::ir::test
