// Scalar expressions: folding, text, derivatives against finite differences, number formats.
#include <cmath>
#include <cstring>
#include <limits>

#include "gtest/gtest.h"
#include "ir/expr.h"
#include "ir/float16.h"
#include "ir/reference/reference.h"
#include "ir/scalar_eval.h"

namespace hyper::ir {
namespace {

Expr ParseOk(std::string_view text, std::vector<DType> inputs) {
  auto expr = Expr::Parse(text, inputs);
  EXPECT_TRUE(expr.ok()) << text << ": " << expr.status().ToString();
  return expr.ok() ? *expr : Expr();
}

std::string Folded(std::string_view text, DType dtype = DType::kF32) {
  return ParseOk(text, {dtype, dtype, DType::kBool}).ToString();
}

TEST(Expr, FoldsWhatHoldsInIeeeArithmetic) {
  EXPECT_EQ(Folded("mul(x0, f32(1))"), "x0");
  EXPECT_EQ(Folded("div(x0, f32(1))"), "x0");
  EXPECT_EQ(Folded("sub(x0, f32(0))"), "x0");
  EXPECT_EQ(Folded("add(x0, f32(0))"), "add(x0, f32(0))");  // -0 + 0 is 0
  EXPECT_EQ(Folded("add(x0, f32(-0))"), "x0");
  EXPECT_EQ(Folded("mul(x0, f32(0))"), "mul(x0, f32(0))");  // NaN, inf, -0
  EXPECT_EQ(Folded("add(x0, i64(0))", DType::kI64), "x0");
  EXPECT_EQ(Folded("neg(neg(x0))"), "x0");
  EXPECT_EQ(Folded("select(x2, x0, x0)"), "x0");
  EXPECT_EQ(Folded("select(bool(1), x0, x1)"), "x0");
  EXPECT_EQ(Folded("pow(x0, f32(2))"), "mul(x0, x0)");
  EXPECT_EQ(Folded("add(f32(0.1), f32(0.2))"), "f32(0.3)");
  EXPECT_EQ(Folded("cast.f32(cast.f64(x0))"), "x0");
  EXPECT_EQ(Folded("cast.f32(cast.bf16(x0))"), "cast.f32(cast.bf16(x0))");
  EXPECT_EQ(Folded("add(add(x0, f32(1)), f32(2))"), "add(add(x0, f32(1)), f32(2))");
}

TEST(Expr, EqualExpressionsHaveEqualNodes) {
  ExprBuilder a;
  const int x = a.Input(0, DType::kF32);
  const int unused = a.Unary(ScalarOp::kTan, x);
  const int e = a.Unary(ScalarOp::kExp, x);
  const Expr first = a.Build(a.Binary(ScalarOp::kMul, e, a.Unary(ScalarOp::kExp, x)));
  EXPECT_NE(unused, e);
  EXPECT_EQ(first, ParseOk("mul(exp(x0), exp(x0))", {DType::kF32}));
  EXPECT_EQ(first.ToString(), "t0 = exp(x0); mul(t0, t0)");
  EXPECT_FALSE(ParseOk("max(x0, f32(0))", {DType::kF32}) ==
               ParseOk("max(x0, f32(-0))", {DType::kF32}));
  EXPECT_EQ(ParseOk("max(x0, f32(nan))", {DType::kF32}),
            ParseOk("max(x0, f32(nan))", {DType::kF32}));
}

TEST(Expr, ParseErrors) {
  const DType f32 = DType::kF32;
  for (std::string_view text : {"",
                                "x1",
                                "x00",
                                "foo(x0)",
                                "exp(x0",
                                "exp(x0, x0)",
                                "add(x0, f64(1))",
                                "f32()",
                                "f32(1e)",
                                "i8(128)",
                                "u8(-1)",
                                "not(x0)",
                                "select(x0, x0, x0)",
                                "t0",
                                "t1 = x0; t1",
                                "t0 = x0",
                                "x0 x0",
                                "cast.f33(x0)",
                                "isnan(i32(1))",
                                "floor(i32(1))",
                                "bool(2)",
                                "neg(bool(1))",
                                "f32(infinity)",
                                "input(x0)"}) {
    EXPECT_FALSE(Expr::Parse(text, std::span(&f32, 1)).ok()) << text;
  }
}

double EvalF64(const Expr& expr, std::initializer_list<double> inputs) {
  std::vector<ScalarValue> values;
  for (double x : inputs) values.push_back({x, 0});
  return EvaluateExpr(expr, values).f;
}

TEST(Expr, EveryDerivativeAgreesWithDifferences) {
  const std::vector<DType> f64(3, DType::kF64);
  int checked = 0;
  for (const ScalarOpInfo& info : ScalarOps()) {
    using Takes = ScalarOpInfo::Takes;
    if (info.arity == 0 || info.result == ScalarOpInfo::Result::kBool) continue;
    if (info.takes == Takes::kBits || info.takes == Takes::kIntegers) continue;
    std::string text(info.name);
    if (info.op == ScalarOp::kCast || info.op == ScalarOp::kBitcast) continue;
    if (info.op == ScalarOp::kSelect) {
      text = "select(lt(x0, x1), x0, mul(x1, x2))";
    } else {
      text += info.arity == 1 ? "(x0)" : "(x0, x1)";
    }
    // acosh needs x > 1, asin, acos and atanh |x| < 1.
    const double x0 = info.op == ScalarOp::kAcosh ? 1.7 : 0.37;
    const double inputs[3] = {x0, 0.81, -0.6};
    const Expr expr = ParseOk(text, f64);
    const double y = EvaluateExpr(expr, std::vector<ScalarValue>{{x0, 0}, {0.81, 0}, {-0.6, 0}}).f;
    for (int input = 0; input < expr.input_count(); ++input) {
      for (int output_input : {-1, 3}) {
        const auto d = Differentiate(expr, input, output_input);
        if ((info.op == ScalarOp::kMod || info.op == ScalarOp::kFmod) && input == 1) {
          EXPECT_FALSE(d.ok());
          continue;
        }
        ASSERT_TRUE(d.ok()) << text << d.status().ToString();
        auto at = [&](double shift) {
          double x[3] = {inputs[0], inputs[1], inputs[2]};
          x[input] += shift;
          return EvalF64(expr, {x[0], x[1], x[2]});
        };
        const double expected = (at(1e-6) - at(-1e-6)) / 2e-6;
        const double got = d->has_value() ? EvalF64(**d, {inputs[0], inputs[1], inputs[2], y}) : 0;
        EXPECT_NEAR(got, expected, 1e-7 * std::max(1.0, std::fabs(expected)))
            << text << " d/dx" << input;
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 80);
}

TEST(Expr, DerivativesAtTheEdges) {
  const std::vector<DType> f64(2, DType::kF64);
  auto derivative = [&](std::string_view text, int input, int output) {
    const auto d = Differentiate(ParseOk(text, f64), input, output);
    EXPECT_TRUE(d.ok());
    return d->has_value() ? (*d)->ToString() : "0";
  };
  EXPECT_EQ(derivative("max(x0, f64(0))", 0, 1), "select(gt(x1, f64(0)), f64(1), f64(0))");
  EXPECT_EQ(derivative("tanh(x0)", 0, 1), "sub(f64(1), mul(x1, x1))");
  EXPECT_EQ(derivative("x1", 0, -1), "0");
  EXPECT_EQ(derivative("floor(x0)", 0, -1), "0");
  EXPECT_EQ(derivative("pow(x0, f64(0))", 0, -1), "0");
  auto value = [&](std::string_view text, int input, double x, double y) {
    const auto d = Differentiate(ParseOk(text, f64), input, -1);
    return EvalF64(**d, {x, y});
  };
  EXPECT_EQ(value("max(x0, f64(0))", 0, 0.0, 0), 0);  // relu at 0
  EXPECT_EQ(value("abs(x0)", 0, 0.0, 0), 0);
  EXPECT_EQ(value("pow(x0, x1)", 1, 0.0, 2.0), 0);
  EXPECT_EQ(value("max(x0, x1)", 0, 1.0, 1.0) + value("max(x0, x1)", 1, 1.0, 1.0), 1);
  EXPECT_EQ(value("min(x0, x1)", 0, 1.0, 1.0) + value("min(x0, x1)", 1, 1.0, 1.0), 1);
  // A cast passes the gradient on in its own type.
  const DType f32 = DType::kF32;
  const auto d = Differentiate(ParseOk("exp(cast.f64(x0))", {f32}), 0, -1);
  ASSERT_TRUE(d.ok() && d->has_value());
  EXPECT_EQ((*d)->dtype(), DType::kF64);
}

TEST(ScalarSemantics, IntegersNeverTrap) {
  auto binary = [](ScalarOp op, DType t, int64_t a, int64_t b) {
    const Scalar args[2] = {{0, a}, {0, b}};
    return EvaluateScalar(op, t, args).i;
  };
  EXPECT_EQ(binary(ScalarOp::kDiv, DType::kI32, 7, 0), 0);
  EXPECT_EQ(binary(ScalarOp::kDiv, DType::kI32, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(binary(ScalarOp::kDiv, DType::kI64, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(binary(ScalarOp::kDiv, DType::kI64, -7, 2), -3);
  EXPECT_EQ(binary(ScalarOp::kMod, DType::kI64, -7, 3), 2);
  EXPECT_EQ(binary(ScalarOp::kFmod, DType::kI64, -7, 3), -1);
  EXPECT_EQ(binary(ScalarOp::kAdd, DType::kI8, 127, 1), -128);
  EXPECT_EQ(binary(ScalarOp::kPow, DType::kI64, 3, 5), 243);
  EXPECT_EQ(binary(ScalarOp::kPow, DType::kI64, 3, -1), 0);
  EXPECT_EQ(binary(ScalarOp::kGt, DType::kU64, -1, 1), 1);
  const double nan = std::nan("");
  EXPECT_EQ(CastScalar(DType::kF32, DType::kI8, {300.0, 0}).i, 127);
  EXPECT_EQ(CastScalar(DType::kF32, DType::kU8, {-3.0, 0}).i, 0);
  EXPECT_EQ(CastScalar(DType::kF64, DType::kI64, {nan, 0}).i, 0);
  EXPECT_EQ(CastScalar(DType::kF64, DType::kI64, {1e300, 0}).i, INT64_MAX);
  EXPECT_EQ(CastScalar(DType::kF64, DType::kI64, {-1e300, 0}).i, INT64_MIN);
  EXPECT_EQ(CastScalar(DType::kI64, DType::kI8, {0, 300}).i, 44);
  EXPECT_EQ(CastScalar(DType::kU64, DType::kF64, {0, -1}).f, 18446744073709551615.0);
  const Scalar max_nan[2] = {{1.0, 0}, {nan, 0}};
  EXPECT_TRUE(std::isnan(EvaluateScalar(ScalarOp::kMax, DType::kF32, max_nan).f));
}

TEST(Float16, AllPatternsRoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<uint16_t>(bits);
    const double h = HalfToDouble(b);
    if (!std::isnan(h)) {
      ASSERT_EQ(HalfBits(h), b);
    }
    const double f = BFloat16ToDouble(b);
    if (!std::isnan(f)) {
      ASSERT_EQ(BFloat16Bits(f), b);
    }
  }
  EXPECT_EQ(HalfToDouble(HalfBits(65519.0)), 65504.0);
  EXPECT_TRUE(std::isinf(HalfToDouble(HalfBits(65520.0))));
  EXPECT_EQ(RoundToHalf(1 + 0x1p-11), 1.0);             // tie to even
  EXPECT_EQ(RoundToHalf(1 + 3 * 0x1p-11), 1 + 0x1p-9);  // tie to even, upwards
  EXPECT_EQ(RoundToHalf(0x1p-25), 0.0);
  EXPECT_EQ(RoundToHalf(0x1.8p-25), 0x1p-24);
  EXPECT_TRUE(std::isinf(RoundToBFloat16(std::numeric_limits<float>::max())));
}

}  // namespace
}  // namespace hyper::ir
